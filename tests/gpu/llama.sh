# shellcheck shell=bash
# Steps in the shapes of Llama 3.1 8B, samples of 8192 tokens, for tests/gpu.sh. The published figures are torchtitan's
# for 8 H100 of 96 GB at 500 W with FSDP and torch.compile, 2 samples a card (benchmarks/llama3_h100_202412_torchtitan.md):
# 6667 tokens/s a card in bf16, 8532 with Float8.
# shellcheck disable=SC2154,SC2317  # variables of tests/gpu.sh and parts.sh; functions called through part()

# The options of the model but its layers. Selective recomputation is torchtitan's too.
llama=(--hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 --seq-length 8192
  --max-position-embeddings 8192 --vocab-size 128256 --untie-embeddings-and-output-weights --position-embedding-type rope
  --rotary-base 500000 --use-rope-scaling --normalization RMSNorm --swiglu --disable-bias-linear --group-query-attention
  --num-query-groups 8 --attention-dropout 0 --hidden-dropout 0 --bf16 --recompute-granularity selective)

# llama_step NAME LAYERS MORE...
llama_step() {
  local name=$1 layers=$2 json=$out/$1.json text
  shift 2
  rm -f "$json"
  watched limited "$trifold" bench --what step --device cuda "${llama[@]}" --num-layers "$layers" --json "$json" "$@" || return 1
  text=$(python3 - "$json" "$name" "$peak" <<'PY'
import json, sys
b = json.load(open(sys.argv[1]))
b = b.get("step", b)
print(f"{sys.argv[2]}: {b['tokens_per_second']:.0f} tokens/s, step of {1e3 * b['seconds']:.1f} ms, peak {int(sys.argv[3]) / 1024:.1f} GiB")
PY
) || return 1
  keep "$name" "$json"
  row "$text"
}

# llama_pair NAME MORE...: steps of 4 and of 8 layers, which need 42 and 62 GiB, and the rate of 32 layers of which each
# takes a quarter of the difference: without the update's traffic between cards, and with all memory a card can have.
llama_pair() {
  local name=$1 text
  shift
  llama_step "$name-4" 4 --micro-batch-size 2 --global-batch-size 2 --warmup-iters 2 --iters 6 "$@" &&
    llama_step "$name-8" 8 --micro-batch-size 2 --global-batch-size 2 --warmup-iters 2 --iters 6 "$@" || return 1
  text=$(python3 - "$out/$name-4.json" "$out/$name-8.json" "$name" <<'PY'
import json, sys
def seconds(path):
    b = json.load(open(path))
    return b.get("step", b)["seconds"]
four, eight = seconds(sys.argv[1]), seconds(sys.argv[2])
whole = eight + 24 * (eight - four) / 4
published = 8532 if "fp8" in sys.argv[3] else 6667
print(f"{sys.argv[3]}: 32 layers from 4 and 8: {2 * 8192 / whole:.0f} tokens/s; torchtitan's published figure: {published}")
PY
) || return 1
  row "$text"
}

# Bytes of the worst rank of a plan, and bytes that it keeps in the memory of the host.
planned_bytes() {
  python3 - "$1" <<'PY'
import json, sys
ranks = json.load(open(sys.argv[1]))["pipeline_ranks"]
print(max(rank["bytes"] for rank in ranks), max(rank.get("offloaded_bytes", 0) for rank in ranks))
PY
}

# llama_whole NAME MORE...: all 32 layers, with the optimizer's state (90 GiB) in the memory of the host; a row says so
# where the card or the host has too little for it.
llama_whole() {
  local name=$1 needed kept card host
  local -a run=(--micro-batch-size 1 --global-batch-size 8 --offload host)
  shift
  limited "$trifold" plan --device cuda "${llama[@]}" --num-layers 32 --ranks 1 "${run[@]}" "$@" --json "$out/llama-plan.json" ||
    return 1
  read -r needed kept < <(planned_bytes "$out/llama-plan.json") || return 1
  card=$(($(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1) << 20))
  host=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo) << 10))
  if ((needed * 100 > card * 97 || kept * 100 > host * 95)); then
    row "$name: left out, it needs $((needed >> 30)) of $((card >> 30)) GiB on the card and $((kept >> 30)) of $((host >> 30)) in the host"
    return 0
  fi
  llama_step "$name" 32 --warmup-iters 1 --iters 2 "${run[@]}" "$@"
}
