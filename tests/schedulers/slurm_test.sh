#!/usr/bin/env bash
# tests/schedulers/slurm_test.sh GRAPEVINE: `grapevine train` under a real SLURM, with a node on this host.
# Controller, node and munge are processes of the user who runs the script, listen on loopback only, and
# keep keys, sockets, state and logs in a temporary folder: no root, and no contact with a SLURM that this
# machine belongs to. The batch script is the one in apps/examples/cluster.
# Exit codes: 0, 1 after a failed expectation, 77 where SLURM is not installed.
set -euo pipefail

daemons=()  # ids of processes, in the order of their start
print_logs() { print_files munged.log slurmctld.log slurmd.log ./*.out ./*.err; }
stop_daemons() {
  local index
  if ((${#daemons[@]} == 3)); then timeout 20 scancel --full --signal=KILL --user="$(id -un)" 2>/dev/null; fi
  for ((index = ${#daemons[@]} - 1; index >= 0; --index)); do stop_process "${daemons[index]}"; done
}
# shellcheck source=tests/schedulers/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

for command in slurmctld slurmd srun sbatch scancel scontrol sinfo; do need "$command" slurm-wlm; done
need munged munge

# start_daemon LOG COMMAND…
start_daemon() {
  local log=$1
  shift
  background "$@" >"$log" 2>&1
  daemons+=("$!")
}

# started COMMAND…: whether the command succeeds. A daemon that has ended cannot run on this machine, which
# says nothing about `train`.
started() {
  local id
  for id in "${daemons[@]}"; do
    if gone "$id"; then
      print_logs
      skip "a daemon of SLURM does not run here: $(tail -q -n 1 ./*.log | tail -n 1)"
    fi
  done
  "$@"
}

write_configuration() {
  local user host
  user=$(id -un)
  host=$(hostname -s)
  # `train` connects to the node by its name.
  getent ahosts "$host" >/dev/null || skip "the host name $host has no address: add it to /etc/hosts"
  # cred_expire: a job that is queued again waits for that long. The first job's number decides about
  # the port of rank 0, which another run of this test may use. config_overrides: three tasks at once, on
  # however few processors.
  cat >slurm.conf <<EOF
ClusterName=grapevine-test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(unused_port 30000)
SlurmdPort=$(unused_port 31000)
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$kFolder/munge/socket,cred_expire=5
StateSaveLocation=$kFolder/state
SlurmdSpoolDir=$kFolder/spool
SlurmctldPidFile=$kFolder/slurmctld.pid
SlurmdPidFile=$kFolder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
FirstJobId=$((1 + RANDOM))
NodeName=$host NodeAddr=127.0.0.1 CPUs=$kProcesses State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES OverSubscribe=YES MaxTime=INFINITE State=UP
EOF
  export SLURM_CONF=$kFolder/slurm.conf
}

start_munge() {
  chmod 755 .  # munged wants every user to be able to reach its socket
  mkdir -m 755 munge
  (umask 077 && head -c 128 /dev/urandom >munge.key)
  # --force: a temporary folder that other users may write to is a warning.
  start_daemon munged.log munged --foreground --force --key-file="$kFolder/munge.key" \
    --socket="$kFolder/munge/socket" --pid-file="$kFolder/munge/pid" --seed-file="$kFolder/munge.seed"
  within "a socket of munged" started test -S munge/socket
}

node_is_idle() { [[ $(timeout 20 sinfo --noheader --format=%T 2>/dev/null) == idle ]]; }

start_slurm() {
  mkdir state spool
  start_daemon slurmctld.log slurmctld -D -i -f "$SLURM_CONF"
  start_daemon slurmd.log slurmd -D -f "$SLURM_CONF"
  within "an idle node" started node_is_idle
}

# submit FOLDER [OPTIONS of train]: prints the number of the job.
submit() {
  local folder=$1
  shift
  OUT=$folder bounded sbatch --parsable --nodes=1 --ntasks-per-node="$kProcesses" --cpus-per-task=1 \
    --time=30 --output=%j.out "$kExamples/slurm-ethernet.sbatch" job.toml "$@"
}

# job_value JOB KEY
job_value() { timeout 20 scontrol --oneliner show job "$1" | tr ' ' '\n' | sed -n "s/^$2=//p"; }
ended() { [[ $(job_value "$1" JobState) =~ ^(BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|TIMEOUT)$ ]]; }
queued_again() { [[ $(job_value "$1" Restarts) == 1 ]]; }

# expect_end JOB STATE CODE:SIGNAL
expect_end() {
  local state code
  within "the end of job $1" ended "$1"
  state=$(job_value "$1" JobState)
  code=$(job_value "$1" ExitCode)
  [[ "$state $code" == "$2 $3" ]] || fail "job $1 to end as $2 $3, found $state $code"
}

# expect_stop_by_request JOB FOLDER: process 0 alone ends with 4.
expect_stop_by_request() {
  expect_line "$1.out" "^error: stopped by request; resume with --resume $2\$"
  expect_line "$1.out" 'task 0: Exited with exit code 4$'
  ! grep -E 'task [1-9].*(Exited|Killed)' "$1.out" || fail "only process 0 to end with another code than 0"
  expect_stopped "$2"
}

write_configuration
start_munge
start_slurm

say "srun, from a shell"
write_job
bounded srun --ntasks="$kProcesses" grapevine train job.toml --threads 1 --out whole --json \
  >whole.out 2>whole.err || fail "exit code 0 of srun, found $?"
expect_one_summary whole.out
expect_complete whole

say "a batch job that gets SIGTERM, then a second job that resumes"
write_job "$kSlow"
job=$(submit stopped)
within "steps of job $job" in_progress stopped
remember stopped
scancel --signal=TERM "$job"
expect_end "$job" FAILED 4:0
expect_stop_by_request "$job" stopped
write_job
job=$(submit stopped --json)
expect_end "$job" COMPLETED 0:0
expect_one_summary "$job.out"
expect_resumed stopped

say "a batch job that is cancelled"
write_job "$kSlow"
job=$(submit cancelled)
within "steps of job $job" in_progress cancelled
scancel "$job"
within "the end of job $job" ended "$job"
expect_line "$job.out" '^error: stopped by request; resume with --resume cancelled$'
expect_stopped cancelled

say "a batch job that gets SIGUSR1 and queues itself again"
write_job "$kSlow"
# shellcheck disable=SC2016  # the job's own shell expands it
job=$(submit again --requeue-command 'scontrol requeue $SLURM_JOB_ID')
within "steps of job $job" in_progress again
remember again
write_job  # for the second start
scancel --signal=USR1 "$job"
within "job $job in the queue again" queued_again "$job"
expect_end "$job" COMPLETED 0:0
expect_resumed again
say "done"
