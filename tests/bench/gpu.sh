#!/usr/bin/env bash
# tests/bench/gpu.sh [FILE]: builds, checks and times what runs on the first CUDA GPU, in less than ten
# minutes, and writes the tables of docs/performance.md as Markdown to FILE (build-cuda/gpu.md):
#   the kernels against the bandwidth of a copy in the same run, and torch.topk on the same data, where
#   python3 has torch with CUDA;
#   resnet50 on synthetic ImageNet shapes, images/s and how busy the GPU is, without the first steps: one
#   worker by precision and layout, and with CUDA graphs; two workers by where their models are, and with
#   compressed sums.
# Needs nvcc and a GPU, and for resnet50 a grapevine with CUDA; what is left out or fails has a
# line in FILE that says why, also where the time is over.
# Environment: GRAPEVINE_CUDA_BUILD (folder, build-cuda), GRAPEVINE (the executable:
# build-gpu/bin/grapevine, or build/bin/grapevine where that is not built).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

case ${1:-} in
  -h | --help) usage "${BASH_SOURCE[0]}" && exit ;;
  -*) die "tests/bench/gpu.sh knows --help and the file for its tables, not '$1'" ;;
esac
# The build for GPUs, where there is one: the other one runs on CPUs alone.
for_gpus=build-gpu/bin/grapevine
[[ -x $for_gpus ]] || for_gpus=build/bin/grapevine
readonly kGrapevine=${GRAPEVINE:-$for_gpus}
readonly kSteps=120 kWarmUp=20 kBatch=64
readonly kEnd=570 kShortest=20 # seconds: of all runs together; with less left no run begins

configure_cuda
build_cuda cuda_kernels_bench
readonly kTables=${1:-$kCudaBuild/gpu.md}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/tables"
SECONDS=0

table() { printf '%s\n' "$@" >>"$work/tables"; }

# Seconds that a run may take: at most $1, and what is left of all.
limit() {
  local left=$((kEnd - SECONDS))
  printf '%s\n' $((left < $1 ? left : $1))
}

# The step that all ranks of a run have reached; -1 where fewer than $2 have rows in metrics.csv, $1.
reached() {
  awk -F, -v ranks="$2" '
    NR > 1 && $7 != "" { last[$1] = $3 }
    END { for (r in last) if (n++ == 0 || last[r] < least) least = last[r]; print n < ranks ? -1 : least }' \
    "$1" 2>/dev/null || printf -- '-1\n'
}

# Utilization in percent, sampled while all workers are past the warm-up and none has ended. $1: metrics.csv,
# $2: the run's process, $3: its workers.
sample_utilization() {
  local step
  while kill -0 "$2" 2>/dev/null; do
    step=$(reached "$1" "$3")
    if ((step >= kWarmUp && step < kSteps - 2)); then
      nvidia-smi -i 0 --query-gpu=utilization.gpu --format=csv,noheader,nounits
    fi
    sleep 0.1
  done
}

# "images/s | GPU at work" of the steps after the first, in which cuDNN is loaded and pages are locked.
# $1: samples of the utilization, $2: metrics.csv.
figures() {
  awk -F, -v first="$kWarmUp" -v batch="$kBatch" '
    FNR == 1 { file++ }
    file == 1 && $1 != "" { busy += $1; samples++ }
    file == 2 && FNR > 1 && $4 != "" && $3 >= first { if (!($1 in begin)) { begin[$1] = $4; from[$1] = $3 }
                                          end[$1] = $4; to[$1] = $3 }
    END {
      for (r in begin) if (end[r] > begin[r]) rate += batch * (to[r] - from[r]) / (end[r] - begin[r])
      printf "%.0f | %s\n", rate, samples ? sprintf("%.0f %%", busy / samples) : "not sampled"
    }' <(printf '\n'; cat "$1") "$2"
}

# A row of a table: one run on the first GPU. $1: its name, $2: workers; the rest: options.
row() {
  local name=$1 workers=$2 out run
  shift 2
  if (($(limit 150) < kShortest)); then
    table "| $name | left out: no time was left | |"
    return
  fi
  say "$name"
  out=$(mktemp -d -p "$work")
  CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 timeout -s KILL "$(limit 150)" "$kGrapevine" train \
    --workers "$workers" --model resnet50 --data noise --batch-size "$kBatch" --steps "$kSteps" \
    --device cuda --validate end --trace off "$@" --out "$out/run" >"$out/log" 2>&1 &
  run=$!
  sample_utilization "$out/run/metrics.csv" "$run" "$workers" >"$out/utilization"
  if wait "$run"; then
    table "| $name | $(figures "$out/utilization" "$out/run/metrics.csv") |"
  else
    table "| $name | failed: $(tail -n 1 "$out/log") | |"
    failed=yes
  fi
}

time_kernels() {
  say "kernels"
  timeout -s KILL 120 "$kCudaBuild/bin/cuda_kernels_bench" >>"$work/tables"
  say "torch.topk"
  if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    timeout -s KILL 60 python3 tests/bench/gpu_topk.py | sed '/^$/d' >>"$work/tables"
  else
    table '' 'torch.topk: left out, python3 has no torch with CUDA.'
  fi
}

time_precisions() {
  table '' '| resnet50, 1 worker | images/s | GPU at work |' '|---|---|---|'
  local -a fast=(--precision bf16 --channels-last)
  row 'fp32' 1 --algorithm ar --precision fp32
  row 'tf32' 1 --algorithm ar --precision tf32
  row 'bf16' 1 --algorithm ar --precision bf16
  row 'bf16, channels-last' 1 --algorithm ar "${fast[@]}"
  row 'bf16, channels-last, cudnn-benchmark' 1 --algorithm ar "${fast[@]}" --cudnn-benchmark
  row 'bf16, channels-last, cudnn-benchmark, cuda-graphs' 1 --algorithm ar "${fast[@]}" --cudnn-benchmark \
    --cuda-graphs
}

# Optimizer, folding and de-biasing run on the CPU with models in the host's memory: the rate of an exchange
# in no step is the same with it and without, while the GPU waits. So there is the second column.
time_exchanges() {
  table '' '| resnet50, bf16, 2 workers on one GPU | images/s | GPU at work |' '|---|---|---|'
  local -a options=(--precision bf16 --channels-last --cudnn-benchmark)
  local place
  for place in host device; do
    row "osgp, models on the $place" 2 --algorithm osgp --peers "$place" "${options[@]}"
    row "osgp without exchange, models on the $place" 2 --algorithm osgp --peers "$place" \
      --set "wiring.local_steps=$kSteps" "${options[@]}"
  done
  row 'ar, models on the device' 2 --algorithm ar --peers device "${options[@]}"
  row 'ar in int8, models on the device' 2 --algorithm ar --peers device --set wiring.compress=int8 \
    "${options[@]}"
  row 'ar, top-k of 0.001, models on the device' 2 --algorithm ar --peers device \
    --set wiring.compress=top-k --set wiring.density=0.001 "${options[@]}"
}

failed=
time_kernels
if [[ ! -x $kGrapevine ]]; then
  table '' "resnet50: left out, there is no $kGrapevine (docs/cuda-kernels.md says how to build it with CUDA)."
else
  time_precisions
  time_exchanges
fi
cat "$work/tables"
cp "$work/tables" "$kTables"
say "the tables are in $kTables, for docs/performance.md"
[[ -z $failed ]] || die "a run failed: its row in $kTables says why"
