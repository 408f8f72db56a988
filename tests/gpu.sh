#!/usr/bin/env bash
# Everything that a machine with an NVIDIA GPU can show: correctness first, then what products and copies reach, then
# training throughput beside PyTorch in the same run. Prints one table; under 8 minutes on an H200 with a built tree.
#
#   tests/gpu.sh              all of it
#   tests/gpu.sh --no-torch   without the comparison
#
# Exit status: 0 when all is well or there is no GPU (it says so); 1 with the failing parts named.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

with_torch=yes
case ${1:-} in
  '') ;;
  --no-torch) with_torch=no ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L | grep -q GPU; then
  echo "tests/gpu.sh: skipped, this machine has no NVIDIA GPU (nvidia-smi finds none)"
  exit 0
fi
if ! command -v nvcc >/dev/null && [[ ! -x /usr/local/cuda/bin/nvcc ]]; then
  echo "tests/gpu.sh: skipped, nvcc is needed to build the CUDA module"
  exit 0
fi

failed=()
rows=()
out=build/gpu
mkdir -p "$out"

# part HEADLINE COMMAND...: a part of the table; its output goes to a file that a failure names.
part() {
  local title=$1 start=$SECONDS log
  log=$out/$(tr -c 'a-zA-Z0-9\n' _ <<<"$title").log
  shift
  if "$@" >"$log" 2>&1; then
    rows+=("$(printf '%-52s ok      %4d s' "$title" $((SECONDS - start)))")
  else
    rows+=("$(printf '%-52s FAILED  %4d s   %s' "$title" $((SECONDS - start)) "$log")")
    failed+=("$title")
  fi
}

build() {
  cmake --preset release &&
    cmake --build build/release --parallel "$(nproc)" --target trifold trifold_cuda cuda_products parity_device
}

modules=$PWD/build/release/lib
trifold=build/release/launch/trifold

# step NAME LAYERS WIDTH HEADS BATCH: a line of the table from one benchmark of the training step.
step() {
  local name=$1 layers=$2 width=$3 heads=$4 batch=$5
  "$trifold" bench --what step --device cuda --bf16 --num-layers "$layers" --hidden-size "$width" \
    --num-attention-heads "$heads" --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 \
    --micro-batch-size "$batch" --attention-dropout 0 --hidden-dropout 0 --json "$out/$name.json" || return 1
  rows+=("$(python3 -c "
import json, sys
b = json.load(open(sys.argv[1]))
b = b.get('step', b)
print(f'   {sys.argv[2]}: {b[\"tokens_per_second\"]:.0f} tokens/s, {100 * b[\"share\"]:.1f} % of the product rate '
      f'{b[\"gemm_flops\"] / 1e12:.0f} TFLOP/s')" "$out/$name.json" "$name")")
}

torch_step() {
  rows+=("$(python3 tools/reference/gpt_speed_torch.py "$@" | sed 's/^/   /')")
}

part "Build" build
if ((${#failed[@]} == 0)); then
  part "Products and attention against f64" env TRIFOLD_MODULE_PATH="$modules" build/release/tests/cuda/cuda_products
  part "Training on thread ranks follows the processor" env TRIFOLD_MODULE_PATH="$modules" \
    build/release/tests/make_believe/parity_device
  part "Product rates" "$trifold" bench --what gemm --device cuda --bf16
  part "GPT-2 124M" step gpt2-124m 12 768 12 32
  part "GPT-2 355M" step gpt2-355m 24 1024 16 16
  part "GPT-2 1558M" step gpt2-1558m 48 1600 25 8
  if [[ $with_torch == yes ]] && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    part "PyTorch 124M" torch_step --layers 12 --width 768 --heads 12 --batch 32
    part "PyTorch 355M" torch_step --layers 24 --width 1024 --heads 16 --batch 16
    part "PyTorch 1558M" torch_step --layers 48 --width 1600 --heads 25 --batch 8
  else
    rows+=("PyTorch                                              skipped (asked, or no torch with CUDA here)")
  fi
fi

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
printf '%s\n' "${rows[@]}"
printf 'in all %d s\n' "$SECONDS"
((${#failed[@]} == 0))
