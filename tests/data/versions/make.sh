#!/bin/sh
# Runs small jobs of every command with one version of the program, and packs what they read, wrote and printed:
#
#   tests/data/versions/make.sh build/release/launch/trifold tests/data/versions/NAME
#
# writes NAME.tar.xz, with the folders and files that the jobs below name, and
#   lines.tsv       the command lines in order, a line each: a name and the arguments, separated by tabs
#   folder.txt      the folder in which they ran, whose name is in checkpoints
#   printed/NAME    what a command wrote to standard output
#   sums.txt        SHA-256 of the files of the outputs that are not kept
# Jobs whose options a version lacks are left out. NAME itself is a scratch folder, removed at the end.
set -eu
program=$(realpath "$1")
mkdir "$2"
folder=$(realpath "$2")
root=$(realpath "$(dirname "$0")/../../..")
cd "$folder"
pwd -P > folder.txt
mkdir printed
: > lines.tsv

# Runs the program, and keeps the line and what it prints.
job() {
  name=$1
  shift
  { printf '%s' "$name"; printf '\t%s' "$@"; printf '\n'; } >> lines.tsv
  "$program" "$@" > "printed/$name" 2> messages || { cat messages; echo "job $name failed"; exit 1; }
}

# Whether a command of this version has an option.
knows() { "$program" "$1" --help 2>&1 | grep -q -e "$2"; }

# Pseudo-random numbers that are the same with every awk: Lehmer's generator, whose products are exact in doubles.
random='function draw(n) { seed = seed * 16807 % 2147483647; return int(seed / 100) % n } BEGIN { seed = 11 * day + 7 }'

# Inputs: two small tokenizers, text, records, labelled texts, and two days of two click logs.
words='the cat dog sat ran on to sea sun mat + * . 0 1 2 3 4 5 6 7 8'
number='{ printf "%s\"%s\": %d", separator, $0, i++; separator = ", " }'
special() { printf '{"id": %s, "content": "%s", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}' "$1" "$2"; }
{
  printf '{"version": "1.0", "truncation": null, "padding": null, "added_tokens": ['
  printf '%s, %s, %s, %s, %s' "$(special 0 '[PAD]')" "$(special 1 '[UNK]')" "$(special 2 '[CLS]')" "$(special 3 '[SEP]')" "$(special 4 '[MASK]')"
  printf '], "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true}, '
  printf '"pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": null, '
  printf '"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}, "model": {"type": "WordPiece", "unk_token": "[UNK]", '
  printf '"continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {'
  printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' $(set -f; echo $words) | awk "$number"
  printf '}}}\n'
} > words.json
{
  printf '{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [%s], "normalizer": null, ' "$(special 0 '<|endoftext|>')"
  printf '"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}, "post_processor": null, '
  printf '"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}, "model": {"type": "BPE", '
  printf '"dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "vocab": {'
  printf '%s\n' '<|endoftext|>' Ġ Ċ . a c d e g h m n o r s t u he the at | awk "$number"
  printf '}, "merges": ["h e", "t he", "a t"]}}\n'
} > letters.json
awk -v words="$words" -v day=4 "$random"' BEGIN { split(words, word); for (i = 0; i < 80; ++i) {
    line = word[1 + draw(10)]
    for (j = 2 + draw(7); j > 0; --j) line = line " " word[1 + draw(10)]
    print line " ." (i % 4 == 3 ? "\n" : "") } }' > text.txt
awk '/./ { printf "{\"text\": \"%s\"}\n", $0 }' text.txt > records.jsonl
for part in train dev; do
  awk -v day=${#part} "$random"' BEGIN { print "label\ttext"; for (i = 0; i < 24; ++i) {
      mark = draw(2); print (mark ? "plus" : "star") "\tcat " (mark ? "+" : "*") " dog " draw(9) } }' > $part.tsv
