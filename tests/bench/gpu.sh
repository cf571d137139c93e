#!/usr/bin/env bash
# tests/bench/gpu.sh: builds, checks and times what runs on a CUDA GPU, in less than ten minutes, and
# prints tables: the kernels against the bandwidth of a copy in the same run; torch.topk on the same
# data, where python3 has torch with CUDA; images/s of resnet50 (synthetic ImageNet shapes) and how busy
# the GPU is, for two OSGP workers with and without exchange, where build/bin/grapevine was built with CUDA.
# Needs nvcc and a GPU; the rest is left out, with a line that says why.
# Environment: GRAPEVINE_CUDA_BUILD (folder, build-cuda), GRAPEVINE (the executable, build/bin/grapevine).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

case ${1:-} in
  '') ;;
  -h | --help) usage "${BASH_SOURCE[0]}" && exit ;;
  *) die "tests/bench/gpu.sh takes no arguments, not '$1'" ;;
esac
readonly kGrapevine=${GRAPEVINE:-build/bin/grapevine}

configure_cuda
build_cuda cuda_kernels_bench
say "kernels"
timeout -s KILL 180 "$kCudaBuild/bin/cuda_kernels_bench"

say "torch.topk"
if python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  timeout -s KILL 90 python3 tests/bench/gpu_topk.py
else
  say "left out: python3 has no torch with CUDA"
fi

readonly kSteps=220 kWarmUp=20 kBatch=64

# The step that all ranks of a run have reached: the last column that is read of metrics.csv.
reached() {
  awk -F, 'NR > 1 && $7 != "" { last[$1] = $3 }
           END { for (r in last) if (n++ == 0 || last[r] < least) least = last[r]; print n < 2 ? -1 : least }' \
    "$1" 2>/dev/null || printf -- '-1\n'
}

# Utilization in percent, sampled while all workers are past the warm-up and none has ended. $1: metrics.csv,
# $2: the run's process.
sample_utilization() {
  local step
  while kill -0 "$2" 2>/dev/null; do
    step=$(reached "$1")
    if ((step >= kWarmUp && step < kSteps - 2)); then
      nvidia-smi -i 0 --query-gpu=utilization.gpu --format=csv,noheader,nounits
    fi
    sleep 0.1
  done
}

# Prints images per second and the share of time in which the GPU was at work, of one run of two workers
# on the first GPU, without its first steps, in which cuDNN is loaded and pages are locked.
# $1: steps between exchanges.
two_workers() {
  local out run
  out=$(mktemp -d)
  CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0 timeout -s KILL 150 "$kGrapevine" train \
    --algorithm osgp --workers 2 --model resnet50 --data noise --batch-size "$kBatch" --steps "$kSteps" \
    --device cuda --precision bf16 --channels-last --cudnn-benchmark --validate end --trace off \
    --set "wiring.local_steps=$1" --out "$out/run" >"$out/log" 2>&1 &
  run=$!
  sample_utilization "$out/run/metrics.csv" "$run" >"$out/utilization"
  wait "$run" || die "the run failed: $(tail -n 1 "$out/log")"
  awk -F, -v first="$kWarmUp" -v batch="$kBatch" '
    FNR == 1 { file++ }
    file == 1 { busy += $1; samples++ }
    file == 2 && FNR > 1 && $4 != "" && $3 >= first { if (!($1 in begin)) { begin[$1] = $4; from[$1] = $3 }
                                          end[$1] = $4; to[$1] = $3 }
    END {
      for (r in begin) if (end[r] > begin[r]) rate += batch * (to[r] - from[r]) / (end[r] - begin[r])
      printf "%.0f | %s", rate, samples ? sprintf("%.0f %%", busy / samples) : "not sampled"
    }' "$out/utilization" "$out/run/metrics.csv"
  rm -rf "$out"
}

say "resnet50, OSGP, two workers on one GPU"
if [[ ! -x $kGrapevine ]] || ! "$kGrapevine" train --help | grep -q -- --precision; then
  say "left out: $kGrapevine is not there or was built without CUDA (docs/cuda-kernels.md says how)"
  exit 0
fi
with=$(two_workers 1)
without=$(two_workers 1000)
printf '\n| resnet50, 2 workers | images/s | GPU at work |\n|---|---|---|\n'
printf '| exchange in each step | %s |\n| none until the end | %s |\n' "$with" "$without"
# Optimizer, folding and de-biasing run on the CPU in both: the first column alone would not show a GPU
# that waits for them.
