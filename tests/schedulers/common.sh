# shellcheck shell=bash
# What the tests with real schedulers share. To be sourced with the path of `grapevine` as argument: it
# changes to a temporary folder, where `grapevine` is on PATH. When the script ends, for whatever reason,
# the processes that it started are ended and the folder is removed. The script defines print_logs and
# stop_daemons, which run before that.
set -euo pipefail

readonly kDeadlineSeconds=120  # of each wait: a loaded machine can be slow
readonly kSkipped=77           # SKIP_RETURN_CODE in tests/schedulers/CMakeLists.txt
readonly kProcesses=3 kSteps=1000 kBatch=16
readonly kScript=${0##*/}

# skip REASON: for what the machine lacks. scripts/results.awk reads these lines.
skip() {
  printf '%s: Skipped\n%s\n[  SKIPPED ] %s (0 ms)\n' "$kScript" "$*" "$kScript"
  exit "$kSkipped"
}

# need COMMAND PACKAGE
need() {
  command -v "$1" >/dev/null || skip "$1 is not installed (Debian: $2)"
}

# fail EXPECTATION: ends the script, and the end prints the logs.
fail() {
  printf '%s: FAILED: expected %s\n' "$kScript" "$*" >&2
  exit 1
}

say() { printf '== %s\n' "$*" >&2; }

# within EXPECTATION COMMAND…: waits until the command succeeds.
within() {
  local what=$1 deadline=$((SECONDS + kDeadlineSeconds))
  shift
  until "$@"; do
    if ((SECONDS >= deadline)); then fail "$what within $kDeadlineSeconds s"; fi
    sleep 0.1
  done
}

# bounded COMMAND…: ends a command that does not end by itself.
bounded() { timeout --kill-after=20 "$kDeadlineSeconds" "$@"; }

# background COMMAND…: a process which the kernel ends when this script is killed. Its id is in $!.
background() { setpriv --pdeathsig KILL "$@" & }

gone() { ! kill -0 "$1" 2>/dev/null; }

# unused_port FIRST: a port of loopback, out of 1000, on which nothing listens now. They lie below those
# which the kernel gives to clients, and above those which `train` takes under SLURM.
unused_port() {
  local port
  for _ in {1..100}; do
    port=$(($1 + RANDOM % 1000))
    if ! (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return
    fi
  done
  fail "a free port among $1..$(($1 + 999))"
}

# write_job [LINE]: the options of the run. `ar` ends with the same model, bit for bit, whether it was
# stopped or not. A delay, which does not change the model either, keeps a run in progress until its
# signal arrives; without one it finishes quickly.
write_job() {
  cat >job.toml <<EOF
algorithm = "ar"
model = "linear"
data = "hyperplane"
lr = 0.0001
batch-size = $kBatch
steps = $kSteps
trace = "off"
${1:-}
EOF
}
# shellcheck disable=SC2034  # the scripts that source this use it
readonly kSlow='delay = "rank=0:40ms"'

# in_progress FOLDER: rank 0 has written some steps; by then all processes have read job.toml.
in_progress() {
  [[ -e $1/metrics.csv ]] && (($(grep -c '^0,' "$1/metrics.csv") >= 20))
}

# expect_line FILE REGEX
expect_line() { grep -E -q -- "$2" "$1" || fail "a line with '$2' in $1"; }

# expect_value FOLDER KEY VALUE: of its summary.json.
expect_value() {
  local found
  [[ -e $1/summary.json ]] || fail "a file $1/summary.json"
  found=$(sed -n "s/^  \"$2\": \([^,]*\),\{0,1\}\$/\1/p" "$1/summary.json")
  [[ $found == "$3" ]] || fail "\"$2\": $3 in $1/summary.json, which says '$found'"
}

# expect_one_summary FILE: the output of one run by all processes, not of a run by each of them.
expect_one_summary() {
  local count
  count=$(grep -c '{"algorithm":' "$1" || true)
  ((count == 1)) || fail "one summary in $1, found $count"
  expect_line "$1" "\"workers\":$kProcesses,"
}

# expect_complete FOLDER: the run of all processes took each of its steps once.
expect_complete() {
  local rows=$((kProcesses * kSteps)) found different
  awk -F, 'NR > 1 && $8 != "" { print $1, $3 }' "$1/metrics.csv" >steps.txt  # without validations
  expect_value "$1" workers "$kProcesses"
  expect_value "$1" steps "$kSteps"
  expect_value "$1" samples $((rows * kBatch))
  expect_value "$1" interrupted false
  found=$(wc -l <steps.txt)
  different=$(sort -u steps.txt | wc -l)
  ((found == rows && different == rows)) ||
    fail "$rows rows of steps in $1/metrics.csv, all different; found $found, $different different"
}

# expect_stopped FOLDER: the run ended before its last step, with a checkpoint of all ranks.
expect_stopped() {
  local rank rows
  for ((rank = 0; rank < kProcesses; ++rank)); do
    [[ -s $1/checkpoint/latest/rank-000$rank.pt ]] || fail "a checkpoint of rank $rank in $1"
  done
  expect_value "$1" interrupted true
  rows=$(grep -c '^0,' "$1/metrics.csv")
  ((rows < kSteps)) || fail "a stop before the last step in $1, but rank 0 took $rows"
}

# remember FOLDER, before the signal, and expect_resumed FOLDER: the run took all steps, but the first ones
# only once, and ended with the model of a run that was not stopped. The times in a row differ from run to
# run: a run that began anew has other rows.
remember() { awk -F, 'NR > 1 && $3 < 15' "$1/metrics.csv" >"$1.remembered"; }
expect_resumed() {
  local before kept
  expect_complete "$1"
  before=$(wc -l <"$1.remembered")
  kept=$(grep -c -x -F -f "$1.remembered" "$1/metrics.csv" || true)
  ((before > 0 && kept == before)) ||
    fail "the first $before rows of $1/metrics.csv to be those from before the signal, found $kept"
  cmp "$1/model.pt" whole/model.pt || fail "the model of a run that was not stopped in $1/model.pt"
}

# print_files FILE…: the ends of those that are not empty.
print_files() {
  local file
  for file in "$@"; do
    if [[ -s $file ]]; then
      printf -- '---- %s\n' "$file"
      tail -n 60 -- "$file"
    fi
  done >&2
}

# stop_process ID…: SIGTERM, and SIGKILL for those that do not end in 10 s.
stop_process() {
  local id deadline=$((SECONDS + 10))
  for id in "$@"; do
    kill -TERM "$id" 2>/dev/null
    while ! gone "$id" && ((SECONDS < deadline)); do sleep 0.1; done
    kill -KILL "$id" 2>/dev/null
    wait "$id" 2>/dev/null
  done
}

# Daemons leave the process group and the session of the script; a variable of the environment shows
# whose they are.
kill_the_rest() {
  local file id
  for file in /proc/[0-9]*/environ; do
    if grep -q -z -x -F "SCHEDULER_TEST_FOLDER=$kFolder" "$file" 2>/dev/null; then
      id=${file#/proc/}
      kill -KILL "${id%/environ}" 2>/dev/null
    fi
  done
}

finish() {
  local code=$?
  trap - EXIT
  trap '' INT TERM HUP
  set +e
  if ((code != 0 && code != kSkipped)); then print_logs; fi
  stop_daemons
  kill_the_rest
  cd /
  rm -rf -- "$kFolder"
  exit "$code"
}

# A scheduler that runs this script, and options of the user, are not part of the test.
for name in $(compgen -e); do
  case $name in
    SLURM* | SBATCH_* | SCANCEL_* | SRUN_* | OMPI_* | PMI* | GRAPEVINE_* | MASTER_* | RANK | WORLD_SIZE | \
      LOCAL_RANK | LOCAL_WORLD_SIZE | TORCHELASTIC_* | OUT) unset "$name" ;;
  esac
done

[[ -x ${1:-} ]] || fail "the path of the executable grapevine as the first argument"
kGrapevine=$(realpath -- "$1")
# shellcheck disable=SC2034  # the scripts that source this use it
kExamples=$(realpath -- "$(dirname -- "${BASH_SOURCE[0]}")/../../apps/examples/cluster")
kFolder=$(mktemp -d "${TMPDIR:-/tmp}/grapevine.XXXXXX")
export SCHEDULER_TEST_FOLDER=$kFolder
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
cd -- "$kFolder"
mkdir bin
ln -s -- "$kGrapevine" bin/grapevine
export PATH=$kFolder/bin:$PATH:/usr/sbin:/sbin