done
for day in 1 2; do
  awk -v day=$day "$random"' BEGIN { for (i = 0; i < 60; ++i) {  # as Criteo: a label, 13 numbers, 26 hexadecimal ids
      line = draw(2)
      for (j = 0; j < 13; ++j) line = line "\t" (draw(9) ? draw(20) - 1 : "")
      for (j = 0; j < 26; ++j) line = line "\t" (draw(9) ? sprintf("%08x", 305419896 + 1000 * j + draw(3 + day)) : "")
      print line } }' > criteo$day.tsv
  awk -v day=$day "$random"' BEGIN {
      print "click,stars,age,user,code,tags,words,item,history"
      for (i = 0; i < 80; ++i) {
        user = draw(9 + 3 * day); item = draw(7 + 2 * day); tags = words = history = ""
        for (j = draw(4); j > 0; --j) tags = tags (tags == "" ? "" : "|") "t" draw(6)
        for (j = draw(3); j > 0; --j) words = words (words == "" ? "" : "|") "w" draw(5) ":" draw(4) / 2
        for (j = draw(5); j > 0; --j) history = history (history == "" ? "" : "|") "i" draw(9)
        print (draw(3) + user % 3 > 2 ? 1 : 0) "," (draw(4) ? draw(6) : "") "," (draw(8) ? draw(60) + 18 : "") ",u" user "," \
          (draw(2) ? draw(3) ".0" : "0" draw(3)) "," tags "," words ",i" item "," history } }' > log$day.csv
done
awk -v day=3 "$random"' BEGIN { print "label,I1,I2,C1,C2"
    for (i = 0; i < 80; ++i) print draw(2) "," draw(9) "," draw(50) "," draw(12) "," draw(5) }' > plain.csv
printf '{"base": "h100", "name": "mine"}\n' > device.json

one='--threads-per-rank 1'
shape='--num-layers 2 --hidden-size 4 --ffn-hidden-size 8 --num-attention-heads 2 --seq-length 16 --make-vocab-size-divisible-by 8'
steps="--micro-batch-size 2 --global-batch-size 8 --lr 1e-2 --lr-decay-style constant --log-interval 1 $one"
evaluated='--split 90,10,0 --eval-interval 3 --eval-iters 1'

# Text.
letters='--tokenizer-type huggingface --tokenizer-model letters.json'
job tokenize tokenize --input records.jsonl --output-prefix pair $letters --append-eod
gpt="$shape $steps $evaluated --data-path pair_text_document $letters"
job gpt pretrain $gpt --train-iters 3 --ranks 8 --tp 2 --pp 2 --sequence-parallel --zero-stage 2 --save gpt --log-json gpt.jsonl
job gpt_resumed pretrain $gpt --train-iters 6 --load gpt --log-json gpt_resumed.jsonl
job gpt_evaluated evaluate --load gpt --data-path pair_text_document --split 90,10,0 --log-json gpt_evaluated.jsonl $one
job gpt_generated generate --load gpt --prompt 'the cat' --max-new-tokens 20 --num-samples 2 --seed 5 $one
job gpt_resharded reshard --load gpt --save resharded --pp 2 --ranks 2 --zero-stage 1
job gpt_converted convert --load gpt --save converted_gpt
job gpt_inspected inspect gpt --verify
job bytes tokenize --input text.txt --output-prefix bytes
llama="$shape $steps --data-path records.jsonl $letters --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear
  --group-query-attention --num-query-groups 1 --untie-embeddings-and-output-weights --optimizer sgd --split 1,0,0"
job llama pretrain $llama --train-iters 3 --ranks 2 --zero-stage 1 --save llama --log-json llama.jsonl
job llama_resumed pretrain $llama --train-iters 5 --load llama --log-json llama_resumed.jsonl
job llama_evaluated evaluate --load llama --data-path text.txt --split 90,10,0 --eval-iters 2 --log-json llama_evaluated.jsonl $one
job llama_generated generate --load llama --prompt 'the cat' --max-new-tokens 8 --temperature 0 $one
job llama_converted convert --load llama --save converted_llama
words='--tokenizer-type huggingface --tokenizer-model words.json'
bert="--model-type bert $shape $steps $evaluated --data-path text.txt $words --max-position-embeddings 32 --optimizer lamb"
job bert pretrain $bert --train-iters 3 --save bert --log-json bert.jsonl
job bert_resumed pretrain $bert --train-iters 5 --ranks 2 --pp 2 --load bert --log-json bert_resumed.jsonl
job bert_evaluated evaluate --load bert --data-path text.txt --split 90,10,0 --eval-iters 2 --log-json bert_evaluated.jsonl $one
job bert_converted convert --load bert --save converted_bert
task="--task classify --micro-batch-size 8 --valid-data dev.tsv $one"
job tuned finetune $task --load bert --train-data train.tsv --train-iters 3 --lr 1e-2 --optimizer sgd --sgd-momentum 0 --log-interval 1 --save tuned \
  --log-json tuned.jsonl --predictions tuned.out
