#!/usr/bin/env bash
# What a machine with an NVIDIA GPU can show, in calls of at most 8 minutes each, of which each is of use alone:
#
#   first   whether it works and where it stands: the libraries, what the card reaches, operations and products against
#           the processor, three steps of GPT-2 124M, the probe (tests/cuda/cuda_probe.cpp), kernels against the copy,
#           steps of GPT-2 1558M
#   speed   how fast: steps of three sizes and on 8 bits, the five slowest kernels under the profiler, PyTorch at 124M
#   final   that training is right: curves beside the processor's, recommenders, graphs, races, parity of meshes
#   torch   PyTorch at the three sizes, and its largest batch beside Trifold's
#
#   tests/gpu.sh [options] [CALL...]    these calls, one after the other (default: all four)
#     --no-build      what is built, also on a machine without compilers
#     --only REGEX    the parts whose title matches, with what is built
#     --seconds N     the clock of a call (default 470)
#     --part-seconds N   no part takes longer
#     --libraries     only which of NVIDIA's libraries are found where; 1 if one is missing
#
# A part has a limit of its own and what is left of the call's clock; one that fails or runs over does not stop the next.
# After every part the folder that OUT names (else build/gpu) has CALL.txt, the table; CALL.log, the end of every part's
# output; and CALL.jsonl, the figures; `first` also probe.json. No GPU has run this yet.
#
# Exit status: 0 when all is well or there is no GPU (it says so); 1 with the failing parts named; 2 for unknown options.
# shellcheck disable=SC2317  # the functions are called through part()
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

with_build=yes
only=
clock=470
longest=470
calls=()
libraries_only=no
while (($#)); do
  case $1 in
    --no-build) with_build=no ;;
    --only)
      only=${2:?--only wants a regular expression of titles}
      with_build=no
      shift
      ;;
    --seconds) clock=${2:?--seconds wants a number}; shift ;;
    --part-seconds) longest=${2:?--part-seconds wants a number}; shift ;;
    --libraries) libraries_only=yes ;;
    first | speed | final | torch) calls+=("$1") ;;
    *) sed -n '/^# shellcheck/q; 2,$s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
