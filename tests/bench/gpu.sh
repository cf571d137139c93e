#!/usr/bin/env bash
# tests/bench/gpu.sh: builds, checks and times what runs on a CUDA card, in less than ten minutes, and
# prints tables: the kernels against the bandwidth of a copy in the same run; torch.topk on the same
# data, where python3 has torch with CUDA; images/s of resnet50 (synthetic ImageNet shapes) for
# two OSGP workers on the card with and without exchange, where build/bin/grapevine was built with CUDA.
# Needs nvcc and a card; the rest is left out, with a line that says why.
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

# Prints samples per second of one run of two workers on one card. $1: steps between exchanges.
images_per_second() {
  local out
  out=$(mktemp -d)
  timeout -s KILL 120 "$kGrapevine" train --algorithm osgp --workers 2 --model resnet50 \
    --data noise --batch-size 64 --steps 40 --device cuda --precision bf16 --channels-last \
    --validate end --trace off --set "wiring.local_steps=$1" --out "$out" --json | tail -n 1 |
    sed -n 's/.*"samples_per_second": *\([0-9.]*\).*/\1/p'
  rm -rf "$out"
}

say "resnet50, OSGP, two workers on one card"
if [[ ! -x $kGrapevine ]] || ! "$kGrapevine" train --help | grep -q -- --precision; then
  say "left out: $kGrapevine is not there or was built without CUDA (docs/cuda-kernels.md says how)"
  exit 0
fi
with=$(images_per_second 1)
without=$(images_per_second 1000)
printf '\n| resnet50, 2 workers | images/s |\n|---|---|\n| exchange in each step | %s |\n| none until the end | %s |\n' \
  "$with" "$without"
