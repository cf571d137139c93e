# Reads ctest's LastTest.log and prints how many tests were skipped, by reason. GoogleTest writes
#   path:line: Skipped
#   the reason, one or more lines
#   [  SKIPPED ] Suite.Name (0 ms)
/: Skipped$/ { reading = 1; reason = ""; next }
/^\[  SKIPPED \]/ && reading {
  reading = 0
  if (reason == "") reason = "no reason given"
  if (!(reason in count)) order[++reasons] = reason
  ++count[reason]
  ++total
  next
}
reading && NF { reason = reason (reason == "" ? "" : " ") $0 }
END {
  if (total == 0) { print "No test was skipped."; exit }
  printf "%d test%s skipped:\n", total, total == 1 ? " was" : "s were"
  for (i = 1; i <= reasons; ++i) printf "  %4d  %s\n", count[order[i]], order[i]
}
