#!/usr/bin/env bash
# Everything that a machine with an NVIDIA GPU can show, in one table: what the card reaches (products, copies), then
# that every operation, product, attention and training run computes what the processor does, then kernels against the
# copy and training steps against the products and against PyTorch. A line of the table is printed when it is known, so
# that a run that is cut off has shown what it did. Meant to take under 8 minutes on an H200 with a built tree, besides
# PyTorch; no GPU has timed it yet.
#
#   tests/gpu.sh                 all of it
#   tests/gpu.sh --no-torch      without the comparison
#   tests/gpu.sh --only REGEX    the parts whose title matches, with what is built
#   tests/gpu.sh --no-build      what is built, also on a machine without compilers
#
# Exit status: 0 when all is well or there is no GPU (it says so); 1 with the failing parts named.
# shellcheck disable=SC2317  # the functions are called through part()
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

with_torch=yes
with_build=yes
only=
while (($#)); do
  case $1 in
    --no-torch) with_torch=no ;;
    --no-build) with_build=no ;;
    --only)
      only=${2:?--only wants a regular expression of titles}
      with_build=no
      shift
      ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L | grep -q GPU; then
  echo "tests/gpu.sh: skipped, this machine has no NVIDIA GPU (nvidia-smi finds none)"
  exit 0
fi
export PATH=$PATH:/usr/local/cuda/bin  # compute-sanitizer, nvcc
if [[ $with_build == yes ]] && ! command -v nvcc >/dev/null; then
  echo "tests/gpu.sh: skipped, nvcc is needed to build the CUDA module (--no-build takes what is built)"
  exit 0
fi

