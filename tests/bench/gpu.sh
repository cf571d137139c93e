#!/usr/bin/env bash
# tests/bench/gpu.sh [FILE]: builds, checks and times what runs on CUDA GPUs, in less than ten minutes,
# and writes the tables of docs/performance.md as Markdown to FILE (build-cuda/gpu.md):
#   the kernels against the bandwidth of a copy in the same run, and torch.topk on the same data, where
#   python3 has torch with CUDA;
#   resnet50 on synthetic ImageNet shapes, images/s and how busy the GPUs are, without the first steps. On
#   the first GPU: one worker by precision and layout, and with CUDA graphs; two workers by where their
#   models are, and with compressed sums. On all GPUs, at most eight, where there are several: a worker on
#   each, in one process and in several; and one worker on all of them, whose gradients NCCL sums, likewise.
# How busy the GPUs are: by the events of the program (gpu_busy in summary.json), and by nvidia-smi.
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
readonly kSteps=120 kWarmUp=20 kBatch=64 kMostGpus=8
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

# Utilization in percent, sampled while all ranks are past the warm-up and none has ended. $1: metrics.csv,
# $2: the run's process, $3: its ranks, $4: its GPUs.
sample_utilization() {
  local step
  while kill -0 "$2" 2>/dev/null; do
    step=$(reached "$1" "$3")
    if ((step >= kWarmUp && step < kSteps - 2)); then
      nvidia-smi -i "$4" --query-gpu=utilization.gpu --format=csv,noheader,nounits
    fi
    sleep 0.1
  done
}

# Images per second of the steps after the first, in which cuDNN is loaded and pages are locked.
# $1: metrics.csv, $2: samples of a rank's step.
images_per_second() {
  awk -F, -v first="$kWarmUp" -v batch="$2" '
    FNR > 1 && $4 != "" && $3 >= first { if (!($1 in begin)) { begin[$1] = $4; from[$1] = $3 }
                                         end[$1] = $4; to[$1] = $3 }
    END {
      for (r in begin) if (end[r] > begin[r]) rate += batch * (to[r] - from[r]) / (end[r] - begin[r])
      printf "%.0f\n", rate
    }' "$1"
}

# The mean of all ranks, of the steps after the first 20. $1: summary.json.
busy_by_events() {
  tr -d ' \n' <"$1" | sed -n 's/.*"gpu_busy":{"mean":\([0-9.eE+-]*\).*/\1/p' |
    awk '{ printf "%.0f %%", 100 * $1; known = 1 } END { if (!known) printf "not measured" }'
}

# $1: samples of the utilization.
busy_by_driver() {
  awk '$1 != "" { sum += $1; n++ } END { printf n ? sprintf("%.0f %%", sum / n) : "not sampled" }' "$1"
}

# row NAME GPUS RANKS BATCH LINE COMMAND…: a row of a table, one run. GPUs: their numbers; BATCH: samples of
# a rank's step; LINE: what its log must say, or nothing; COMMAND: `train …`, to which options are added.
row() {
  local name=$1 gpus=$2 ranks=$3 batch=$4 line=$5 out run
  shift 5
  if (($(limit 150) < kShortest)); then
    table "| $name | left out: no time was left | | |"
    return
  fi
  say "$name"
  out=$(mktemp -d -p "$work")
  # First as a user ends a job: `launch` then ends its processes.
  GRAPEVINE_LOG_LEVEL=info CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=$gpus \
    timeout -k 10 "$(limit 150)" "$kGrapevine" "$@" --model resnet50 --data noise --batch-size "$batch" \
    --steps "$kSteps" --device cuda --validate end --trace off --out "$out/run" >"$out/log" 2>&1 &
  run=$!
  sample_utilization "$out/run/metrics.csv" "$run" "$ranks" "$gpus" >"$out/utilization"
  if ! wait "$run"; then
    table "| $name | failed: $(tail -n 1 "$out/log") | | |"
    failed=yes
  elif [[ -n $line ]] && ! grep -q "$line" "$out/log"; then
    table "| $name | failed: its log has no line '$line' | | |"
    failed=yes
  else
    table "| $name | $(images_per_second "$out/run/metrics.csv" "$batch") | $(
      busy_by_events "$out/run/summary.json"
    ) | $(busy_by_driver "$out/utilization") |"
  fi
}

