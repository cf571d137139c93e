#!/usr/bin/env bash
# tests/bench/hyperplane.sh [EPOCHS]: hyperplane regression of eager-SGD's paper (Li et al. 2020, section 6.2):
# 8,192 dimensions, 32,768 samples, batch 2,048 over 8 ranks, one of them, drawn at each step, slower
# by 200, 300 or 400 ms. Trains with all-reduce and with partial sums in turns, and prints time and
# loss beside the speed-ups of the paper. Needs a build; the machine should do nothing else.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
epochs=${1:-8}
grapevine=build/bin/grapevine
[[ -x ${GRAPEVINE:=$grapevine} ]] || {
  echo "error: $GRAPEVINE is not there: run scripts/demo or scripts/test first" >&2
  exit 1
}
out=$(mktemp -d "${TMPDIR:-/tmp}/grapevine-hyperplane-XXXXXX")
trap 'rm -rf -- "$out"' EXIT

summary() { sed -n 's/.*"'"$1"'": *\([-0-9.e+]*\).*/\1/p' "$2/summary.json" | head -n 1; }

printf '%-7s %-15s %9s %9s %9s %14s %10s\n' delay algorithm 'time, s' speed-up paper 'test loss' staleness
for delay in 200 300 400; do
  case $delay in 200) paper=1.50 ;; 300) paper=1.75 ;; *) paper=2.01 ;; esac
  for algorithm in ar eager-solo eager-majority eager-quorum; do
    run=$out/$delay-$algorithm
    "$GRAPEVINE" train --algorithm "$algorithm" --model linear --data hyperplane --workers 8 --batch-size 256 \
      --epochs "$epochs" --lr 0.05 --momentum 0 --delay "random=1:${delay}ms" --trace off --validate end \
      --json --out "$run" >/dev/null 2>"$run.log" || { cat "$run.log" >&2; exit 1; }
    seconds=$(summary wall_seconds "$run")
    if [[ $algorithm == ar ]]; then base=$seconds; fi
    published=-
    if [[ $algorithm == eager-solo ]]; then published=$paper; fi
    printf '%4s ms %-15s %9.1f %9.2f %9s %14.5f %10.2f\n' "$delay" "$algorithm" "$seconds" \
      "$(awk -v a="$base" -v b="$seconds" 'BEGIN { print a / b }')" "$published" \
      "$(summary test_loss "$run")" "$(sed -n '/"staleness"/,/}/s/.*"mean": *\([-0-9.e+]*\).*/\1/p' "$run/summary.json" | head -n 1)"
  done
done
