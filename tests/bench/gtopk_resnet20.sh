#!/usr/bin/env bash
# tests/bench/gtopk_resnet20.sh IMAGES [STEPS [SEEDS [WORKERS]]]: resnet20 on CIFAR-10 images, dense and
# by gTop-k at 1 % of the entries (Shi et al., ICDCS 2019), with a warm-up of the density over the
# first fifth of the run. IMAGES is a folder as --data images:DIR wants it: train/ and test/, a folder
# for each class. Prints the mean training loss of the last 20 steps, the test accuracy and the bytes
# sent of both, for each seed. Needs a build.
set -euo pipefail
images=$(cd -- "${1:?give a folder of images}" && pwd)
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
steps=${2:-300} seeds=${3:-3} workers=${4:-2}
grapevine=build/bin/grapevine
[[ -x ${GRAPEVINE:=$grapevine} ]] || {
  echo "error: $GRAPEVINE is not there: run scripts/demo or scripts/test first" >&2
  exit 1
}
out=$(mktemp -d "${TMPDIR:-/tmp}/grapevine-gtopk-XXXXXX")
trap 'rm -rf -- "$out"' EXIT

summary() { sed -n 's/.*"'"$1"'": *\([-0-9.e+]*\).*/\1/p' "$2/summary.json" | head -n 1; }

train() { # NAME OPTIONS…
  local run=$out/$1
  shift
  "$GRAPEVINE" train --model resnet20 --data "images:$images" --workers "$workers" --threads 1 \
    --batch-size 8 --lr 0.05 --steps "$steps" --trace off --validate end --json --out "$run" "$@" \
    >/dev/null 2>"$run.log" || { cat "$run.log" >&2; exit 1; }
}

# Two stages of a tenth of the run each. An epoch is the whole data set, over all workers.
epochs=$(awk -v s="$steps" -v w="$workers" -v n="$(find "$images/train" -type f | wc -l)" \
  'BEGIN { print s * w * 8 / n }')
stage=$(awk -v e="$epochs" 'BEGIN { print e / 10 }')

printf '%-5s %-7s %9s %9s %10s %12s %9s\n' seed what loss 'gap' 'accuracy' 'sent, MB' 'time, s'
for ((seed = 1; seed <= seeds; ++seed)); do
  train "dense-$seed" --algorithm ar --seed "$seed"
  train "gtopk-$seed" --algorithm gtopk --seed "$seed" --set wiring.density=0.01 \
    --set "wiring.density_warmup=0.25,0.0625@$stage"
  for what in dense gtopk; do
    run=$out/$what-$seed
    printf '%-5s %-7s %9.3f %9.3f %10.3f %12.1f %9.1f\n' "$seed" "$what" "$(summary final_loss "$run")" \
      "$(awk -v a="$(summary final_loss "$run")" -v b="$(summary final_loss "$out/dense-$seed")" \
        'BEGIN { print a - b }')" \
      "$(summary test_accuracy "$run")" "$(awk -v b="$(summary bytes_sent "$run")" 'BEGIN { print b / 1e6 }')" \
      "$(summary wall_seconds "$run")"
  done
done
