#!/usr/bin/env bash
# Makes one file of what tests/gpu.sh needs on a machine that has an NVIDIA driver, CUDA's libraries and PyTorch but none
# of the packages that Trifold is built from: programs, the CUDA module, the shared libraries they name, a C library for
# machines with an older one, test data and scripts. No compiler, package or network is needed there. NVIDIA's libraries
# are not in it, and neither is MPI: it is for one GPU.
#
#   tools/gpu_bundle.sh                builds in build/gpu_release, for Hopper GPUs alone; writes build/gpu_bundle.run
#   tools/gpu_bundle.sh --build DIR    takes what is built in DIR, whatever GPUs that is for
#   tools/gpu_bundle.sh --output FILE  writes FILE
#
# On that machine: bash gpu_bundle.run first (or speed, final, meshes, use, --check); tools/gpu_bundle_check.sh tries it without one.
#
# Exit status: 0; 1 where the build fails, something that belongs to it is missing or the file is larger than 50 MiB.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/gpu_release
output=build/gpu_bundle.run
with_build=yes
while (($#)); do
  case $1 in
    --build) build=${2:?--build wants a folder} with_build=no; shift ;;
    --output) output=${2:?--output wants a file}; shift ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
most=$((50 << 20))
header_bytes=4096

if [[ $with_build == yes ]]; then
  cmake --preset release -B "$build" -DCMAKE_CUDA_ARCHITECTURES=90a-real
  cmake --build "$build" --parallel "$(nproc)" --target gpu_programs
fi
for tool in patchelf zstd objdump strip; do
  command -v "$tool" >/dev/null || { echo "$tool is needed: tools/install_dependencies.sh installs it" >&2; exit 1; }
done

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
mkdir -p "$root/lib" "$root/glibc"

# ---- programs and modules, without what only a debugger reads, where tests/gpu.sh looks for them ----

programs=(launch/trifold)
while IFS= read -r program; do programs+=("$program"); done <<'LIST'
tests/cuda/cuda_ops
tests/cuda/cuda_products
tests/cuda/cuda_probe
tests/conformance/conformance_device
tests/conformance/op_bench
tests/fake_device/parity_device
tests/parity/parity_training
tests/parity/parity_matrix
LIST
modules=(lib/trifold_cuda.so)
for file in "${programs[@]}" "${modules[@]}"; do
  [[ -e $build/$file ]] || { echo "$build/$file is missing: build the target gpu_programs with CUDA" >&2; exit 1; }
  mkdir -p "$root/build/release/$(dirname "$file")"
  strip -o "$root/build/release/$file" "$build/$file"
done

# ---- the libraries they name ----

# Part of the C library, which goes with its loader.
is_libc() { [[ $1 =~ ^(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|util|resolv|anl|nss_.*))\.so ]]; }

for file in "${programs[@]}" "${modules[@]}"; do ldd "$build/$file"; done >"$stage/ldd"
if grep 'not found' "$stage/ldd" >&2; then exit 1; fi
while read -r name path; do
  is_libc "$name" || cp -L "$path" "$root/lib/$name"
done < <(awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' "$stage/ldd" | sort -u)
libc=$(dirname "$(awk '$1 == "libc.so.6" { print $3; exit }' "$stage/ldd")")
for path in "$libc"/*.so.*; do  # all of them: NVIDIA's libraries name others than ours
  if is_libc "${path##*/}"; then cp -L "$path" "$root/glibc/${path##*/}"; fi
done
cp -L /lib64/ld-linux-x86-64.so.2 "$root/glibc/"

# Where they look: relative to themselves, also for what their libraries name. The place for the path of the loader has
# room for a long one.
place=$(printf '/%.0s' {1..220})loader
for file in "$root"/lib/*; do
  chmod u+w "$file"
  patchelf --force-rpath --set-rpath "\$ORIGIN" "$file"
done
for file in "${programs[@]}" "${modules[@]}"; do
  up=$(dirname "build/release/$file" | sed 's|[^/]\+|..|g')
  patchelf --force-rpath --set-rpath "\$ORIGIN/$up/lib" "$root/build/release/$file"
done
for program in "${programs[@]}"; do
  patchelf --set-interpreter "$place" "$root/build/release/$program"
  offset=$(grep -abo -F "$place" "$root/build/release/$program" | head -n 1 | cut -d: -f1)
  echo "build/release/$program $offset $((${#place} + 1))"
done >"$root/programs"
find "$root/build" "$root/lib" -type f -exec objdump -T {} + 2>/dev/null | grep -o 'GLIBC_[0-9.]*[0-9]' | sed 's/GLIBC_//' |
  sort -uV | tail -n 1 >"$root/glibc.needed"

# ---- what tests/gpu.sh and the programs read ----

mkdir -p "$root/tests" "$root/tools" "$root/launch/configs" "$root/data"
cp -r tests/gpu.sh tests/gpu tests/golden tests/data "$root/tests/"
cp -r tools/reference "$root/tools/"
cp launch/configs/*.cfg "$root/launch/configs/"
cp data/tinyshakespeare.txt "$root/data/"
cp tools/bundle/run.sh "$root/"
for library in CUBLAS_VER_MAJOR:cublas_api.h:libcublasLt CUDNN_MAJOR:cudnn_version.h:libcudnn NCCL_MAJOR:nccl.h:libnccl; do
  IFS=: read -r macro header name <<<"$library"
  include=$(sed -n 's/^CUBLASLT_INCLUDE_DIR:PATH=//p' "$build/CMakeCache.txt")
  echo "$name.so.$(sed -n "s/^#define $macro *\([0-9]*\).*/\1/p" "$include/$header")"
done >"$root/nvidia.libraries"
git describe --always --dirty >"$root/version"
find "$root" -name __pycache__ -exec rm -rf {} +

# ---- one file ----

tar -C "$root" --sort=name --owner=0 --group=0 --mtime=@0 -c . | zstd -q -15 --long=27 -T0 -o "$stage/archive"
cc -O2 -static -o "$stage/unzstd" tools/bundle/unzstd.c -lzstd
strip "$stage/unzstd"
id=$(sha256sum "$stage/archive" | cut -c1-16)
sed "s/@DECODER_BYTES@/$(stat -c %s "$stage/unzstd")/; s/@HEADER_BYTES@/$header_bytes/; s/@ID@/$id/" tools/bundle/unpack.sh \
  >"$stage/header"
(($(stat -c %s "$stage/header") <= header_bytes)) || { echo "tools/bundle/unpack.sh is too long" >&2; exit 1; }
truncate -s "$header_bytes" "$stage/header"
mkdir -p "$(dirname "$output")"
cat "$stage/header" "$stage/unzstd" "$stage/archive" >"$output"
chmod +x "$output"
bytes=$(stat -c %s "$output")
printf '%s: %.1f MiB, %.1f MiB unpacked; needs a C library of %s or newer, or takes its own\n' "$output" \
  "$(awk "BEGIN { print $bytes / 1048576 }")" "$(du -sb "$root" | awk '{ print $1 / 1048576 }')" "$(cat "$root/glibc.needed")"
((bytes <= most)) || { echo "that is more than 50 MiB" >&2; exit 1; }