job tuned_asked finetune $task --load tuned --predictions asked.out --log-json asked.jsonl
if knows pretrain --num-experts; then
  moe="$shape $steps $evaluated --data-path pair_text_document $letters --swiglu --disable-bias-linear --position-embedding-type rope
    --normalization RMSNorm --num-experts 4 --moe-ffn-hidden-size 8
    --moe-router-topk 2 --moe-aux-loss-coeff 0.01"
  job moe pretrain $moe --train-iters 3 --ranks 4 --ep 2 --save moe --log-json moe.jsonl
  job moe_resumed pretrain $moe --train-iters 5 --ranks 2 --tp 2 --sequence-parallel --load moe --log-json moe_resumed.jsonl
  job moe_evaluated evaluate --load moe --data-path pair_text_document --split 90,10,0 --eval-iters 4 --log-json moe_evaluated.jsonl $one
  job moe_converted convert --load moe --save converted_moe
fi

# Configurations and plans.
job gpt_config pretrain $gpt --train-iters 2 --print-config
job zb plan $gpt --train-iters 2 --ranks 2 --pp 2 --schedule zb-h1 --schedule-csv zb.csv --json zb.json
job zb_run pretrain $gpt --train-iters 2 --ranks 2 --pp 2 --schedule zb.csv --log-json zb_run.jsonl
if knows plan --hardware; then
  job planned_for plan $gpt --train-iters 2 --ranks 4 --tp 2 --pp 2 --hardware device.json --json planned_for.json
fi

# Clicks.
mlp="--bottom-mlp 4-2 --top-mlp 4-1 --global-batch-size 20 --log-interval 1 $one"
adagrad='--optimizer adagrad --embedding-optimizer rowwise-adagrad --embedding-lr 0.05 --lr 0.05'
job criteo preprocess --input criteo1.tsv --output criteo --frequency-threshold 2 --threads 1
job criteo_next preprocess --input criteo2.tsv --output criteo_next --dictionaries-of criteo --threads 1
job criteo_hashed preprocess --input criteo1.tsv --output criteo_hashed --ids hash --max-ind-range 7 --dense-transform logmin --threads 1
dlrm="--train-data criteo --valid-data criteo --embedding-dim 2 --eval-interval 3 $mlp $adagrad"
job dlrm recommend $dlrm --train-iters 3 --ranks 2 --placement row --save dlrm --log-json dlrm.jsonl
job dlrm_resumed recommend $dlrm --train-iters 6 --ranks 3 --placement column --load dlrm --log-json dlrm_resumed.jsonl
job dlrm_config recommend $dlrm --print-config
if "$program" plan $dlrm --print-config > messages 2>&1; then  # plans recommenders without a file
  job dlrm_planned plan $dlrm --ranks 2 --json dlrm_planned.json
else
  job dlrm_planned plan --config printed/dlrm_config --ranks 2 --json dlrm_planned.json
fi
plain="--train-data plain.csv --table-rows 10-5 --dense-features 2 --id-policy modulo --valid-samples 20 --interaction cross --cross-layers 2
  --cross-rank 2 --embedding-dim 2 $mlp --optimizer adam --embedding-optimizer adam --lr 0.01"
job dcn recommend $plain --train-iters 4 --eval-interval 2 --save dcn --log-json dcn.jsonl
job dcn_resumed recommend $plain --train-iters 6 --ranks 2 --load dcn --log-json dcn_resumed.jsonl
job synthetic recommend --table-rows 30-20 --dense-features 2 --synthetic-samples 200 --valid-samples 50 --embedding-dim 2 --train-iters 3 $mlp \
  --ranks 2 --placement row,replicated --log-json synthetic.jsonl
