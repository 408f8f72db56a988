#!/usr/bin/env bash
# A language model of C, streamed: GPT-2 in a size that two cores train in half an hour, on the C sources of a Debian
# package, with a SentencePiece tokenizer trained on them; bits per byte of files it has not seen, next to xz -9.
#
#   tools/case_study_c.sh [WORK_FOLDER]        default /tmp/case_study_c; about 3 GB there
#
# Environment: PACKAGE (linux-source-6.1), ITERS (steps, 2000), TRIFOLD (build/release/launch/trifold).
# Needs the Debian packages sentencepiece and xz-utils, and a package list to find PACKAGE in (apt-get update).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-/tmp/case_study_c}
package=${PACKAGE:-linux-source-6.1}
iters=${ITERS:-2000}
trifold=${TRIFOLD:-$root/build/release/launch/trifold}
mkdir -p "$work"
cd "$work"

# C sources, those that are UTF-8. Every hundredth file, by the sum of its name, is held out.
extract() {
  rm -rf unpacked train held
  mkdir -p unpacked train held
  apt-get -q download "$package"
  dpkg-deb -x "$package"_*.deb unpacked
  find unpacked -name '*.tar.xz' -exec tar -xJf {} -C unpacked --wildcards '*.c' '*.h' \;
  find unpacked \( -name '*.c' -o -name '*.h' \) -type f | LC_ALL=C sort | while IFS= read -r file; do
    iconv -f UTF-8 -t UTF-8 "$file" >/dev/null 2>&1 || continue
    local sum name
    sum=$(cksum <<<"$file")
    name=${file#unpacked/}
    if ((${sum%% *} % 100 == 0)); then cp "$file" "held/${name//\//__}"; else cp "$file" "train/${name//\//__}"; fi
  done
  rm -rf unpacked
  touch extracted
}

[[ -e extracted ]] || extract
echo "training on $(du -sb train | cut -f1) bytes, held out $(du -sb held | cut -f1)"
if [[ ! -e c.model ]]; then
  # SentencePiece takes lines; white space counts in C, so nothing is normalised and line ends stay tokens.
  find train -type f | LC_ALL=C sort | awk 'NR % 40 == 1' | xargs cat >sample.txt
  spm_train --input=sample.txt --model_prefix=c --vocab_size=8192 --model_type=bpe --byte_fallback=true \
    --normalization_rule_name=identity --remove_extra_whitespaces=false --add_dummy_prefix=false \
    --user_defined_symbols=$'\n',$'\t' --input_sentence_size=200000 --shuffle_input_sentence=true >spm.log 2>&1
fi
model=(--tokenizer-type sentencepiece --tokenizer-model c.model)
"$trifold" pretrain --data-path train --split 1 "${model[@]}" --num-layers 4 --hidden-size 256 --num-attention-heads 4 \
  --seq-length 256 --micro-batch-size 8 --global-batch-size 16 --lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine \
  --lr-warmup-iters 100 --adam-beta2 0.99 --weight-decay 0.1 --train-iters "$iters" --save model --save-interval 250 \
  --auto-resume --log-json log.jsonl
# Nats a token times tokens a byte: the loss over the held-out files in bits per byte.
"$trifold" evaluate --load model --data-path held --split 0,1 --log-json eval.jsonl
bytes=$(find held -type f -exec cat {} + | wc -c)
python3 - "$bytes" "$(find held -type f -print0 | LC_ALL=C sort -z | xargs -0 cat | xz -9 -c | wc -c)" <<'PYTHON'
import json, math, sys
size, packed = map(int, sys.argv[1:])
last = [json.loads(line) for line in open("eval.jsonl", encoding="utf-8")][-1]
tokens = last["tokens"]
print(f"held out: {size} bytes, {tokens} tokens, {last['valid_loss']:.4f} nats a token")
print(f"model {last['valid_loss'] * tokens / math.log(2) / size:.3f} bits a byte, xz -9 {8 * packed / size:.3f}")
PYTHON