# cuDNN and NCCL often come as wheels beside PyTorch: their folders, behind the toolkit's.
wheels=$(python3 - 2>/dev/null <<'PY'
import glob, sysconfig
print(*glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/*"))
PY
)
for wheel in $wheels; do
  if [[ -d $wheel/lib ]]; then
    TRIFOLD_CUDA_LIBRARY_PATH=${TRIFOLD_CUDA_LIBRARY_PATH:-/usr/local/cuda/lib64}:$wheel/lib
  fi
  if [[ -d $wheel/include ]]; then export CMAKE_INCLUDE_PATH=${CMAKE_INCLUDE_PATH:+$CMAKE_INCLUDE_PATH:}$wheel/include; fi
done
if [[ -n ${TRIFOLD_CUDA_LIBRARY_PATH:-} ]]; then export TRIFOLD_CUDA_LIBRARY_PATH; fi

failed=()
parts=0
out=build/gpu
mkdir -p "$out"
modules=$PWD/build/release/lib
trifold=build/release/launch/trifold
tests=build/release/tests
export TRIFOLD_MODULE_PATH=$modules

# row TEXT: a line of the table that is a figure; part HEADLINE COMMAND...: one that says whether a part is well. A
# part's output goes to a file that a failure names; a part whose program does not end in 2 minutes (5 for PyTorch, 10
# for its largest batch) has failed, as has one all of whose tests skipped.
exec 3>&1
row() { printf '   %s\n' "$*" >&3; }
part() {
  local title=$1 start=$SECONDS log
  [[ $title =~ $only ]] || return 0
  parts=$((parts + 1))
  log=$out/$(tr -c 'a-zA-Z0-9\n' _ <<<"$title").log
  shift
  if "$@" >"$log" 2>&1 && ! grep -qF '[  PASSED  ] 0 tests' "$log"; then
    printf '%-60s ok      %4d s\n' "$title" $((SECONDS - start))
  else
    printf '%-60s FAILED  %4d s   %s\n' "$title" $((SECONDS - start)) "$log"
    failed+=("$title")
  fi
}

# However the run ends.
finish() {
  printf 'in all %d s, %d parts, of which %d failed\n' "$SECONDS" "$parts" "${#failed[@]}"
  if ((${#failed[@]})); then printf '   %s\n' "${failed[@]}"; fi
}
trap finish EXIT

build() {
  cmake --preset release &&
    cmake --build build/release --parallel "$(nproc)" --target trifold trifold_cuda cuda_ops cuda_products op_bench \
      conformance_device parity_device parity_training parity_matrix
}

# ---- what the card reaches ----

products() {
  local text
  timeout 120 "$trifold" bench --what gemm --device cuda --bf16 --num-layers 48 --hidden-size 1600 --num-attention-heads 25 \
    --seq-length 1024 --micro-batch-size 8 --json "$out/gemm.json" || return 1
  text=$(python3 - "$out/gemm.json" <<'PY'
import json, sys
text = json.load(open(sys.argv[1]))
shapes = text.get("gemm", text) if isinstance(text, dict) else text
best = max(shapes, key=lambda shape: shape["flops"])
print(f"products in bf16: {best['flops'] / 1e12:.0f} TFLOP/s at {best['m']} x {best['n']} x {best['k']}")
PY
) || return 1
  row "$text"
}

# Each kernel's share of the copy; those under 0.8 are named and fail the part.
kernels() {
  timeout 120 "$tests/conformance/op_bench" cuda | tee "$out/kernels.txt" || return 1
  local name us rate share slow=()
  while read -r name us rate share; do
    [[ $name == operation ]] && continue
    row "$(printf '%-30s %9s us %9s GB/s  %s of the copy' "$name" "$us" "$rate" "$share")"
    awk -v share="$share" 'BEGIN { exit !(share < 0.8) }' && slow+=("$name")
  done <"$out/kernels.txt"
  ((${#slow[@]} == 0)) || { echo "under 0.8 of the copy: ${slow[*]}"; return 1; }
}

# ---- that it computes what the processor does ----

# The tests of the processor, on the device: TRIFOLD_TEST_DEVICE says where they run.
on_device() { TRIFOLD_TEST_DEVICE=cuda timeout 120 "$@"; }

# The GPUs that CUDA shows: those of CUDA_VISIBLE_DEVICES, of which it takes as many as come before a -1.
count_gpus() {
  if [[ -v CUDA_VISIBLE_DEVICES ]]; then
    tr , '\n' <<<"$CUDA_VISIBLE_DEVICES" | sed '/^ *-1/,$d' | grep -c '[^ ]'
  else
    nvidia-smi -L | grep -c ^GPU
  fi
}

# What communicators promise, over as many ranks as there are GPUs; one rank where there is no MPI to start more.
over_nccl() {
  local gpus start=()
  gpus=$(count_gpus)
  if command -v mpiexec >/dev/null && [[ -e $modules/trifold_mpi.so ]]; then
    start=(mpiexec -n "$gpus")
    [[ $(mpiexec --version) =~ Open\ MPI|OpenRTE|PRRTE ]] && start=(mpiexec --allow-run-as-root --oversubscribe -n "$gpus")
  fi
  timeout 120 "${start[@]}" "$tests/conformance/conformance_device" --gtest_filter='Nccl*' || return 1
  row "ranks over NCCL: $([[ ${#start[@]} == 0 ]] && echo "1, for there is no mpiexec" || echo "$gpus")"
}

sanitized() {
  command -v compute-sanitizer >/dev/null || { row "compute-sanitizer is not on this machine"; return 0; }
  timeout 120 compute-sanitizer --error-exitcode 9 "$tests/cuda/cuda_ops" \
    --gtest_filter='*layer_norm*:*column_sum*:*embedding*:*products*:*cross*'
}

# curve DEVICE NAME STEPS PRECISION...: the losses of a short run on Shakespeare.
curve() {
  local device=$1 name=$2 steps=$3
  shift 3
  rm -f "$out/$name.jsonl"
  timeout 120 "$trifold" pretrain --device "$device" --data-path data/tinyshakespeare.txt --split 90,10,0 --num-layers 4 \
    --hidden-size 128 --num-attention-heads 4 --seq-length 64 --micro-batch-size 12 --lr 1e-3 --min-lr 1e-4 \
    --lr-decay-style cosine --lr-warmup-iters 20 --train-iters "$steps" --seed 7 --log-json "$out/$name.jsonl" "$@"
}

# follows NAME STEPS TOLERANCE LAST PRECISION...: the run on the GPU against the same on the processor: every loss
# within TOLERANCE, or, where LAST is more than one, the mean of the last LAST.
follows() {
  local name=$1 steps=$2 tolerance=$3 last=$4
  shift 4
  curve cuda "gpu-$name" "$steps" "$@" && curve cpu "cpu-$name" "$steps" "$@" || return 1
  same_losses "$name" "$tolerance" "$last"
}

# same_losses NAME TOLERANCE LAST: of the two runs whose logs these are.
same_losses() {
  local name=$1 tolerance=$2 last=$3 text status
  text=$(python3 - "$out/gpu-$name.jsonl" "$out/cpu-$name.jsonl" "$last" "$name" "$tolerance" <<'PY'
import json, math, sys
def losses(path):  # what is not finite is null there
    steps = [json.loads(line) for line in open(path)]
    return [math.nan if step["loss"] is None else step["loss"] for step in steps if "loss" in step]
gpu, cpu = losses(sys.argv[1]), losses(sys.argv[2])
last, most = int(sys.argv[3]), float(sys.argv[5])
if not gpu or len(gpu) != len(cpu):
    sys.exit(f"{len(gpu)} losses on the GPU, {len(cpu)} on the processor")
pairs = [(sum(gpu[-last:]) / last, sum(cpu[-last:]) / last)] if last > 1 else list(zip(gpu, cpu))
gaps = [abs(a - b) / abs(b) for a, b in pairs]
print(f"{sys.argv[4]}: {len(gpu)} steps, largest difference {max(gaps):.2e}")
sys.exit(not all(gap <= most for gap in gaps))
PY
)
  status=$?
  row "$text"
  return "$status"
}

# Random clicks as MLPerf stores them: 2^20 samples of 160 bytes. Dense numbers are below 256, as most of the
# real ones are: with logarithms near 20 training makes the last bit of a sum 1e-3 of the loss in 50 steps.
random_clicks() {
  python3 - "$out/clicks.bin" <<'PY'
import random, sys
draw, record, samples = random.Random(7), 160, 1 << 16
with open(sys.argv[1], "wb") as file:
    for _ in range(16):
        block = bytearray(draw.randbytes(record * samples))
        block[3::4] = bytes(byte & 0x3f for byte in block[3::4])  # no number is negative
        for column in range(1, 14):
            for byte in (1, 2, 3):
                block[4 * column + byte::record] = bytes(samples)
        for first in range(0, len(block), record):
            block[first:first + 4] = bytes((draw.random() < 0.25, 0, 0, 0))
        file.write(block)
PY
}

# clicks DEVICE NAME STEPS MORE...: steps of DLRM's Kaggle configuration on them.
clicks() {
  local device=$1 name=$2 steps=$3
  shift 3
  rm -f "$out/$name.jsonl"
  timeout 120 "$trifold" recommend --config launch/configs/dlrm-kaggle.cfg --device "$device" \
    --train-data "$out/clicks.bin" --id-policy modulo --valid-samples 0 --eval-interval 0 --train-iters "$steps" \
    --log-json "$out/$name.jsonl" "$@"
}

recommender_follows() {
  random_clicks && clicks cuda gpu-dlrm 50 --global-batch-size 2048 --lr 0.01 &&
    clicks cpu cpu-dlrm 50 --global-batch-size 2048 --lr 0.01 && same_losses dlrm 1e-4 1
}

# The rate with clicks that one thread reads from the file; and where a step goes, on clicks that it draws.
recommender_speed() {
  local text line status
  clicks cuda gpu-dlrm-speed 60 --global-batch-size 32768 || return 1
  text=$(python3 - "$out/gpu-dlrm-speed.jsonl" <<'PY'
import json, statistics, sys
seconds = [json.loads(line)["step_seconds"] for line in open(sys.argv[1])][20:]
print(f"DLRM, Kaggle configuration, batch 32768: {32768 / statistics.median(seconds):.0f} samples/s")
PY
) || return 1
  row "$text"
  timeout 120 "$trifold" plan --config launch/configs/dlrm-kaggle.cfg --device cuda --global-batch-size 32768 \
    --measure-steps 30 >"$out/dlrm-plan.txt"
  status=$?
  while IFS= read -r line; do row "$line"; done < <(sed -n '/^rates/,$p' "$out/dlrm-plan.txt")
  return "$status"
}

# ---- training steps ----

# watched COMMAND...: runs it; `peak` is then the most memory of the card that was in use meanwhile, in MiB.
watched() {
  local samples=$out/memory.txt watcher status
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --loop-ms=100 >"$samples" 2>/dev/null &
  watcher=$!
  "$@"
  status=$?
  kill "$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null
  peak=$(sort -n "$samples" | tail -1)
  peak=${peak:-0}
  return "$status"
}

# bench_step LAYERS WIDTH HEADS BATCH JSON MORE...: with 1024 positions, or as many as `positions` says.
bench_step() {
  local layers=$1 width=$2 heads=$3 batch=$4 json=$5
  shift 5
  timeout 120 "$trifold" bench --what step --device cuda --bf16 --num-layers "$layers" --hidden-size "$width" \
    --num-attention-heads "$heads" --seq-length "${positions:-1024}" --max-position-embeddings "${positions:-1024}" \
    --vocab-size 50257 --micro-batch-size "$batch" --attention-dropout 0 --hidden-dropout 0 --json "$json" "$@"
}

step() {
  local name=$1 json=$out/$1.json
  shift
  rm -f "$json"
  watched bench_step "$1" "$2" "$3" "$4" "$json" --warmup-iters 5 --iters 10 "${@:5}" || return 1
  local text
  text=$(python3 - "$json" "$name" "$peak" <<'PY'
import json, sys
b = json.load(open(sys.argv[1]))
b = b.get("step", b)
if b["capture_note"]:
    sys.exit(f"{sys.argv[2]}: --enable-cuda-graph: {b['capture_note']}")
print(f"{sys.argv[2]}: {b['tokens_per_second']:.0f} tokens/s, {100 * b['share']:.1f} % of the product rate "
      f"{b['gemm_flops'] / 1e12:.0f} TFLOP/s, peak {int(sys.argv[3]) / 1024:.1f} GiB")
PY
) || return 1
  row "$text"
}

# fits BATCH: whether a step of GPT-2 355M with that many samples does. Anything but a lack of memory is a failure.
fits() {
  local log=$out/largest.txt
  if bench_step 24 1024 16 "$1" "$out/largest.json" --warmup-iters 1 --iters 1 >"$log" 2>&1; then return 0; fi
  grep -q 'out of memory' "$log" || { cat "$log"; return 2; }
  return 1
}

# The largest micro-batch that fits, to an eighth of it: doubled while it does, then halfway twice. The same steps as
# tools/reference/gpt_speed_torch.py --largest.
largest() {
  local batch=32 step status
  while
    fits "$batch"
    status=$?
    ((status == 0))
  do batch=$((batch * 2)); done
  if ((status == 2 || batch == 32)); then return 1; fi
  batch=$((batch / 2))
  for step in 2 4; do
    fits $((batch + batch / step))
    status=$?
    if ((status == 2)); then return 1; fi
    if ((status == 0)); then batch=$((batch + batch / step)); fi
  done
  row "largest micro-batch of GPT-2 355M: $batch"
}

torch_step() {
  local line status
  timeout "$1" python3 -u tools/reference/gpt_speed_torch.py "${@:2}" >"$out/torch.txt"
  status=$?
  while IFS= read -r line; do row "$line"; done <"$out/torch.txt"
  return "$status"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if [[ $with_build == yes ]]; then
  part "Build" build
elif [[ ! -e $trifold || ! -e $modules/trifold_cuda.so ]]; then
  echo "$trifold or $modules/trifold_cuda.so is missing: run tests/gpu.sh without --no-build and --only first"
  failed+=("Build")
fi
if ((${#failed[@]} == 0)); then
  part "What products reach" products
  part "Memory-bound kernels, at least 0.8 of the copy" kernels
  part "Every operation against the processor" timeout 120 "$tests/cuda/cuda_ops"
  part "Products and attention against f64" timeout 120 "$tests/cuda/cuda_products"
  part "What communicators promise, thread ranks on the card" timeout 120 "$tests/conformance/conformance_device" \
    --gtest_filter='Threads*'
  part "The same over NCCL" over_nccl
  part "compute-sanitizer on kernels" sanitized
  part "Ten losses and all gradients against PyTorch's" on_device "$tests/parity/parity_training" --gtest_filter='*Torch*'
  part "Thread ranks follow the processor over every axis" timeout 120 "$tests/make_believe/parity_device"
  for stages in One Two Four Eight; do
    part "Parity of meshes and schedules, 8 ranks, $stages pipeline stages" on_device "$tests/parity/parity_matrix" \
      --gtest_filter="Matrix.${stages}Stage*"
  done
  part "f32 follows the processor, 50 steps to 1e-4" follows f32 50 1e-4 1
  part "bf16 follows the processor, 200 steps to 1 %" follows bf16 200 0.01 20 --bf16
  part "DLRM follows the processor, 50 steps to 1e-4" recommender_follows
  part "DLRM samples/s, and the parts of its step" recommender_speed
  part "Training on 8 bits" step gpt2-124m-fp8 12 768 12 32 --fp8
  part "GPT-2 124M" step gpt2-124m 12 768 12 32
  part "GPT-2 124M, one sample" step gpt2-124m-one 12 768 12 1
  part "GPT-2 124M, one sample, graphs" step gpt2-124m-one-graphs 12 768 12 1 --enable-cuda-graph
  part "GPT-2 355M" step gpt2-355m 24 1024 16 16
  positions=512 part "BERT-large, whose samples have lengths" step bert-large 24 1024 16 32 --model-type bert
  part "GPT-2 1558M" step gpt2-1558m 48 1600 25 8
  part "Largest batch" largest
  if [[ $with_torch == yes ]] && python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    part "PyTorch 124M" torch_step 300 --layers 12 --width 768 --heads 12 --batch 32
    part "PyTorch 355M" torch_step 300 --layers 24 --width 1024 --heads 16 --batch 16
    part "PyTorch 1558M" torch_step 300 --layers 48 --width 1600 --heads 25 --batch 8
    part "PyTorch 355M, its largest batch" torch_step 580 --layers 24 --width 1024 --heads 16 --batch 32 --largest
  else
    printf '%-60s skipped (asked, or no torch with CUDA here)\n' PyTorch
  fi
fi
if ((parts == 0)); then echo "no part has a title that matches $only"; fi
((parts > 0 && ${#failed[@]} == 0))
