# Reads ctest's LastTest.log and prints which tests failed, how many were skipped and why, and in the
# last line how many passed, failed and were skipped. One entry of ctest may run a whole suite of
# GoogleTest, which writes
#   [       OK ] Suite.Name (0 ms)
#   [  FAILED  ] Suite.Name (0 ms)
#   path:line: Skipped
#   the reason, one or more lines
#   [  SKIPPED ] Suite.Name (0 ms)
# An entry of another kind, or one that ended before GoogleTest could say so, counts as one test.

# A new entry: "2/773 Testing: name".
/^[0-9]+\/[0-9]+ Testing: / {
  entry = $3
  for (i = 4; i <= NF; ++i) entry = entry " " $i
  heard = broken = reading = 0
  amid = ""
  if (unfound != "") { fail(entry); broken = 1 }
  unfound = ""
  next
}
# Before the entry that it belongs to.
/^(Unable to find|Could not find) executable/ { unfound = $0; next }
/^Test Passed\.$/ { if (!heard && !broken) ++passed; next }
/^Test Failed\.$/ {
  if (amid != "") fail(amid " (its process ended, and ran no test behind it)")
  else if (!broken) fail(entry)
  next
}
/^\[ RUN      \] / { amid = $4; next }
/^\[       OK \] .*\([0-9]+ ms\)$/ { ++passed; ++heard; amid = ""; next }
/^\[  FAILED  \] .*\([0-9]+ ms\)$/ { fail($4); broken = 1; ++heard; amid = ""; next }
/: Skipped$/ { reading = 1; reason = ""; next }
/^\[  SKIPPED \] .*\([0-9]+ ms\)$/ && reading { reading = 0; skip(reason); ++heard; amid = ""; next }
reading && NF { reason = reason (reason == "" ? "" : " ") $0; next }

function fail(name) {
  sub(/,$/, "", name)
  failures[++failed] = name
}
function skip(why) {
  if (why == "") why = "no reason given"
  if (!(why in count)) order[++reasons] = why
  ++count[why]
  ++skipped
}

END {
  for (i = 1; i <= reasons; ++i) printf "skipped %4d  %s\n", count[order[i]], order[i]
  for (i = 1; i <= failed; ++i) printf "failed        %s\n", failures[i]
  printf "%d passed, %d failed, %d skipped.\n", passed, failed, skipped
}
