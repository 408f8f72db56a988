#!/usr/bin/env bash
# A small model trained on samples of 1024 tokens and continued on 16384: does its loss fall beyond 1024?
#
#   tools/case_long_context.sh [WORK_FOLDER] [PICTURE.svg]        default /tmp/case_long_context; about 1 GB there
#
# The text is the longest source files of the Linux kernel, headers of 512 KiB and more with the registers of AMD's
# graphics processors: the parts of a chip repeat each other's names hundreds to many thousands of tokens later. Those of
# the display are held out as a whole. In each 128 KiB of the training files the words of names are exchanged for others,
# at random, so that names cannot be learned by heart, only be read in what precedes. About an hour of two cores.
# Environment: PACKAGE (linux-source-6.1), SHORT_STEPS, SETTLE_STEPS, LONG_STEPS, COOL_STEPS, DOCUMENTS (held out,
# evaluated), TRIFOLD (build/release/launch/trifold). Needs a package list (apt-get update) and libsentencepiece0, which
# trifold uses.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
trifold=$(realpath "${TRIFOLD:-$root/build/release/launch/trifold}")
package=${PACKAGE:-linux-source-6.1}
work=${1:-/tmp/case_long_context}
picture=$(realpath -m "${2:-$work/positions.svg}")
mkdir -p "$work"
cd "$work"

download() { compgen -G "${1}_*.deb" >/dev/null || apt-get -q download "$1"; }

# train.jsonl, held.jsonl: a document a line, at most the first MiB of a file. sample.txt: a part of each for training.
extract() {
  rm -rf unpacked
  mkdir unpacked
  download "$package"
  dpkg-deb -x "$package"_*.deb unpacked
  find unpacked -name '*.tar.xz' -exec tar -xJf {} -C unpacked --wildcards '*/amd/include/asic_reg/*.h' \;
  python3 - <<'PYTHON'
import json, pathlib, random, re

DISPLAY = ("dcn", "dce", "dpcs")
KEPT = {"SHIFT", "MASK", "BASE", "IDX", "DEFAULT"}
rng = random.Random(1)
texts = {"train": [], "held": []}
for path in sorted(pathlib.Path("unpacked").rglob("*.h"), key=lambda p: (-p.stat().st_size, p.name)):
    if path.stat().st_size >= 2 ** 19:
        text = path.read_text("utf-8")
        part = "held" if path.parent.name.startswith(DISPLAY) else "train"
        texts[part].append(text[:text.find("\n", 2 ** 20) + 1 or None])
words = sorted({word for text in texts["train"] for word in re.findall("[A-Z]{3,12}", text)} - KEPT)

def renamed(text):
    names = dict.fromkeys(KEPT)
    order = rng.sample(words, len(words))
    def other(match):
        word = match.group()
        return word if word in KEPT else names.setdefault(word, order.pop() if word not in names and order else word)
    lines = []
    for line in text.splitlines():
        define = re.fullmatch(r"(#define \S+\s+)(.*)", line)
        name = re.sub("[A-Z]{3,}", other, define[1].rstrip() if define else line)
        lines.append((name.ljust(len(define[1]) - 1) + " " + define[2] if define else name) + "\n")
    return "".join(lines)

def pieces(text):
    part, size = [], 0
    for line in text.splitlines(True):
        part.append(line)
        size += len(line)
        if size >= 2 ** 17:
            yield "".join(part)
            part, size = [], 0

texts["train"] = [renamed(piece) for text in texts["train"] for piece in pieces(text)]
for name, documents in texts.items():
    with open(name + ".jsonl", "w", encoding="utf-8") as out:
        out.writelines(json.dumps({"text": text}) + "\n" for text in documents)
    print(f"{name}: {len(documents)} documents, {sum(map(len, documents))} bytes")
with open("sample.txt", "w", encoding="utf-8") as out:
    for text in texts["train"]:
        begin = text.find("\n", 60000) + 1
        out.write(text[begin:text.find("\n", begin + 6000) + 1])
PYTHON
}

# SentencePiece takes lines; white space counts in C, so nothing is normalised, and line ends and indents are tokens.
tokenize() {
  local train=spm_train part
  if ! command -v spm_train >/dev/null; then
    download sentencepiece
    dpkg-deb -x sentencepiece_*.deb unpacked
    train=unpacked/usr/bin/spm_train
  fi
  "$train" --input=sample.txt --model_prefix=registers --vocab_size=1024 --model_type=bpe --byte_fallback=true \
    --normalization_rule_name=identity --remove_extra_whitespaces=false --add_dummy_prefix=false \
    --allow_whitespace_only_pieces=true --split_by_unicode_script=false --max_sentencepiece_length=64 \
    --user_defined_symbols=$'\n' >spm.log 2>&1
  for part in train held; do
    "$trifold" tokenize --input "$part.jsonl" --output-prefix "$part" --tokenizer-type sentencepiece \
      --tokenizer-model registers.model
  done
}

[[ -e train.jsonl ]] || extract
[[ -e held_text_document.idx ]] || tokenize

# Embeddings serve input and output, so that a token that is found again can be copied at once. Half of each head's
# channels turn with wavelengths of up to 470 tokens, which 1024 have seen all of; the others match at any distance.
train=(pretrain --data-path train_text_document --split "100,0,0" --tokenizer-type sentencepiece
       --tokenizer-model registers.model --num-layers 3 --hidden-size 192 --num-attention-heads 2 --kv-channels 64
       --ffn-hidden-size 384 --position-embedding-type rope --rotary-percent 0.5 --rotary-base 100 --add-qkv-bias
       --qk-layernorm --normalization RMSNorm --swiglu --disable-bias-linear --init-method-std 0.06 --adam-beta2 0.98
       --bf16 --threads-per-rank 2)
# stage NAME LENGTH MICRO_BATCH BATCH STEPS OPTION...: trains unless a checkpoint NAME is there.
stage() {
  [[ -e $1 ]] || "$trifold" "${train[@]}" --save "$1" --log-json "$1.jsonl" --seq-length "$2" --micro-batch-size "$3" \
    --global-batch-size "$4" --train-iters "$5" "${@:6}"
}
# Small batches until the model has learned to copy, which shows as a fall of the loss; then large ones.
stage copying 1024 2 2 "${SHORT_STEPS:-5800}" --lr 2e-3 --lr-decay-style constant --lr-warmup-iters 60
stage short 1024 8 16 "${SETTLE_STEPS:-240}" --finetune --load copying --seed 99 --lr 2e-3 --min-lr 4e-4 \
  --lr-decay-style cosine --lr-warmup-iters 5
stage long 16384 1 1 "${LONG_STEPS:-720}" --finetune --load short --seed 5 --lr 1e-3 --lr-decay-style constant \
  --lr-warmup-iters 2
stage cooled 16384 1 1 "${COOL_STEPS:-80}" --finetune --load long --seed 6 --lr 1e-3 --min-lr 5e-5 \
  --lr-decay-style cosine --lr-warmup-iters 2
for model in short cooled; do
  echo "$model:"
  "$root/tools/loss_by_context.py" "$model.csv" --program "$trifold" --load "$model" --data-path held_text_document \
    --tokens 16384 --documents "${DOCUMENTS:-8}" --lengths 1024,2048,4096,8192,16384
done
"$root/tools/plot_positions.py" "$picture" "trained at 1024=short.csv" "continued at 16384=cooled.csv" --from 512 --parts 1 \
  --title "Loss by position, held-out register headers"
