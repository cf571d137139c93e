# shellcheck shell=bash
# What the scripts share. To be sourced: it changes to the root of the repository, so that every
# script works from anywhere.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

say() { printf '== %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Prints the comment at the top of a script: its usage.
usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$1"; }

# Memory that can still be used, in MB: what the system has available, or less where the control
# group of a container allows less.
available_mb() {
  local mb used limit
  mb=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  if limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null) && [[ $limit =~ ^[0-9]+$ ]]; then
    used=$(cat /sys/fs/cgroup/memory.current)
    limit=$(((limit - used) / 1048576))
    if ((limit < mb)); then mb=$limit; fi
  fi
  printf '%d\n' "$mb"
}

# job_count MB [PER_CORE]: how many jobs of that size fit into memory; at least 1, at most PER_CORE
# (default 1) for each core. GRAPEVINE_JOBS overrides it.
job_count() {
  local cores jobs
  if [[ -n ${GRAPEVINE_JOBS:-} ]]; then
    [[ $GRAPEVINE_JOBS =~ ^[1-9][0-9]*$ ]] ||
      die "GRAPEVINE_JOBS is '$GRAPEVINE_JOBS': give a whole number from 1"
    printf '%d\n' "$GRAPEVINE_JOBS"
    return
  fi
  cores=$(($(nproc) * ${2:-1}))
  jobs=$(($(available_mb) / $1))
  if ((jobs > cores)); then jobs=$cores; fi
  if ((jobs < 1)); then jobs=1; fi
  printf '%d\n' "$jobs"
}

installed() { [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == 'install ok installed' ]]; }

as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# Lines of a package list whose package, or one of its alternatives, is not installed.
missing_packages() {
  local line name found
  while read -r line; do
    line=${line%%#*}
    [[ -n ${line// /} ]] || continue
    found=
    for name in ${line//|/ }; do
      if installed "$name"; then found=$name; fi
    done
    [[ -n $found ]] || printf '%s\n' "$line"
  done <"$1"
}

# The first alternative of a line that this distribution can install.
choose_package() {
  local name
  for name in ${1//|/ }; do
    # Not grep -q: it would end before apt-cache has written all, and pipefail takes that for a failure.
    if apt-cache policy "$name" 2>/dev/null | grep 'Candidate: [^(]' >/dev/null; then
      printf '%s\n' "$name"
      return
    fi
  done
  die "this distribution has no package for '$1': Debian 12 has"
}

# install_packages LIST PURPOSE: installs what is missing of a package list, and nothing else.
install_packages() {
  local list=$1 purpose=$2 line name
  local -a missing=() packages=()
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    die "$purpose needs the packages in $list, and this system has no apt-get: install them by" \
      "hand, then run 'cmake --preset release' and 'cmake --build --preset release'"
  fi
  mapfile -t missing < <(missing_packages "$list")
  if ((${#missing[@]} == 0)); then return; fi
  say "$purpose needs packages that are not installed:"
  printf '     %s\n' "${missing[@]}" >&2
  if ((EUID != 0)); then
    command -v sudo >/dev/null ||
      die "installing packages takes root, and there is no sudo: run '$PWD/scripts/setup' as root"
    say "sudo may ask for your password: apt-get installs them for the whole system"
  fi
  as_root apt-get -q -o Acquire::Retries=3 update ||
    say "apt-get update failed; going on with the package lists that are here"
  for line in "${missing[@]}"; do
    name=$(choose_package "$line") || exit 1
    packages+=("$name")
  done
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=300 install --no-install-recommends "${packages[@]}" ||
    die "apt-get could not install ${packages[*]}: see its message above"
}

# configure PRESET [-D…]: presets are in CMakePresets.json.
configure() {
  cmake --preset "$@" || die "cmake could not configure the preset '$1': see its message above"
}

# Memory in MB, for job_count. One compiler takes up to 1.3 GB for a unit of ten sources, half as much
# again under sanitizers; a test loads LibTorch and trains small models.
# shellcheck disable=SC2034  # the scripts that source this use them
readonly kUnitMb=1400 kSanitizedUnitMb=2100 kTestMb=500

# build PRESET MB [target…]: with as many jobs of that size as fit.
build() {
  local preset=$1 jobs
  jobs=$(job_count "$2")
  shift 2
  say "building (${*:-everything}) with $jobs job(s)"
  cmake --build --preset "$preset" --parallel "$jobs" ${1:+--target "$@"} ||
    die "the build failed: see the compiler's message above"
}

# ---- What scripts/test-gpu and tests/bench/gpu.sh share: what needs a GPU, built for the one here.

# shellcheck disable=SC2034  # as above
readonly kCudaBuild=${GRAPEVINE_CUDA_BUILD:-build-cuda}

configure_cuda() {
  command -v nvidia-smi >/dev/null || die "there is no CUDA GPU here (no nvidia-smi): run this on a" \
    "machine with one"
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >&2 ||
    die "nvidia-smi finds no CUDA GPU: run this on a machine with one"
  command -v nvcc >/dev/null || die "nvcc is not on PATH: install the CUDA toolkit, 12 or newer"
  local generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  cmake -S gpu/cuda -B "$kCudaBuild" "${generator[@]}" -DCMAKE_CUDA_ARCHITECTURES="$(gpu_architecture)" \
    >&2 || die "cmake could not configure gpu/cuda: see its message above"
}

# As CMake writes it, e.g. 90 for compute capability 9.0.
gpu_architecture() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader | sed -n '1s/[. ]//gp'
}

gpu_count() { nvidia-smi --query-gpu=name --format=csv,noheader | wc -l; }

# configure_gpu FOLDER: the whole, with the LibTorch of python3's torch where it has one with CUDA, else
# with what CMAKE_PREFIX_PATH leads to.
configure_gpu() {
  local folder=$1 torch
  local -a more=()
  if torch=$(python3 -c 'import torch; assert torch.version.cuda; print(torch.utils.cmake_prefix_path)' \
    2>/dev/null); then more=(-DCMAKE_PREFIX_PATH="$torch"); fi
  if command -v ninja >/dev/null; then more+=(-G Ninja); fi
  cmake -S . -B "$folder" "${more[@]}" -DGRAPEVINE_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="$(gpu_architecture)" >&2 || die "cmake could not configure: see its message above"
  grep -q '^GRAPEVINE_BUILDS_TORCH_CUDA:INTERNAL=TRUE' "$folder/CMakeCache.txt" ||
    die "the LibTorch that cmake found is not for CUDA: 'pip install torch' has one, or set CMAKE_PREFIX_PATH" \
      "(--kernels does without)"
}

require_gtest() {
  grep -q '^GTest_DIR:PATH=/' "$kCudaBuild/CMakeCache.txt" ||
    die "there is no GoogleTest for gpu/cuda's tests: install it (Debian: libgtest-dev), or set GTest_DIR"
}

build_cuda() {
  cmake --build "$kCudaBuild" --parallel "$(nproc)" --target "$@" >&2 ||
    die "gpu/cuda could not be built: see the compiler's message above"
}
