#!/usr/bin/env bash
# A language model of C, streamed: GPT-2 in a size that two cores train in half an hour, on the C sources of a Debian
# package, with a SentencePiece tokenizer trained on them; bits per byte of files it has not seen, next to xz -9.
#
#   tools/case_study_c.sh [WORK_FOLDER]        default /tmp/case_study_c; about 3 GB there
#
# Environment: PACKAGE (linux-source-6.1), ITERS (steps, 3600), TRIFOLD (build/release/launch/trifold).
# Needs the Debian packages sentencepiece and xz-utils, and a package list to find PACKAGE in (apt-get update).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
work=${1:-/tmp/case_study_c}
package=${PACKAGE:-linux-source-6.1}
iters=${ITERS:-3600}
trifold=${TRIFOLD:-$root/build/release/launch/trifold}
mkdir -p "$work"
cd "$work"

# C sources, those that are UTF-8, under their paths; one of 200, by the sum of its path, is held out.
extract() {
  rm -rf unpacked train held
  mkdir unpacked
  compgen -G "${package}_*.deb" >/dev/null || apt-get -q download "$package"
  dpkg-deb -x "$package"_*.deb unpacked
  find unpacked -name '*.tar.xz' -exec tar -xJf {} -C unpacked --wildcards '*.c' '*.h' \;
  python3 - <<'PYTHON'
import pathlib, zlib
for path in sorted(p for p in pathlib.Path("unpacked").rglob("*.[ch]") if p.is_file() and not p.is_symlink()):
    name = path.relative_to("unpacked")
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        continue
    target = ("held" if zlib.crc32(str(name).encode()) % 200 == 0 else "train") / name
    target.parent.mkdir(parents=True, exist_ok=True)
    path.rename(target)
PYTHON
  rm -rf unpacked
  touch extracted
}

[[ -e extracted ]] || extract
held() { find held -type f -print0 | LC_ALL=C sort -z | xargs -0 cat; }
bytes=$(held | wc -c)
echo "training on $(find train -type f -print0 | xargs -0 cat | wc -c) bytes, held out $bytes"
if [[ ! -e c.model ]]; then
  # SentencePiece takes lines; white space counts in C, so nothing is normalised, line ends and indents are tokens.
  find train -type f | LC_ALL=C sort | awk 'NR % 40 == 1' | tr '\n' '\0' | xargs -0 cat >sample.txt
  spm_train --input=sample.txt --model_prefix=c --vocab_size=8192 --model_type=bpe --byte_fallback=true \
    --normalization_rule_name=identity --remove_extra_whitespaces=false --add_dummy_prefix=false \
    --allow_whitespace_only_pieces=true --user_defined_symbols=$'\n,\t,\t\t,\t\t\t' --input_sentence_size=200000 \
    --shuffle_input_sentence=true >spm.log 2>&1
fi
"$trifold" pretrain --data-path train --split 1 --tokenizer-type sentencepiece --tokenizer-model c.model \
  --num-layers 4 --hidden-size 256 --num-attention-heads 4 --seq-length 256 --micro-batch-size 16 \
  --global-batch-size 16 --lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --lr-warmup-iters 100 --adam-beta2 0.99 \
  --weight-decay 0.1 --bf16 --train-iters "$iters" --save model --save-interval $((iters / 6)) --auto-resume --log-json log.jsonl
# Nats a token times tokens a byte: the loss over the held-out files in bits per byte.
for checkpoint in model/step_*; do
  "$trifold" evaluate --load "$checkpoint" --data-path held --split 0,1 --log-json "eval_${checkpoint##*_}.jsonl" >/dev/null
done
python3 - "$bytes" "$(held | xz -9 -c | wc -c)" <<'PYTHON'
import glob, json, math, sys
size, packed = map(int, sys.argv[1:])
for name in sorted(glob.glob("eval_*.jsonl")):
    last = [json.loads(line) for line in open(name, encoding="utf-8")][-1]
    bits = last["valid_loss"] * last["tokens"] / math.log(2) / size
    print(f"step {last['step']}: {last['valid_loss']:.4f} nats a token, {size / last['tokens']:.2f} bytes a token, {bits:.3f} bits a byte")
print(f"held out: {size} bytes; xz -9 {8 * packed / size:.3f} bits a byte")
PYTHON
