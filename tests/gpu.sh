#!/usr/bin/env bash
# What a machine with an NVIDIA GPU can show, in calls of at most 8 minutes each, of which each is of use alone:
#
#   first   whether it works and where it stands, in less than 7 minutes: the libraries, what the card reaches, products
#           of experts to the last bit, operations and products against the processor, three steps of GPT-2 124M, most of
#           what no card has run since the last visit (tests/gpu/since.sh), kernels against the copy, steps of GPT-2 1558M
#   speed   how fast: steps of three sizes, with measured algorithms and on 8 bits, their forecasts, the five slowest
#           kernels under the profiler, the probe (tests/cuda/cuda_probe.cpp)
#   final   that training is right: curves beside the processor's, recommenders, graphs, races, parity of meshes
#   meshes  mixtures of experts, over ranks and NCCL too; positions that are cut over ranks; activations that leave the card
#   use     what users do with a card: resume, other meshes, tables and state in the memory of the host, an exported model,
#           adapters on quantized weights, moments in 8 bits (the rest of tests/gpu/since.sh)
#   torch   PyTorch at the three sizes, compiled as fast as it can at 124M, and its largest batch beside Trifold's
#   rehearse  single ranks of GPT-3 175B, Llama 3.1 405B and DeepSeek-V3, alone on the card, beside their plans
#   llama   steps in the shapes of Llama 3.1 8B, in bf16 and on 8 bits: 4 and 8 layers, and all 32 where they fit
#
#   tests/gpu.sh [options] [CALL...]    these calls, one after the other (default: all eight)
#     --no-build      what is built, also on a machine without compilers
#     --only REGEX    the parts whose title matches, with what is built
#     --seconds N     the clock of a call (default 470)
#     --part-seconds N   no part takes longer
#     --libraries     only which of NVIDIA's libraries are found where; 1 if one is missing
#
# A part has a limit of its own and what is left of the call's clock; one that fails or runs over does not stop the next.
# After every part the folder that OUT names (else build/gpu) has CALL.txt, the table; CALL.log, the end of every part's
# output; and CALL.jsonl, the figures; `speed` also probe.json.
#
# Exit status: 0 when all is well or there is no GPU (it says so); 1 with the failing parts named; 2 for unknown options.
# shellcheck disable=SC2034,SC2317  # variables of the files in tests/gpu; functions that are called through part()
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
    first | speed | final | meshes | use | torch | rehearse | llama) calls+=("$1") ;;
    *) sed -n '/^# shellcheck/q; 2,$s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
