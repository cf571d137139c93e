#!/usr/bin/env bash
# tests/package/package_test.sh SOURCE BUILD [CMAKE_ARGUMENT…]: installs BUILD into a temporary folder,
# copies the examples out of SOURCE, builds them against the installed package and runs them.
set -euo pipefail

readonly kSource=$1 kBuild=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

say() { printf -- '-- %s\n' "$*"; }
fail() {
  printf 'expected %s\n' "$*" >&2
  exit 1
}
# expect_text FILE PATTERN: the extended regular expression is in the file.
expect_text() { grep -qE -- "$2" "$1" || { cat "$1" >&2; fail "'$2' in $1"; }; }
# expect_same FILE FILE: byte for byte.
expect_same() { cmp -- "$1" "$2" || fail "$1 to be $2, byte for byte"; }
# expect_code CODE COMMAND…: its output is in the file `out`.
expect_code() {
  local wanted=$1 code=0
  shift
  "$@" >out 2>&1 </dev/null || code=$?
  ((code == wanted)) || { cat out >&2; fail "exit code $wanted of '$*', found $code"; }
}

say "install"
cmake --install "$kBuild" --prefix "$work/prefix" >install.log || { cat install.log; exit 1; }
readonly kGrapevine=$work/prefix/bin/grapevine
expect_code 0 "$kGrapevine" --version
for header in algorithms/role.hpp algorithms/lockstep/conformance.hpp apps/program.hpp messages/protocol.hpp; do
  [[ -e prefix/include/grapevine/$header ]] || fail "the header $header"
done
[[ -z $(find prefix/include -name '*.cpp' -o -name '*test*') ]] || fail "headers alone in include/"

# build PROJECT [CMAKE_ARGUMENT…]: in build-PROJECT.
build() {
  local name=$1
  shift
  cmake -S "$name" -B "build-$name" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O0 -DNDEBUG" \
    -DCMAKE_CXX_FLAGS='-Wall -Wextra -Wno-unused-parameter -Werror' "$@" >configure.log 2>&1 || {
    cat configure.log
    fail "$name to be configured"
  }
  cmake --build "build-$name" >build.log 2>&1 || { cat build.log; fail "$name to be built"; }
}
cp -r "$kSource/apps/examples/own_role" "$kSource/apps/examples/own_model" \
  "$kSource/apps/examples/own_wiring" "$kSource/tests/package/engine_only" .
for name in engine_only own_role own_model; do
  say "build $name"
  build "$name" "$@"
done

say "the engine alone"
expect_code 0 build-engine_only/engine_only
expect_text out '^osgp keeps its promises$'

say "simulated runs"
expect_code 0 build-engine_only/simulated
expect_text out '^20 seeds keep their promises$'

say "a name that is taken"
expect_code 2 build-engine_only/taken_name train
expect_text out "^error: role 'aggregate' exists already: choose another name$"

say "own_role: what the command line shows of it"
readonly kRole=$work/build-own_role/own_role kWiring=$work/own_role/sparta.toml
expect_code 0 "$kRole" wiring keys
expect_text out '^exchange = aggregate .* \| sparta,'
expect_text out '^fraction = a number above 0, at most 1, default 0.005$'
expect_code 0 "$kRole" wiring list
expect_text out '^sparta +SPARTA +Beton et al. 2025$'
expect_code 0 "$kRole" wiring show sparta
expect_text out '^fraction = 0.005 +# default: '
expect_code 0 "$kRole" wiring show "$kWiring"
expect_text out '^fraction = 0.01 +# '
expect_code 0 "$kRole" wiring show "$kWiring" --dot
expect_text out 'peer0 -> peer3 \[label="Sparta 142 B\\neach way" dir=both'
expect_code 0 "$kRole" wiring check "$kWiring" --conformance
expect_text out "valid, exchange = 'sparta'$"
expect_code 2 "$kRole" train --set wiring.exchange=sprata
expect_text out "did you mean 'sparta'\?"
expect_code 2 "$kRole" train --set wiring.exchange=sparta --set wiring.fraction=2
expect_text out "^error: wiring.fraction = '2': expected a number above 0, at most 1$"
say "own_role: its test in virtual time"
expect_code 0 ctest --test-dir build-own_role --output-on-failure
expect_text out '100% tests passed'

say "own_role: training, a checkpoint on the way, a resumed run"
readonly kTrain=(train "$kWiring" --model mlp --data glyphs:640 --batch-size 16 --seed 3 --threads 1)
expect_code 0 "$kRole" "${kTrain[@]}" --steps 30 --workers 4 --checkpoint-every 1 --out whole
expect_text whole/job.toml "^exchange = 'sparta'\$"
[[ -s $(find whole/trace -type f | head -1) ]] || fail "a trace of the run"
middle=$(find whole/checkpoint -mindepth 1 -maxdepth 1 -type d | sort | head -1)
expect_code 0 "$kRole" "${kTrain[@]}" --steps 30 --workers 4 --checkpoint-every 1 --resume "$middle" --out resumed
expect_same whole/model.pt resumed/model.pt
expect_code 0 "$kRole" "${kTrain[@]}" --steps 12 --workers 4 --checkpoint-every 1 --out short
expect_code 0 "$kRole" "${kTrain[@]}" --steps 30 --workers 4 --checkpoint-every 1 --resume short
expect_same whole/model.pt short/model.pt

say "own_role: several processes send the same values"
expect_code 0 "$kRole" launch -n 4 -- "${kTrain[@]}" --steps 30 --transport tcp --out processes
expect_same whole/model.pt processes/model.pt

say "own_wiring: run by the installed program"
expect_code 0 "$kGrapevine" wiring check own_wiring/rare_gossip.toml --ranks 8
expect_code 0 "$kGrapevine" train own_wiring/rare_gossip.toml --data glyphs:640 --steps 8 --threads 1 --out rare
[[ -s rare/model.pt ]] || fail "a model of the run"
expect_code 0 "$kGrapevine" train own_wiring/three_levels.toml --data glyphs:640 --steps 8 --threads 1 \
  --out levels
[[ -s levels/model.pt ]] || fail "a model of the run"

say "own_model"
expect_code 0 build-own_model/own_model train --model spiral-net --data spirals --epochs 4 --lr 0.1 --threads 1 \
  --out spirals --json
expect_text out '"test_accuracy":(1|0\.9)'
expect_code 2 build-own_model/own_model train --model spiral-net --data glyphs
expect_text out "model 'spiral-net' takes vectors"
say "done"
