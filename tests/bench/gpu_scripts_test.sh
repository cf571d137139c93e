#!/usr/bin/env bash
# tests/bench/gpu_scripts_test.sh: tests/bench/gpu.sh and scripts/test-gpu with stand-ins in the place of the
# GPUs, of cmake, of what they build and of the training program: which runs they make with one GPU and with
# several, what their tables say, and that a run which fails, or without NCCL where it is needed, is a failure.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
readonly folder
export STAND_INS=$folder GRAPEVINE_CUDA_BUILD=$folder/cuda GRAPEVINE_GPU_BUILD=$folder/gpu
mkdir -p "$folder/path" "$folder/cuda/bin" "$folder/gpu/bin"

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# stand_in PATH: a script, from the standard input.
stand_in() {
  { printf '#!/usr/bin/env bash\n' && cat; } >"$1"
  chmod +x "$1"
}

stand_in "$folder/path/nvidia-smi" <<'SCRIPT'
case $* in
  *utilization.gpu*) echo 77 ;;
  *compute_cap*) echo 9.0 ;;
  *) for ((i = 0; i < $(<"$STAND_INS/gpus"); ++i)); do echo 'A GPU, 1.0'; done ;;
esac
SCRIPT
stand_in "$folder/path/nvcc" </dev/null
stand_in "$folder/path/python3" <<<'exit 1'
stand_in "$folder/path/cmake" </dev/null
stand_in "$folder/path/compute-sanitizer" </dev/null
printf 'GTest_DIR:PATH=/usr\n' >"$folder/cuda/CMakeCache.txt"
printf 'GRAPEVINE_BUILDS_TORCH_CUDA:INTERNAL=TRUE\n' >"$folder/gpu/CMakeCache.txt"
stand_in "$folder/cuda/bin/cuda_kernels_bench" <<<'echo "| kernel | GB/s |"'
for name in cuda/bin/gpu_cuda_test gpu/bin/gpu_test gpu/bin/gpu_torch_cuda_test; do
  stand_in "$folder/$name" </dev/null
done
# It notes its command, and writes what a run of steps of a second each writes. $STAND_INS/fails: a part of
# the commands that fail; $STAND_INS/silent: of those without a line about NCCL.
stand_in "$folder/gpu/bin/grapevine" <<'SCRIPT'
printf '%s GPUs=%s\n' "$*" "${CUDA_VISIBLE_DEVICES:-all}" >>"$STAND_INS/commands"
is() { [[ -s $STAND_INS/$1 ]] && grep -q -f "$STAND_INS/$1" <<<"$command"; }
command=$* workers=1 steps=0
while (($# > 0)); do
  case $1 in
    --out) out=$2 ;;
    --workers) workers=$2 ;;
    --steps) steps=$2 ;;
  esac
  shift
done
if is fails; then
  echo 'error: out of memory' >&2
  exit 1
fi
is silent || echo "gradients are summed by NCCL; the ranks keep their models on the workers' GPUs" >&2
mkdir -p "$out"
awk -v ranks="$workers" -v steps="$steps" 'BEGIN {
  print "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s"
  for (s = 0; s < steps; s++) for (r = 0; r < ranks; r++) print r ",0," s "," s + 1 ",1,0,0" }' >"$out/metrics.csv"
printf '{\n "steps": 1,\n "gpu_busy": {\n  "mean": 0.625,\n  "ranks": {"0": 0.625}\n }\n}\n' >"$out/summary.json"
SCRIPT
export PATH=$folder/path:$PATH GRAPEVINE=$folder/gpu/bin/grapevine

# begin GPUS [FAILS [SILENT]]
begin() {
  printf '%s\n' "$1" >"$folder/gpus"
  printf '%s' "${2:-}" >"$folder/fails"
  printf '%s' "${3:-}" >"$folder/silent"
  : >"$folder/commands"
}
bench() { tests/bench/gpu.sh "$folder/tables.md" >"$folder/output" 2>&1; }
checks() { scripts/test-gpu >"$folder/output" 2>&1; }
# expect COUNT PATTERN FILE: so many lines.
expect() {
  local found
  found=$(grep -c -e "$2" "$folder/$3" || true)
  [[ $found == "$1" ]] || fail "$found lines of $3, not $1, have '$2': $(<"$folder/$3")"
}
# runs COUNT PATTERN: so many commands of the program.
runs() { expect "$1" "$2" commands; }

# One GPU: all runs are on it.
begin 1
bench || fail "gpu.sh failed: $(<"$folder/output")"
runs 13 'GPUs=0$'
runs 13 ''
runs 0 'launch'
expect 1 '^| fp32 | 64 | 62 % | \(77 %\|not sampled\) |$' tables.md
expect 7 '^| .* | 128 | 62 % |' tables.md # two workers with 64 images a second each
expect 1 'Several GPUs: left out' tables.md
begin 1
checks || fail "test-gpu failed: $(<"$folder/output")"
runs 7 '--workers 2 '
runs 7 ''

# Several: all of them, at most eight.
for gpus in 2 3 8 16; do
  n=$((gpus < 8 ? gpus : 8))
  half=$((n / 2))
  list=$(seq -s , 0 $((n - 1)))
  begin "$gpus"
  bench || fail "gpu.sh failed: $(<"$folder/output")"
  runs 13 'GPUs=0$'
  runs 7 "GPUs=$list\$"
  runs 4 "^train --workers $n .*--batch-size 64 .*GPUs=$list\$"
  runs 1 "^launch -n $n -- train --workers $n .*--batch-size 64 "
  runs 1 "^train --workers 1 --devices-per-worker $n .*--batch-size $((64 * n)) "
  runs 1 "^launch -n $n -- train --processes-per-worker $n .*--batch-size $((64 * n)) "
  expect 1 "resnet50, bf16, $n GPUs" tables.md
  expect $((n == 2 ? 14 : 7)) "^| .* | $((64 * n)) | 62 % |" tables.md
  begin "$gpus"
  checks || fail "test-gpu failed: $(<"$folder/output")"
  runs 7 "^train --workers $n "
  runs 1 "^launch -n $n -- train --workers $n "
  runs 1 "^train --workers 1 --devices-per-worker $n .*--batch-size $((8 * n)) "
  runs 1 "^launch -n $n -- train --processes-per-worker $n .*--batch-size $((8 * n)) "
  runs $((half > 1 ? 1 : 0)) "^launch -n $((2 * half)) -- train --processes-per-worker $half .*--batch-size $((8 * half)) "
done

# What fails is in the table, and the other runs are made all the same.
begin 4 '--precision tf32'
! bench || fail "gpu.sh passed although a run had failed"
expect 1 '^| tf32 | failed: error: out of memory |' tables.md
runs 20 ''
begin 4 '' '--devices-per-worker 4'
! bench || fail "gpu.sh passed although NCCL had not summed"
expect 1 "^| one worker on all, NCCL | failed: its log has no line" tables.md
begin 4 '' '--devices-per-worker 4'
! checks || fail "test-gpu passed although NCCL had not summed"
expect 1 "error: 3 steps of nccl-on-the-device: no line 'gradients are summed by NCCL'" output
printf 'ok\n'