((${#calls[@]})) || calls=(first speed final meshes use torch rehearse llama)

# shellcheck source-path=SCRIPTDIR/..
source tests/gpu/libraries.sh
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

results=${OUT:-build/gpu}
out=build/gpu/work  # what parts write for themselves
mkdir -p "$results" "$out"
modules=$PWD/build/release/lib
trifold=build/release/launch/trifold
tests=build/release/tests
export TRIFOLD_MODULE_PATH=$modules TRIFOLD_TEST_DATA=$PWD/tests
source tests/gpu/parts.sh
source tests/gpu/speed.sh
source tests/gpu/since.sh
source tests/gpu/agreement.sh
source tests/gpu/recommender.sh
source tests/gpu/use.sh
source tests/gpu/rehearse.sh
source tests/gpu/llama.sh
trap finish EXIT

build() { cmake --preset release && cmake --build build/release --parallel "$(nproc)" --target gpu_programs; }

run_build() {
  call=build
  call_end=$((SECONDS + 3600))
  part "Build" 3600 build
}

first() {
  part "NVIDIA's libraries" 10 found_libraries
  part "What products reach" 25 products
  part "Products of experts, to the last bit and their speed" 25 expert_products
  part "Every operation against the processor" 60 limited "$tests/cuda/cuda_ops"
  part "Products and attention against f64" 40 limited "$tests/cuda/cuda_products"
  part "Three steps of GPT-2 124M" 20 three_steps
  for way in all_gather p2p; do
    part "Two context ranks on the card, $way in blocks of cuDNN" 25 context_blocks "$way"
  done
  part "Muon and moments in bf16 follow the processor" 25 other_updates
  part "Windows and sinks follow the processor" 18 windows
  part "Adapters on frozen weights follow the processor" 20 adapters
  part "8 bits in blocks follow the processor" 25 narrow_factors
  part "Memory-bound kernels, at least 0.8 of the copy" 45 kernels
  part "GPT-2 1558M, 4 micro-batches of 16" 55 step gpt2-1558m 48 1600 25 16 --global-batch-size 64
}

speed() {
  part "GPT-2 1558M, 4 micro-batches of 16" 100 step gpt2-1558m 48 1600 25 16 --global-batch-size 64
  part "GPT-2 124M" 40 step gpt2-124m 12 768 12 32
  part "GPT-2 355M" 45 step gpt2-355m 24 1024 16 16
  part "GPT-2 1558M, the fastest algorithms" 100 step gpt2-1558m-tuned 48 1600 25 16 --global-batch-size 64 \
    --tune-products "$out/products.json"
  part "GPT-2 124M, the fastest algorithms" 40 step gpt2-124m-tuned 12 768 12 32 --tune-products "$out/products.json"
  part "Forecast of GPT-2 1558M" 60 forecast gpt2-1558m 48 1600 25 16 --global-batch-size 64
  part "Forecast of GPT-2 124M" 30 forecast gpt2-124m 12 768 12 32
  part "Profile of the five slowest kernels" 75 profile
  part "GPT-2 124M on 8 bits" 40 step gpt2-124m-fp8 12 768 12 32 --fp8
  part "GPT-2 1558M on 8 bits" 100 step gpt2-1558m-fp8 48 1600 25 16 --global-batch-size 64 --fp8
  if is_hopper; then
    part "GPT-2 124M on 8 bits in blocks" 40 step gpt2-124m-fp8-blocks 12 768 12 32 --fp8 --fp8-recipe blockwise
    part "GPT-2 1558M on 8 bits in blocks" 100 step gpt2-1558m-fp8-blocks 48 1600 25 16 --global-batch-size 64 --fp8 \
      --fp8-recipe blockwise
  fi
  part "Probe of products, attention and the output's loss" 60 probe
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
  part "Thread ranks follow the processor over every axis" 60 limited "$tests/fake_device/parity_device"
  part "Memory that kernels touch" 60 sanitized memcheck
  positions=512 part "BERT-large, whose samples have lengths" 45 step bert-large 24 1024 16 32 --model-type bert
}

meshes() {
  part "A mixture of experts follows the processor, 50 steps to 1e-3" 50 gently follows experts 50 1e-3 1 "${experts[@]}"
  part "The same over two thread ranks on the card, in rounds" 60 gently follows experts-ep2 50 1e-3 1 "${experts[@]}" \
    --ranks 2 --ep 2 --moe-buffer-factor 0.75
  part "The same over NCCL" 60 gently experts_over_nccl
  part "Biases of routers follow the processor's, bf16" 50 gently follows experts-bias 100 0.01 20 "${experts[@]}" \
    --bf16 --moe-router-score-function sigmoid --moe-router-enable-expert-bias
  for way in all_gather p2p a2a; do
    part "Two context ranks on the card, $way, follow the processor" 50 follows "context-$way" 50 1e-4 1 --ranks 2 --cp 2 \
      --cp-comm-type "$way"
  done
  part "Activations that leave the card change no bit" 50 activations_leave
  part "Products of experts, to the last bit and their speed" 25 expert_products
  part "Step of a mixture of experts, 8 of width 1024" 60 step experts-1024 12 1024 16 8 "${experts[@]:2}"
}

use() {
  part "A run that is resumed has the same bits" 40 resumes
  part "CUDA graphs and pipeline ranks on the card have the same bits" 60 same_on_meshes
  part "The processor evaluates a checkpoint of the card" 30 evaluates_elsewhere
  part "Tables in the memory of the host and in files have the same bits" 60 tables_elsewhere
  part "The optimizer's state in the memory of the host changes no bit" 30 state_elsewhere
  part "An exported GPT-2 follows the processor" 20 exported_model
  part "Adapters on weights in 8 and 4 bits follow the processor" 50 quantized_adapters
  part "Moments in 8 bits follow the processor" 30 moments_in_8_bits
}

torch() {
  if ! python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    echo "PyTorch: skipped, python3 has no torch that sees the GPU"
    return
  fi
  part "PyTorch 1558M" 220 torch_step --layers 48 --width 1600 --heads 25 --batch 16
  part "PyTorch 124M" 80 torch_step --layers 12 --width 768 --heads 12 --batch 32
  part "PyTorch 355M" 120 torch_step --layers 24 --width 1024 --heads 16 --batch 16
  part "Largest batch of GPT-2 355M" 70 largest
  part "PyTorch 355M, its largest batch" 200 torch_step --layers 24 --width 1024 --heads 16 --batch 32 --largest
  part "PyTorch 124M, bf16 parameters, max-autotune" 300 torch_step --layers 12 --width 768 --heads 12 --batch 32 \
    --bf16-parameters --max-autotune
}

rehearse() {
  part "First rank of GPT-3 175B, tp 8, pp 16, dp 12" 90 rehearsed gpt-175b --only-ranks 0 --steps 2
  part "Last rank of GPT-3 175B, 16 micro-batches" 60 rehearsed gpt-175b --only-ranks 1535 --steps 2 --micro-batches 16
  part "The same, with the planned time of its peers" 60 rehearsed gpt-175b --only-ranks 0 --steps 2 --micro-batches 16 \
    --wait planned
  part "Second pipeline rank of Llama 3.1 405B" 90 rehearsed llama-405b --only-ranks 1024 --steps 2
  part "Ranks of DeepSeek-V3 over 64 expert ranks, 16 micro-batches" 120 rehearsed deepseek-v3 --only-ranks 0,896 --steps 2 \
    --micro-batches 16
}

llama() {
  part "4 and 8 layers of Llama 3.1 8B, bf16" 60 llama_pair llama-8b
  part "4 and 8 layers of Llama 3.1 8B on 8 bits" 60 llama_pair llama-8b-fp8 --fp8
  if is_hopper; then
    part "4 and 8 layers of Llama 3.1 8B on 8 bits in blocks" 60 llama_pair llama-8b-fp8-blocks --fp8 --fp8-recipe blockwise
  fi
  part "Llama 3.1 8B, all 32 layers, bf16" 115 llama_whole llama-8b-whole
  part "Llama 3.1 8B, all 32 layers on 8 bits" 115 llama_whole llama-8b-whole-fp8 --fp8
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
