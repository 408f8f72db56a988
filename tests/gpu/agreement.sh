# shellcheck shell=bash
# Checks that the GPU computes the same as the processor, for tests/gpu.sh.
# shellcheck disable=SC2154,SC2317  # variables of tests/gpu.sh and parts.sh; functions called through part()

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

# The contract of communicators, with as many ranks as there are GPUs; one rank without an MPI to start more.
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

rates=(--lr 1e-3 --min-lr 1e-4)

# gently COMMAND...: its runs at lower rates. Runs of a mixture part where rounding makes a router choose another expert.
# At the rates above, runs on the processor with its different instruction sets and in f64 (two seeds) are up to 2 % apart
# within 50 steps, and in bf16 the mean of the last 20 of 100 losses is; at these rates 0.02 % (five seeds) and 0.12 %
# (two). The tolerances are 6 to 8 times that.
gently() {
  local rates=(--lr 3e-4 --min-lr 3e-5)
  "$@"
}

# curve DEVICE NAME STEPS PRECISION...: the losses of a short run on Shakespeare, of samples of 64 positions, 12 at once, or as
# many as `length` and `batch` say.
curve() {
  local device=$1 name=$2 steps=$3
  shift 3
  rm -f "$out/$name.jsonl"
  limited "$trifold" pretrain --device "$device" --data-path data/tinyshakespeare.txt --split 90,10,0 --num-layers 4 \
    --hidden-size 128 --num-attention-heads 4 --seq-length "${length:-64}" --micro-batch-size "${batch:-12}" "${rates[@]}" \
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

# A mixture of experts, of which a token chooses 2.
experts=(--moe-ffn-hidden-size 128 --num-experts 8 --moe-aux-loss-coeff 0.01 --normalization RMSNorm --swiglu
  --disable-bias-linear --position-embedding-type rope)

# The experts over as many ranks as there are GPUs, each with one, beside as many thread ranks on the processor.
experts_over_nccl() {
  local gpus start shared
  gpus=$(count_gpus)
  if ((gpus < 2)) || ! command -v mpiexec >/dev/null || [[ ! -e $modules/trifold_mpi.so ]]; then
    row "experts over NCCL: skipped, for there are no two GPUs with an mpiexec"
    return 0
  fi
  shared=$((gpus >= 8 ? 8 : gpus >= 4 ? 4 : 2))
  start=(mpiexec -n "$shared")
  [[ $(mpiexec --version) =~ Open\ MPI|OpenRTE|PRRTE ]] && start=(mpiexec --allow-run-as-root --oversubscribe -n "$shared")
  local plain=$trifold trifold
  trifold=$out/over_ranks
  printf '#!/bin/sh\nexec %s "$@"\n' "${start[*]} $PWD/$plain" >"$trifold"
  chmod +x "$trifold"
  curve cuda gpu-experts-nccl 50 "${experts[@]}" --ep "$shared" || return 1
  trifold=$plain
  curve cpu cpu-experts-nccl 50 "${experts[@]}" --ranks "$shared" --ep "$shared" || return 1
  same_losses experts-nccl 1e-3 1
}

# Two runs on the card, of which one off-loads: the same numbers.
activations_leave() {
  curve cuda gpu-leave 50 --bf16 --cpu-offloading-num-layers 3 && curve cuda cpu-leave 50 --bf16 || return 1
  same_losses leave 0 1
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
