#!/usr/bin/env bash
# Tries what tools/gpu_bundle.sh made where nothing is installed and there is no GPU: it must unpack, every program start
# and say that there is no driver, with the exit status that it should have.
#
#   tools/gpu_bundle_check.sh [--bundle FILE] ROOT...
#
# A ROOT is a folder with a small Linux system, of another release than this machine's, for example by
#   debootstrap --variant=minbase trixie /tmp/trixie
# The check changes only ROOT/tmp/gpu_check. It needs root, for chroot.
#
# Exit status: 0 if everything is in order; 1 if not, with a line for each finding.
set -euo pipefail
cd "$(dirname "$0")/.."

bundle=build/gpu_bundle.run
if [[ ${1:-} == --bundle ]]; then
  bundle=${2:?--bundle wants a file}
  shift 2
fi
(($#)) || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }

# Runs inside a root; the file is in its folder.
inside() {
  cat <<'INSIDE'
cd /tmp/gpu_check
failed=0
# expect STATUS TEXT COMMAND...: the command ends with the status, and its output has the text.
expect() {
  local status=$1 text=$2 got=0
  shift 2
  "$@" >output 2>&1 || got=$?
  if ((got != status)) || ! grep -qF "$text" output; then
    echo "FAILED: $*: status $got, expected $status and '$text':"
    tail -n 5 output
    failed=1
  fi
}
start=$SECONDS
expect 0 'launch/trifold                       starts' bash gpu_bundle.run --check
cat output
echo "unpacked and checked in $((SECONDS - start)) s"
expect 0 'skipped, this machine has no NVIDIA GPU' bash gpu_bundle.run first
cd gpu_bundle
export TRIFOLD_MODULE_PATH=$PWD/build/release/lib TRIFOLD_TEST_DATA=$PWD/tests
none='there is no driver on this machine'
model='--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --micro-batch-size 1'
tests=build/release/tests
expect 2 "$none" build/release/launch/trifold bench --what gemm --device cuda --bf16 $model
expect 2 "$none" build/release/launch/trifold pretrain --device cuda --data-path data/tinyshakespeare.txt --lr 1e-3 \
  --train-iters 1 $model
expect 0 "$none" $tests/cuda/cuda_ops
expect 0 "$none" $tests/cuda/cuda_products
expect 0 "$none" $tests/conformance/conformance_device --gtest_filter='Threads*'
expect 1 "$none" $tests/conformance/op_bench cuda
expect 1 "$none" $tests/cuda/cuda_probe
expect 1 "$none" $tests/fake_device/parity_device --gtest_filter='Device.OneRank'
export TRIFOLD_TEST_DEVICE=cuda
expect 1 "$none" $tests/parity/parity_training --gtest_filter='*Torch*'
expect 1 "$none" $tests/parity/parity_matrix --gtest_filter='Matrix.OneStage*'
unset TRIFOLD_TEST_DEVICE
expect 0 '[  PASSED  ]' $tests/parity/parity_training --gtest_filter='*Torch*'
rm lib/libfmt.so.*
expect 1 'build/release/lib/trifold_cuda.so: libfmt.so' bash run.sh first
((failed)) || echo "every program starts, and says that there is no driver"
exit $failed
INSIDE
}

status=0
for root in "$@"; do
  echo "== $root"
  rm -rf "$root/tmp/gpu_check"
  mkdir -p "$root/tmp/gpu_check"
  cp "$bundle" "$root/tmp/gpu_check/gpu_bundle.run"
  inside >"$root/tmp/gpu_check/check.sh"
  # A process list of its own (programs find themselves through /proc), no network.
  # shellcheck disable=SC2016  # $1 is the inner shell's
  unshare --mount --net --pid --fork bash -c 'mount -t proc proc "$1/proc" && exec chroot "$1" bash /tmp/gpu_check/check.sh' \
    check "$root" || status=1
  rm -rf "$root/tmp/gpu_check"
done
exit $status