# on_first NAME WORKERS OPTION…: a row, on the first GPU.
on_first() { row "$1" 0 "$2" "$kBatch" '' train --workers "${@:2}"; }

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
  header 'resnet50, 1 worker'
  local -a fast=(--precision bf16 --channels-last)
  on_first 'fp32' 1 --algorithm ar --precision fp32
  on_first 'tf32' 1 --algorithm ar --precision tf32
  on_first 'bf16' 1 --algorithm ar --precision bf16
  on_first 'bf16, channels-last' 1 --algorithm ar "${fast[@]}"
  on_first 'bf16, channels-last, cudnn-benchmark' 1 --algorithm ar "${fast[@]}" --cudnn-benchmark
  on_first 'bf16, channels-last, cudnn-benchmark, cuda-graphs' 1 --algorithm ar "${fast[@]}" \
    --cudnn-benchmark --cuda-graphs
}

# $1: of the first column.
header() { table '' "| $1 | images/s | GPU at work, by events | by nvidia-smi |" '|---|---|---|---|'; }

readonly -a kFast=(--precision bf16 --channels-last --cudnn-benchmark)

# Optimizer, folding and de-biasing run on the CPU with models in the host's memory: the rate of an exchange
# in no step is the same with it and without, while the GPU waits. So there are the other columns.
time_exchanges() {
  header 'resnet50, bf16, 2 workers on one GPU'
  local place
  for place in host device; do
    on_first "osgp, models on the $place" 2 --algorithm osgp --peers "$place" "${kFast[@]}"
    on_first "osgp without exchange, models on the $place" 2 --algorithm osgp --peers "$place" \
      --set "wiring.local_steps=$kSteps" "${kFast[@]}"
  done
  on_first 'ar, models on the device' 2 --algorithm ar --peers device "${kFast[@]}"
  on_first 'ar in int8, models on the device' 2 --algorithm ar --peers device --set wiring.compress=int8 \
    "${kFast[@]}"
  on_first 'ar, top-k of 0.001, models on the device' 2 --algorithm ar --peers device \
    --set wiring.compress=top-k --set wiring.density=0.001 "${kFast[@]}"
}

# The rate of N GPUs with an exchange beside that without: what the exchange costs. $1: GPUs.
time_several() {
  local n=$1 gpus place
  gpus=$(seq -s , 0 $((n - 1)))
  header "resnet50, bf16, $n GPUs"
  each() { row "$1" "$gpus" "$n" "$kBatch" '' "${@:2}" "${kFast[@]}"; }
  together() { row "$1" "$gpus" 1 $((n * kBatch)) 'gradients are summed by NCCL' "${@:2}" "${kFast[@]}"; }
  each 'a worker on each, osgp without exchange' train --workers "$n" --algorithm osgp --peers device \
    --set "wiring.local_steps=$kSteps"
  for place in device host; do
    each "a worker on each, osgp, models on the $place" train --workers "$n" --algorithm osgp \
      --peers "$place"
  done
  each 'a worker on each, ar' train --workers "$n" --algorithm ar --peers device
  each 'a worker on each, a process for each, osgp' launch -n "$n" -- train --workers "$n" \
    --algorithm osgp --peers device
  together 'one worker on all, NCCL' train --workers 1 --devices-per-worker "$n" --algorithm osgp \
    --peers device
  together 'one worker on all, a process for each, NCCL' launch -n "$n" -- train \
    --processes-per-worker "$n" --algorithm osgp --peers device
}

failed=
time_kernels
if [[ ! -x $kGrapevine ]]; then
  table '' "resnet50: left out, there is no $kGrapevine (docs/cuda-kernels.md says how to build it with CUDA)."
else
  gpus=$(gpu_count)
  gpus=$((gpus < kMostGpus ? gpus : kMostGpus))
  # Where there are several, what only they can show comes first: the time may end before the rest.
  if ((gpus > 1)); then time_several "$gpus"; fi
  time_precisions
  time_exchanges
  if ((gpus < 2)); then table '' 'Several GPUs: left out, there is one.'; fi
fi
cat "$work/tables"
cp "$work/tables" "$kTables"
say "the tables are in $kTables, for docs/performance.md"
[[ -z $failed ]] || die "a run failed: its row in $kTables says why"
