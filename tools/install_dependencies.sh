#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that Trifold needs and that are missing. Does nothing when none is.
#
#   tools/install_dependencies.sh            everything: building, running and testing
#   tools/install_dependencies.sh --program  only what building and running the program takes
#   tools/install_dependencies.sh --list     print the packages, one a line, and install nothing
#
# Exit status: 0 everything is there; 3 something is missing and could not be installed (the line to run is printed).
set -euo pipefail

# One package a line: the set it belongs to, its name, what it is for.
packages() {
  cat <<'LIST'
program  g++                           the compiler
program  cmake                         the build, 3.25 or newer
program  ninja-build                   runs the build
program  ccache                        makes the second build quick
program  libdnnl-dev                   oneDNN: matrix products in f32
program  libeigen3-dev                 matrix products in f64
program  libhdf5-dev                   checkpoints
program  libboost-program-options-dev  the command line
program  nlohmann-json3-dev            JSON lines, manifests
program  libfmt-dev                    text
program  libsentencepiece-dev          tokenizer models
program  libisal-dev                   checksums
program  zlib1g-dev                    checksums of parts joined, text in gzip files
program  libarchive-dev                text in zstd, xz and bzip2 files, NumPy's .npz
program  libyaml-dev                   descriptions of click logs in YAML
program  libicu-dev                    Unicode: characters, normalisation, patterns of tokenizers
program  python3                       loss curves, the project's own checks
program  gnuplot-nox                   draws the loss curves
tests    mpich                         runs ranks as MPI processes
tests    libmpich-dev                  builds the MPI module
tests    libgtest-dev                  the tests
tests    libbenchmark-dev              the benchmarks
tests    clang                         the second compiler
tests    clang-format                  formats the source
tests    clang-tidy                    checks names and common mistakes
tests    lld                           links programs with sanitizers in a quarter of the time
tests    libclang-rt-dev               sanitizers of the second compiler; each release has its own name for it
tests    python3-numpy                 reads checkpoints as a reader of their description would
tests    python3-h5py                  reads them as other tools do
tests    python3-pip                   installs the disassemblers of CUDA kernels, a newer clang-tidy
tests    libpython3-dev                builds the module of chat templates
tests    python3-jinja2                renders them, in that module
tests    patchelf                      makes the programs of tools/gpu_bundle.sh relocatable
tests    zstd                          packs these programs
tests    libzstd-dev                   unpacks them on machines without zstd; compressed files of tests
tests    libprotozero-dev              encodes TensorBoard's event files (the program builds without it)
tests    groff-base                    renders the manual page
tests    dpkg-dev                      dependencies of the Debian package
tests    python3-venv                  installs the Python wheel
tests    shellcheck                    checks the shell scripts
tests    git                           lists the files of the project
LIST
}

installed() { [[ $(dpkg-query -W -f '${Status}' "$1" 2>/dev/null) == *' ok installed' ]]; }

# The name under which this release of Debian or Ubuntu has package $1; empty where it is not needed here.
name_here() {
  case $1 in
    mpich | libmpich-dev)  # any MPI is sufficient, and two installed ones confuse CMake
      installed libopenmpi-dev || echo "$1" ;;
    libclang-rt-dev)  # libclang-rt-14-dev where clang is clang-14; older releases ship it inside clang itself
      local version
      version=$(apt-cache depends clang 2>/dev/null | sed -n 's/^ *Depends: clang-\([0-9]\+\)$/\1/p' | head -n 1)
      if [[ -n $version ]] && apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
        echo "libclang-rt-$version-dev"
      fi ;;
    *) echo "$1" ;;
  esac
}

# The packages of the wanted sets, under the names they have here.
wanted() {
  local set name rest
  while read -r set name rest; do
    if [[ $sets == *" $set "* ]]; then name_here "$name"; fi
  done < <(packages)
}

missing() {
  local name
  for name in $(wanted); do
    installed "$name" || echo "$name"
  done
}

# Stops with the line that a person can run.
give_up() {
  echo "$1 Run this, then start again:" >&2
  echo "    apt-get update && apt-get install --no-install-recommends $names" >&2
  exit 3
}

install_missing() {
  local -a as_root=()
  if [[ $(id -u) != 0 ]]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
      give_up "Packages are missing, and installing them needs root."
    fi
    as_root=(sudo -n)
  fi
  echo "Installing: $names"
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=120)
  "${as_root[@]}" update </dev/null || echo "apt-get update failed; the existing package lists are used." >&2
  # The lists are new now: a name that depends on the release may have changed.
  names=$(missing | tr '\n' ' ')
  # shellcheck disable=SC2086  # one word per package
  "${as_root[@]}" install -y --no-install-recommends $names </dev/null || give_up "apt-get install failed."
}

check_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p')
  if [[ $(printf '%s\n3.25\n' "$version" | sort -V | head -n 1) != 3.25 ]]; then
    echo "CMake $version is too old: 3.25 or newer is needed. This release has no newer package: 'pip install cmake' installs one." >&2
    exit 3
  fi
}

sets=" program tests "
list=false
for argument in "$@"; do
  case $argument in
    --program) sets=" program " ;;
    --list) list=true ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done

if $list; then
  wanted
  exit
fi
if ! command -v dpkg-query >/dev/null; then
  echo "This is neither Debian nor Ubuntu, so nothing was installed. These packages are needed (Debian's names):"
  packages | sed 's/^[a-z]* */    /'
  exit 0
fi
names=$(missing | tr '\n' ' ')
if [[ -n ${names// /} ]]; then install_missing; fi
check_cmake
