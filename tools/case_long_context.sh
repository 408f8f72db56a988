#!/usr/bin/env bash
# A small model trained on windows of 1024 bytes and continued on 16384: does its loss fall beyond position 1024?
#
#   tools/case_long_context.sh FOLDER [PICTURE.svg]
#
# The text is the source of Python's standard library on this machine: files of 32 KiB and more, one in thirteen held
# out. About 25 minutes of one core. TRIFOLD names the program; SHORT_STEPS, LONG_STEPS and EVAL_BATCHES change lengths.
set -euo pipefail
trifold=$(realpath "${TRIFOLD:-build/release/launch/trifold}")
tools=$(dirname "$(realpath "$0")")
folder=$1
picture=$(realpath -m "${2:-$folder/positions.svg}")
mkdir -p "$folder"
cd "$folder"

python3 - <<'PYTHON'
import os
import pathlib

files = sorted(path for path in pathlib.Path(os.__file__).parent.rglob("*.py")
               if path.stat().st_size >= 32768 and "site-packages" not in path.parts and "pydoc_data" not in path.parts)
for name, chosen in (("train", [f for i, f in enumerate(files) if i % 13 != 6]), ("held-out", files[6::13])):
    pathlib.Path(name + ".txt").write_bytes(b"".join(path.read_bytes() for path in chosen))
    print(f"{name}: {len(chosen)} files")
PYTHON

model=(--num-layers 3 --hidden-size 128 --num-attention-heads 2 --position-embedding-type rope --normalization RMSNorm
       --swiglu --disable-bias-linear --untie-embeddings-and-output-weights)
train=(pretrain --data-path train.txt --split "100,0,0" "${model[@]}" --adam-beta2 0.98 --threads-per-rank 1)
"$trifold" "${train[@]}" --seq-length 1024 --micro-batch-size 4 --global-batch-size 4 --train-iters "${SHORT_STEPS:-2000}" \
  --lr 2e-3 --lr-decay-style constant --lr-warmup-iters $((${SHORT_STEPS:-2000} / 40)) --save short
"$trifold" "${train[@]}" --seq-length 16384 --rotary-base 160000 --finetune --load short --micro-batch-size 1 \
  --global-batch-size 1 --train-iters "${LONG_STEPS:-60}" --lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --save long
for stage in short long; do
  "$trifold" evaluate --load "$stage" --data-path held-out.txt --split 0,100,0 --seq-length 16384 --micro-batch-size 1 \
    --eval-iters "${EVAL_BATCHES:-20}" --threads-per-rank 1 --loss-by-position "$stage.csv"
done
"$tools/plot_positions.py" "$picture" "trained at 1024=short.csv" "continued at 16384=long.csv" \
  --title "Loss by position, held-out Python source"
