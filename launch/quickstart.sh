#!/usr/bin/env bash
# From a fresh machine to a trained model in a few minutes: installs what is missing, builds the program, trains a small
# GPT on the text in data/tinyshakespeare.txt over two ranks, lets it write a few lines and draws its loss curve.
#
#   launch/quickstart.sh [OUT]    OUT: a new folder for the results; default quickstart_out, then quickstart_out.2, ...
#
# The results of earlier runs are never changed.
set -euo pipefail
cd "$(dirname "$0")/.."

headline() { printf '\n== %s\n' "$*"; }

# The folder for the results: the given one, else the first free one.
new_folder() {
  local folder=${1:-quickstart_out} number=2
  if [[ -n ${1:-} && -e $1 ]]; then
    echo "'$1' exists already: name a new folder" >&2
    return 2
  fi
  while [[ -e $folder ]]; do
    folder=quickstart_out.$number
    number=$((number + 1))
  done
  echo "$folder"
}

case ${1:-} in -*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
out=$(new_folder "${1:-}")
trifold=build/release/launch/trifold
ranks=$(($(nproc) < 2 ? 1 : 2))

headline "Packages"
tools/install_dependencies.sh --program
headline "Building the program (a few minutes the first time; build/quickstart.log has the details)"
tools/build_program.sh
mkdir -p "$out"

headline "Training: 0.8 million parameters, 2000 steps of 12 sequences of 64 characters, $ranks rank(s)"
"$trifold" pretrain \
  --num-layers 4 --num-attention-heads 4 --hidden-size 128 --seq-length 64 \
  --micro-batch-size $((12 / ranks)) --global-batch-size 12 --ranks "$ranks" --train-iters 2000 \
  --lr 1e-3 --min-lr 1e-4 --lr-decay-style cosine --lr-warmup-iters 100 \
  --adam-beta2 0.99 --weight-decay 0.1 --clip-grad 1.0 \
  --data-path data/tinyshakespeare.txt --split 90,10,0 --eval-interval 250 --eval-iters 20 \
  --save "$out/checkpoint" --log-json "$out/log.jsonl"

headline "Sample that continues 'ROMEO:'"
"$trifold" generate --load "$out/checkpoint" --prompt "ROMEO:" --max-new-tokens 300 | tee "$out/sample.txt"

headline "Loss curve"
tools/plot_loss.py "$out/log.jsonl" "$out/loss.png" "$out/loss.svg" \
  --title "GPT, 4 layers of width 128, on the characters of Shakespeare"

headline "Done in $SECONDS s"
cat <<END
  picture      $out/loss.png (and loss.svg)
  checkpoint   $out/checkpoint
  log          $out/log.jsonl, one JSON object a step

Try next:
  $trifold inspect $out/checkpoint
  $trifold generate --load $out/checkpoint --prompt "To be, or" --max-new-tokens 200
  $trifold pretrain --help
END