((${#calls[@]})) || calls=(first speed final torch)

# cuBLASLt, cuDNN and NCCL often come as wheels beside PyTorch: their folders, behind the toolkit's. cuDNN looks for NVRTC
# where the system's loader does.
wheels=$(python3 - 2>/dev/null <<'PY'
import glob, sysconfig
site = sysconfig.get_paths()["purelib"]
print(*glob.glob(site + "/nvidia/*"), site + "/torch")
PY
)
for wheel in $wheels; do
  if [[ -d $wheel/lib ]]; then
    TRIFOLD_CUDA_LIBRARY_PATH=${TRIFOLD_CUDA_LIBRARY_PATH:-/usr/local/cuda/lib64}:$wheel/lib
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheel/lib
  fi
  if [[ -d $wheel/include ]]; then export CMAKE_INCLUDE_PATH=${CMAKE_INCLUDE_PATH:+$CMAKE_INCLUDE_PATH:}$wheel/include; fi
done
if [[ -n ${TRIFOLD_CUDA_LIBRARY_PATH:-} ]]; then export TRIFOLD_CUDA_LIBRARY_PATH LD_LIBRARY_PATH; fi
export PATH=$PATH:/usr/local/cuda/bin  # compute-sanitizer, ncu, nvcc

# Where each of NVIDIA's libraries that the module opens is; 1 when one is not found.
libraries() {
  local name folder found status=0 names
  names=$(cat nvidia.libraries 2>/dev/null) || names="libcublasLt.so.[0-9]* libcudnn.so.[0-9]* libnccl.so.[0-9]*"
  for name in libcuda.so.1 $names; do
    found=
    while IFS= read -r folder; do
      [[ -n $found || -z $folder ]] || found=$(compgen -G "$folder/$name" | head -n 1)
    done < <(tr : '\n' <<<"${TRIFOLD_CUDA_LIBRARY_PATH:-}:/usr/local/cuda/lib64")
    [[ -n $found ]] || found=$(ldconfig -p 2>/dev/null | sed -n "s|.*=> \(.*/${name//./\\.}\)$|\1|p" | head -n 1)
    echo "$name: ${found:-missing}"
    [[ -n $found ]] || status=1
  done
  return "$status"
}
if [[ $libraries_only == yes ]]; then
  libraries
  exit
fi

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L | grep -q GPU; then
  echo "tests/gpu.sh: skipped, this machine has no NVIDIA GPU (nvidia-smi finds none)"
  exit 0
fi
if [[ $with_build == yes ]] && ! command -v nvcc >/dev/null; then
  echo "tests/gpu.sh: skipped, nvcc is needed to build the CUDA module (--no-build takes what is built)"
  exit 0
fi

failed=()
parts=0
results=${OUT:-build/gpu}
out=build/gpu/work  # what parts write for themselves
mkdir -p "$results" "$out"
modules=$PWD/build/release/lib
trifold=build/release/launch/trifold
tests=build/release/tests
export TRIFOLD_MODULE_PATH=$modules TRIFOLD_TEST_DATA=$PWD/tests

# row TEXT: a line of the table that is a figure.
row() { printf '   %s\n' "$*" | tee -a "$results/$call.txt" >&3; }
exec 3>&1

# rows TEXT: each of its lines.
rows() { while IFS= read -r line; do row "$line"; done <<<"$1"; }

# limited COMMAND...: until the limit of the part.
limited() { timeout --kill-after=5 $((part_end > SECONDS ? part_end - SECONDS : 1)) "$@"; }

# keep NAME FILE: a file of figures, as a line of the call's.
keep() {
  python3 - "$1" "$2" >>"$results/$call.jsonl" <<'PY'
import json, sys
print(json.dumps({"name": sys.argv[1], "figures": json.load(open(sys.argv[2]))}))
PY
}

# part HEADLINE LIMIT COMMAND...: a line of the table that says whether a part is well. It fails as well when it runs
# over its limit (in seconds) or skips all its tests.
part() {
  local title=$1 limit=$(($2 < longest ? $2 : longest)) start=$SECONDS left=$((call_end - SECONDS)) log=$out/part.log verdict
  [[ $title =~ $only ]] || return 0
  parts=$((parts + 1))
  shift 2
  if ((left < 5)); then
    verdict=FAILED
    echo "left out: the call's $clock seconds are over" >"$log"
  else
    part_end=$((start + (limit < left ? limit : left)))
    if "$@" >"$log" 2>&1 && ! grep -qF '[  PASSED  ] 0 tests' "$log"; then verdict=ok; else verdict=FAILED; fi
    if ((SECONDS >= part_end)); then
      verdict=FAILED
      echo "stopped after $((SECONDS - start)) s" >>"$log"
    fi
  fi
  { echo "==== $title: $verdict, $((SECONDS - start)) s"; tail -c 262144 "$log"; } >>"$results/$call.log"
  printf '%-60s %-7s %4d s\n' "$title" "$verdict" $((SECONDS - start)) | tee -a "$results/$call.txt"
  if [[ $verdict == FAILED ]]; then
    failed+=("$title")
    tail -n 3 "$log" | cut -c1-200 | sed 's/^/      /'
  fi
}

# However the run ends.
finish() {
  printf 'in all %d s, %d parts, of which %d failed\n' "$SECONDS" "$parts" "${#failed[@]}"
  if ((${#failed[@]})); then printf '   %s\n' "${failed[@]}"; fi
}
trap finish EXIT

build() { cmake --preset release && cmake --build build/release --parallel "$(nproc)" --target gpu_programs; }

# ---- what the card reaches ----

found_libraries() {
  local text status
  text=$(libraries)
  status=$?
  rows "$text"
  return "$status"
}

products() {
  local text
  limited "$trifold" bench --what gemm --device cuda --bf16 --num-layers 48 --hidden-size 1600 --num-attention-heads 25 \
    --seq-length 1024 --micro-batch-size 8 --json "$out/gemm.json" || return 1
  keep "products" "$out/gemm.json"
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

# The ways of computing products, attention and the output's loss; the whole report is probe.json.
probe() {
  local text
  rm -f "$results/probe.json"
  text=$(limited "$tests/cuda/cuda_probe" --seconds $((part_end - SECONDS - 10)) --json "$results/probe.json") || return 1
  rows "$text"
}

# Each kernel's share of the copy; those under 0.8 are named and fail the part.
kernels() {
  limited "$tests/conformance/op_bench" cuda | tee "$out/kernels.txt" || return 1
  local name us rate share slow=()
  while read -r name us rate share; do
    [[ $name == operation ]] && continue
    row "$(printf '%-30s %9s us %9s GB/s  %s of the copy' "$name" "$us" "$rate" "$share")"
    awk -v share="$share" 'BEGIN { exit !(share < 0.8) }' && slow+=("$name")
  done <"$out/kernels.txt"
  ((${#slow[@]} == 0)) || { echo "under 0.8 of the copy: ${slow[*]}"; return 1; }
}

# The five operations that are slowest beside the copy, each once under Nsight Compute: what they reach of memory and of
# the multiprocessors, how full those are, and registers.
profile() {
  command -v ncu >/dev/null || { row "ncu is not on this machine"; return 0; }
  local slowest metrics text
  limited "$tests/conformance/op_bench" cuda | tee "$out/kernels.txt" || return 1
  read -ra slowest < <(awk 'NR > 2 { print $4, $1 }' "$out/kernels.txt" | sort -n | head -n 5 | cut -d' ' -f2 | xargs)
  metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread
  metrics+=,sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active
  limited ncu --clock-control none --csv --metrics "$metrics" "$tests/conformance/op_bench" cuda 1 "${slowest[@]}" |
    tee "$out/profile.csv" || return 1
  text=$(python3 - "$out/profile.csv" <<'PY'
import csv, sys
kernels = {}
for line in csv.DictReader(line for line in open(sys.argv[1]) if line.startswith('"')):
    kernels.setdefault((line["ID"], line["Kernel Name"].split("(")[0][-70:]), []).append(
        f"{line['Metric Name'].split('.')[0]} {line['Metric Value']} {line['Metric Unit']}")
for (_, name), values in kernels.items():
    print(f"{name}: {', '.join(values)}")
PY
) || return 1
  rows "$text"
}

# ---- that it computes what the processor does ----

# The tests of the processor, on the device: TRIFOLD_TEST_DEVICE says where they run.
on_device() { TRIFOLD_TEST_DEVICE=cuda limited "$@"; }

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
  limited "${start[@]}" "$tests/conformance/conformance_device" --gtest_filter='Nccl*' || return 1
  row "ranks over NCCL: $([[ ${#start[@]} == 0 ]] && echo "1, for there is no mpiexec" || echo "$gpus")"
}

# sanitized TOOL: kernels under memcheck or racecheck.
sanitized() {
  command -v compute-sanitizer >/dev/null || { row "compute-sanitizer is not on this machine"; return 0; }
  limited compute-sanitizer --tool "$1" --error-exitcode 9 "$tests/cuda/cuda_ops" \
    --gtest_filter='*layer_norm*:*column_sum*:*embedding*:*products*:*cross*'
}

# curve DEVICE NAME STEPS PRECISION...: the losses of a short run on Shakespeare.
curve() {
  local device=$1 name=$2 steps=$3
  shift 3
  rm -f "$out/$name.jsonl"
  limited "$trifold" pretrain --device "$device" --data-path data/tinyshakespeare.txt --split 90,10,0 --num-layers 4 \
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
  if [[ -s $out/clicks.bin ]]; then return; fi
  limited python3 - "$out/clicks.bin" <<'PY'
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
  limited "$trifold" recommend --config launch/configs/dlrm-kaggle.cfg --device "$device" \
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
  random_clicks && clicks cuda gpu-dlrm-speed 60 --global-batch-size 32768 || return 1
  text=$(python3 - "$out/gpu-dlrm-speed.jsonl" <<'PY'
import json, statistics, sys
seconds = [json.loads(line)["step_seconds"] for line in open(sys.argv[1])][20:]
print(f"DLRM, Kaggle configuration, batch 32768: {32768 / statistics.median(seconds):.0f} samples/s")
PY
) || return 1
  row "$text"
  limited "$trifold" plan --config launch/configs/dlrm-kaggle.cfg --device cuda --global-batch-size 32768 \
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

# That training runs at all.
three_steps() {
  bench_step 12 768 12 8 "$out/three.json" --warmup-iters 1 --iters 2 || return 1
  row "$(sed -n 's/.*"loss": \([0-9.]*\),*/GPT-2 124M after 3 steps: loss \1/p' "$out/three.json")"
}

# bench_step LAYERS WIDTH HEADS BATCH JSON MORE...: with 1024 positions, or as many as `positions` says.
bench_step() {
  local layers=$1 width=$2 heads=$3 batch=$4 json=$5
  shift 5
  limited "$trifold" bench --what step --device cuda --bf16 --num-layers "$layers" --hidden-size "$width" \
    --num-attention-heads "$heads" --seq-length "${positions:-1024}" --max-position-embeddings "${positions:-1024}" \
    --vocab-size 50257 --micro-batch-size "$batch" --attention-dropout 0 --hidden-dropout 0 --json "$json" "$@"
}

step() {
  local name=$1 json=$out/$1.json
  shift
  rm -f "$json"
  watched bench_step "$1" "$2" "$3" "$4" "$json" --warmup-iters 3 --iters 10 "${@:5}" || return 1
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
  keep "$name" "$json"
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
  limited python3 -u tools/reference/gpt_speed_torch.py "$@" >"$out/torch.txt"
  status=$?
  while IFS= read -r line; do row "$line"; done <"$out/torch.txt"
  return "$status"
}

run_build() {
  call=build
  call_end=$((SECONDS + 3600))
  part "Build" 3600 build
}

first() {
  part "NVIDIA's libraries" 10 found_libraries
  part "What products reach" 45 products
  part "Every operation against the processor" 60 limited "$tests/cuda/cuda_ops"
  part "Products and attention against f64" 60 limited "$tests/cuda/cuda_products"
  part "Three steps of GPT-2 124M" 45 three_steps
  part "Probe of products, attention and the output's loss" 100 probe
  part "Memory-bound kernels, at least 0.8 of the copy" 50 kernels
  part "GPT-2 1558M, 4 micro-batches of 16" 100 step gpt2-1558m 48 1600 25 16 --global-batch-size 64
}

speed() {
  part "GPT-2 1558M, 4 micro-batches of 16" 100 step gpt2-1558m 48 1600 25 16 --global-batch-size 64
  part "GPT-2 124M" 40 step gpt2-124m 12 768 12 32
  part "GPT-2 355M" 45 step gpt2-355m 24 1024 16 16
  part "PyTorch 124M, bf16 parameters, max-autotune" 150 torch_step --layers 12 --width 768 --heads 12 --batch 32 \
    --bf16-parameters --max-autotune
  part "Profile of the five slowest kernels" 75 profile
  part "GPT-2 124M on 8 bits" 40 step gpt2-124m-fp8 12 768 12 32 --fp8
}

final() {
  part "f32 follows the processor, 50 steps to 1e-4" 40 follows f32 50 1e-4 1
  part "bf16 follows the processor, 200 steps to 1 %" 50 follows bf16 200 0.01 20 --bf16
  part "DLRM follows the processor, 50 steps to 1e-4" 50 recommender_follows
  part "DLRM samples/s, and the parts of its step" 60 recommender_speed
  part "GPT-2 124M, one sample" 30 step gpt2-124m-one 12 768 12 1
  part "GPT-2 124M, one sample, graphs" 30 step gpt2-124m-one-graphs 12 768 12 1 --enable-cuda-graph
  part "Races in kernels" 60 sanitized racecheck
  for stages in One Two Four Eight; do
    part "Parity of a mesh of 8 ranks, $stages pipeline stages" 40 on_device "$tests/parity/parity_matrix" \
      --gtest_filter="Matrix.${stages}Stage*"
  done
  part "Ten losses and all gradients against PyTorch's" 30 on_device "$tests/parity/parity_training" --gtest_filter='*Torch*'
  part "What communicators promise, thread ranks on the card" 40 limited "$tests/conformance/conformance_device" \
    --gtest_filter='Threads*'
  part "The same over NCCL" 40 over_nccl
  part "Thread ranks follow the processor over every axis" 60 limited "$tests/make_believe/parity_device"
  part "Memory that kernels touch" 60 sanitized memcheck
  positions=512 part "BERT-large, whose samples have lengths" 45 step bert-large 24 1024 16 32 --model-type bert
}

torch() {
  if ! python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "PyTorch: skipped, python3 has no torch that sees the GPU"
    return
  fi
  part "PyTorch 1558M" 150 torch_step --layers 48 --width 1600 --heads 25 --batch 16
  part "PyTorch 124M" 80 torch_step --layers 12 --width 768 --heads 12 --batch 32
  part "PyTorch 355M" 100 torch_step --layers 24 --width 1024 --heads 16 --batch 16
  part "Largest batch of GPT-2 355M" 70 largest
  part "PyTorch 355M, its largest batch" 200 torch_step --layers 24 --width 1024 --heads 16 --batch 32 --largest
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
if [[ $with_build == yes ]]; then
  run_build
elif [[ ! -e $trifold || ! -e $modules/trifold_cuda.so ]]; then
  echo "$trifold or $modules/trifold_cuda.so is missing: run tests/gpu.sh without --no-build and --only first"
  failed+=("Build")
fi
if ((${#failed[@]} == 0)); then
  for call in "${calls[@]}"; do
    rm -f "$results/$call".{txt,log,jsonl}
    call_end=$((SECONDS + clock))
    "$call"
  done
fi
if ((parts == 0)); then echo "no part has a title that matches $only"; fi
((parts > 0 && ${#failed[@]} == 0))
