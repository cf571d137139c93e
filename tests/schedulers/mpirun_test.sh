#!/usr/bin/env bash
# tests/schedulers/mpirun_test.sh GRAPEVINE: `grapevine train` under a real Open MPI, on this host.
# Exit codes: 0, 1 after a failed expectation, 77 where mpirun is not there or another MPI's.
set -euo pipefail

running=()  # the id of an mpirun
print_logs() { print_files ./*.out ./*.err; }
stop_daemons() { stop_process "${running[@]}"; }
# shellcheck source=tests/schedulers/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

need mpirun openmpi-bin
[[ $(bounded mpirun --version) == *'Open MPI'* ]] || skip "mpirun is not Open MPI's (Debian: openmpi-bin)"

# Three processes on however few processors, also in a container, whose user is root.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
# After SIGTERM, mpirun waits for this many seconds, sends SIGTERM, waits again, and sends SIGKILL. Each process
# that ends in the second wait shortens it by up to a second: with the default, 1, process 0 is killed as
# soon as another process has ended.
export OMPI_MCA_odls_base_sigkill_timeout=10
printf 'localhost slots=%s\n' "$kProcesses" >hosts

# start FOLDER [OPTIONS of train]: the example's script in the background, until it is in progress.
start() {
  local folder=$1
  shift
  MASTER_PORT=$(unused_port 30000)
  export MASTER_PORT
  background "$kExamples/mpirun.sh" hosts "$kProcesses" job.toml --out "$folder" "$@" \
    >"$folder.out" 2>"$folder.err" </dev/null
  running=("$!")
  within "steps in $folder" in_progress "$folder"
  remember "$folder"
}

# Sets `code` to the exit code of what `start` started.
await_end() {
  within "the end of mpirun" gone "${running[0]}"
  code=0
  wait "${running[0]}" || code=$?
  running=()
}

say "mpirun, from a shell"
write_job
bounded mpirun -n "$kProcesses" grapevine train job.toml --threads 1 --out whole --json \
  >whole.out 2>whole.err </dev/null || fail "exit code 0 of mpirun, found $?"
expect_one_summary whole.out
expect_complete whole

say "a job that gets SIGTERM, then a second one that resumes"
write_job "$kSlow"
start stopped --threads 1
kill -TERM "${running[0]}"
await_end
# mpirun itself ends with 1 after SIGTERM.
((code != 0)) || fail "another exit code than 0 of mpirun after SIGTERM"
expect_line stopped.err '^error: stopped by request; resume with --resume stopped$'
expect_stopped stopped
write_job
unset MASTER_PORT
bounded mpirun -n "$kProcesses" grapevine train job.toml --threads 1 --out stopped --resume stopped --json \
  >resumed.out 2>resumed.err </dev/null || fail "exit code 0 of the job that resumes, found $?"
expect_one_summary resumed.out
expect_resumed stopped

say "a job that stops after SIGUSR1"
write_job "$kSlow"
# shellcheck disable=SC2016  # the requeue command's own shell expands it
start asked --threads 1 --requeue-command 'echo "$GRAPEVINE_REQUEUE_FOLDER" >>requeued'
kill -USR1 "${running[0]}"
await_end
((code == 4)) || fail "exit code 4, that of process 0, of mpirun after SIGUSR1; found $code"
expect_line asked.err '^error: stopped by request; resume with --resume asked$'
expect_stopped asked
[[ $(cat requeued) == asked ]] || fail "one call of the requeue command, with the folder of the run"
say "done"
