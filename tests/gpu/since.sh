# shellcheck shell=bash
# Runs of what no card has run since the last visit, commit 2534c6fc, for tests/gpu.sh: each on the card and on the
# processor. Operations are in cuda_ops, the speed of kernels in op_bench.
# shellcheck disable=SC2154,SC2317,SC2034  # variables of tests/gpu.sh and parts.sh; functions called through part()

# Two context ranks on the card, whose attention cuDNN computes in blocks (ops/cuda/attention_blocks.h).
context_blocks() {
  local length=512 batch=2
  follows "blocks-$1" 40 0.01 10 --bf16 --ranks 2 --cp 2 --cp-comm-type "$1" --attention-dropout 0 --hidden-dropout 0
}

# Muon, moments in bf16 that are rounded at random, and averages of weights.
other_updates() {
  follows muon 60 0.01 20 --bf16 --optimizer muon --muon-extra-scale-factor 0.2 &&
    follows moments 60 0.01 20 --bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16
}

# Windows in every second layer, sinks and grouped keys, as gpt-oss has them.
windows() {
  follows windows 60 0.01 20 --bf16 --window-size 20,0 --window-attn-skip-freq 2 --softmax-type learnable --swiglu \
    --normalization RMSNorm --group-query-attention --num-query-groups 2 --position-embedding-type rope
}

# Whether the card has products with scales of blocks.
is_hopper() { [[ $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1) == 9.0 ]]; }

# Products whose factors have scales of blocks; samples have whole blocks of positions.
narrow_factors() {
  is_hopper || { row "8 bits in blocks: left out, the card is no Hopper"; return 0; }
  local length=128 batch=4
  follows fp8-blocks 40 0.01 10 --bf16 --fp8 --fp8-recipe blockwise
}

# Adapters on frozen weights, which the processor trained.
adapters() {
  rm -rf "$out/base"
  curve cpu base 40 --save "$out/base" && follows adapters 40 1e-3 1 --load "$out/base" --lora-rank 4
}

# The same on weights in 8 and in 4 bits.
quantized_adapters() {
  rm -rf "$out/base"
  curve cpu base 40 --save "$out/base" || return 1
  local form
  for form in int8 nf4; do
    follows "adapters-$form" 40 0.01 10 --bf16 --load "$out/base" --lora-rank 4 --quantize-base "$form" || return 1
  done
}

# Moments of 8 bits that are rounded at random.
moments_in_8_bits() { follows moments-fp8 60 0.01 20 --bf16 --exp-avg-dtype fp8 --exp-avg-sq-dtype fp8; }

# The steps of a GPT-2 that PyTorch exported, whose operations are strided.
exported_model() {
  local device name model=tests/data/own_models/gradients/gpt2
  local -a arrays
  mapfile -t arrays < <(TRIFOLD=$trifold TRIFOLD_ROOT=. python3 - "$out" <<'PY'
import pathlib, random, sys
sys.path.insert(0, "tests/cli")
from own_models import MODELS, inputs_of, write_npy
import json
rng = random.Random(5)
for key, (dims, rows) in inputs_of(json.loads((MODELS / "gpt2.json").read_text())).items():
    numbers = [number for row in rows for number in row]
    path = pathlib.Path(sys.argv[1]) / f"exported_{key}.npy"
    write_npy(path, [[rng.choice(numbers) for _ in rows[0]] for _ in range(60)], dims)
    print(f"{key}={path}")
PY
)
  ((${#arrays[@]})) || return 1
  for device in cuda cpu; do
    name=$([[ $device == cuda ]] && echo gpu || echo cpu)
    rm -f "$out/$name-exported.jsonl"
    limited "$trifold" pretrain --model $model.pt2 --arrays "${arrays[@]}" --device $device --global-batch-size 8 \
      --micro-batch-size 2 --train-iters 20 --lr 1e-3 --lr-decay-style constant --split 90,10,0 \
      --log-json "$out/$name-exported.jsonl" || return 1
  done
  same_losses exported 1e-3 1
}