if knows preprocess --bag; then
  features='--dense age --sparse user,code,item'
  job bags preprocess --input log1.csv --output bags --label click $features --bag 'tags:|,words:|,history:|' --bag-weights words \
    --share-table history:item --threads 1
  job bags_next preprocess --input log2.csv --output bags_next --dictionaries-of bags --threads 1
  job bags_grown preprocess --input log2.csv --output bags_grown --dictionaries-of bags --grow-dictionaries --threads 1
  job labels preprocess --input log1.csv --output labels --label 'click,stars>=4' $features --threads 1
  job labels_next preprocess --input log2.csv --output labels_next --dictionaries-of labels --threads 1
  texts='--label click --dense age --sparse item --bag tags:|'
  job keys preprocess --input log1.csv --output keys $texts --ids keys --threads 1
  job keys_next preprocess --input log2.csv --output keys_next $texts --ids keys --threads 1
  job hashed preprocess --input log1.csv --output hashed $texts --ids hash --max-ind-range 11 --hash-seed 3 --threads 1

  din="--valid-data bags --embedding-dim 2 --interaction cat --attention history:item --attention-mlp 4-1 $mlp $adagrad"
  job din recommend --train-data bags $din --train-iters 3 --ranks 2 --placement row --save din --log-json din.jsonl
  job din_resumed recommend --train-data bags $din --train-iters 6 --load din --log-json din_resumed.jsonl
  job din_grown recommend --train-data bags_grown --valid-data bags_grown ${din#--valid-data bags} --train-iters 3 --load din --finetune --log-json din_grown.jsonl
  job din_scored score --load din --data log1.csv --dictionaries-of bags --output din.csv $one
  job din_unknown score --load din --data bags_next --output din_unknown.csv $one
  job din_evaluated evaluate --load din --data bags --json din_evaluated.json $one
  job din_weights convert --load din --save din.safetensors
  job din_onnx convert --load din --save din.onnx
  wide="--train-data labels --valid-data labels --embedding-dim 2 --wide --multi-task mmoe --mmoe-experts 2 $mlp --tower-mlp 2-1
    --optimizer adam --lr 0.01 --embedding-optimizer ftrl"
  job wide recommend $wide --train-iters 3 --save wide --log-json wide.jsonl
  job wide_resumed recommend $wide --train-iters 6 --ranks 2 --load wide --log-json wide_resumed.jsonl
  job wide_scored score --load wide --data log1.csv --dictionaries-of labels --output wide.csv $one
  job wide_unknown score --load wide --data labels_next --output wide_unknown.csv $one
  job wide_evaluated evaluate --load wide --data labels --json wide_evaluated.json $one
  fm="--train-data bags --valid-data bags --embedding-dim 2 --interaction fm --batch-norm --dropout 0.1 $mlp --optimizer adam --lr 0.01"
  job fm recommend $fm --train-iters 3 --ranks 2 --zero-stage 1 --save fm --log-json fm.jsonl
  job fm_resumed recommend $fm --train-iters 6 --load fm --log-json fm_resumed.jsonl
  tables="--train-data keys --valid-data keys --embedding-dim 2 $mlp $adagrad --sample-order stored"
  job tables recommend $tables --table-rows 12-10 --train-iters 3 --ranks 2 --placement row --save tables --log-json tables.jsonl
  job tables_resumed recommend $tables --table-rows 12-10 --train-iters 6 --load tables --log-json tables_resumed.jsonl
  job tables_scored score --load tables --data keys --output tables.csv $one
  job tables_evaluated evaluate --load tables --data keys --json tables_evaluated.json $one
  counted="$tables --table-rows 7-6 --key-admission 2 --key-eviction rarest"
  job counted recommend $counted --train-iters 3 --save counted --log-json counted.jsonl
  job counted_resumed recommend $counted --train-iters 6 --ranks 2 --load counted --log-json counted_resumed.jsonl
  job counted_evaluated evaluate --load counted --data keys --json counted_evaluated.json $one
fi

for output in resharded converted_* din.onnx; do
  [ ! -e $output ] || find $output -type f | sort | xargs sha256sum >> sums.txt
  rm -rf $output
done
rm messages
cd ..
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=2026-01-01 -C "$folder" -cf - . | xz -9e > "$folder.tar.xz"
rm -rf "$folder"
ls -l "$folder.tar.xz"
