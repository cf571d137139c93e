#!/usr/bin/env bash
# mpirun.sh HOSTFILE PROCESSES [options of train]: Open MPI starts the processes; their messages go over
# a transport of Grapevine.
set -euo pipefail

hostfile=$1
processes=$2
shift 2

# Rank 0 runs on the first host.
MASTER_ADDR=$(awk '!/^[ \t]*(#|$)/ { print $1; exit }' "$hostfile")
export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29400}

# mpirun waits for this many seconds before it passes SIGTERM on, and again before SIGKILL. Each process that
# ends in between takes up to a second off; the default, 1, kills rank 0 before it has written all.
export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-30}

exec mpirun --hostfile "$hostfile" -n "$processes" -x MASTER_ADDR -x MASTER_PORT \
  grapevine train --transport tcp "$@"
