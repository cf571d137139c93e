# Prints one table from the summary.json files of several runs. The bare machine has neither Python
# nor jq, hence the small JSON reader: it fills value["staleness.mean"] and the like.
function peek() {
  sub(/^[ \t\r\n]+/, "", text)
  return substr(text, 1, 1)
}
function skip_character() { text = substr(text, 2) }
function read_string(  length_, result) {
  skip_character()
  match(text, /^([^"\\]|\\.)*/)
  length_ = RLENGTH
  result = substr(text, 1, length_)
  text = substr(text, length_ + 2)
  return result
}
function read_value(path,  key, index_) {
  if (peek() == "{") {
    skip_character()
    while (peek() == "\"") {
      key = read_string()
      peek()
      skip_character()  # the colon
      read_value(path == "" ? key : path "." key)
      if (peek() == ",") skip_character()
    }
    skip_character()
  } else if (peek() == "[") {
    skip_character()
    while (peek() != "]" && text != "") {
      read_value(path "." index_++)
      if (peek() == ",") skip_character()
    }
    skip_character()
  } else if (peek() == "\"") {
    value[path] = read_string()
  } else {
    match(text, /^[^],} \t\r\n]+/)
    value[path] = substr(text, 1, RLENGTH)
    text = substr(text, RLENGTH < 1 ? 2 : RLENGTH + 1)
  }
}
function number(path, format) {
  return value[path] ~ /^-?[0-9]/ ? sprintf(format, value[path]) : "-"
}
function bytes(count,  unit) {
  if (count !~ /^[0-9]/) return "-"
  for (unit = 1; count + 0 >= 999.5 && unit < 5; ++unit) count /= 1000
  return sprintf(unit == 1 ? "%.0f %s" : "%.1f %s", count, substr("B kBMBGBTB", 2 * unit - 1, 2))
}
function percent(path) {
  return value[path] ~ /^[0-9]/ ? sprintf("%.1f%%", 100 * value[path]) : "-"
}
BEGIN {
  row = "%-9s %8s %8s %10s %9s %9s %15s %14s\n"
  printf "\n" row, "algorithm", "time", "speed-up", "samples/s", "accuracy", "sent",
         "mean staleness", "max staleness"
  for (i = 1; i < ARGC; ++i) {
    text = ""
    while ((status = (getline line < ARGV[i])) > 0) text = text line "\n"
    if (status < 0) { print "error: cannot read " ARGV[i] > "/dev/stderr"; exit 1 }
    split("", value)
    read_value("")
    if (i == 1) first_seconds = value["wall_seconds"]
    speed_up = value["wall_seconds"] > 0 ? first_seconds / value["wall_seconds"] : 0
    printf row, value["algorithm"], number("wall_seconds", "%.1fs"), sprintf("%.2fx", speed_up),
           number("samples_per_second", "%.0f"), percent("test_accuracy"),
           bytes(value["bytes_sent"]), number("staleness.mean", "%.2f"),
           number("staleness.max", "%.0f")
  }
  print "\nWhat each run wrote (curves in metrics.csv, messages in trace/):"
  for (i = 1; i < ARGC; ++i) {
    sub(/summary\.json$/, "", ARGV[i])
    print "  " ARGV[i]
  }
}
