#!/usr/bin/env bash
# torchrun's variables by hand, where neither torchrun nor anything else starts processes. With torchrun:
# torchrun --no_python --nproc_per_node 4 grapevine train …. On each machine, with its number:
#   NODE=0 NODES=2 PER_NODE=4 MASTER_ADDR=node1 ./torchrun.sh [options of train]
set -euo pipefail

per_node=${PER_NODE:-2}
export MASTER_ADDR=${MASTER_ADDR:-127.0.0.1} MASTER_PORT=${MASTER_PORT:-29400}
export WORLD_SIZE=$((${NODES:-1} * per_node)) LOCAL_WORLD_SIZE=$per_node

# The first process that ends by an error or by Ctrl-C ends the others of this machine.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
for ((i = 0; i < per_node; i++)); do
  RANK=$((${NODE:-0} * per_node + i)) LOCAL_RANK=$i grapevine train --transport tcp "$@" &
done
for ((i = 0; i < per_node; i++)); do wait -n; done
