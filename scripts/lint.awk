# Follows #include "…" between the project's files. Input: first the file of "hash  path" lines, then
# the sources, one a line. Writes FOLDER/<source with % for />.now, the hashes that the source depends
# on, and prints the source and that name without its ending. With GRAPEVINE_CHANGED (paths, one a
# line) in the environment, only sources that are, or include, one of them are printed.
function read_includes(path,  line) {
  if (path in includes) return
  includes[path] = ""
  while ((getline line < path) > 0) {
    if (line !~ /^[ \t]*#[ \t]*include[ \t]*"/) continue
    sub(/^[^"]*"/, "", line)
    sub(/".*/, "", line)
    if (line in hash) includes[path] = includes[path] line "\n"
  }
  close(path)
}
function visit(path,  list, n, i) {
  if (path in seen) return
  seen[path] = 1
  print hash[path], path > now
  if (path in changed) touched = 1
  read_includes(path)
  n = split(includes[path], list, "\n")
  for (i = 1; i < n; ++i) visit(list[i])
}
BEGIN {
  limited = ("GRAPEVINE_CHANGED" in ENVIRON)
  n = split(ENVIRON["GRAPEVINE_CHANGED"], list, "\n")
  for (i = 1; i <= n; ++i) changed[list[i]] = 1
}
FNR == NR {
  hash[$2] = $1
  # What concerns every source: the checks and the way it is compiled.
  if ($2 !~ /\.[ch]pp$/) common = common $1 " " $2 "\n"
  next
}
{
  stem = $0
  gsub(/\//, "%", stem)
  stem = folder "/" stem
  now = stem ".now"
  print version > now
  printf "%s", common > now
  split("", seen)
  touched = 0
  visit($0)
  close(now)
  if (!limited || touched) print $0, stem
}
