#include "config/option_tables.h"

#include "core/error.h"

namespace trifold {

const std::vector<CommandInfo>& commands() {
  static const std::vector<CommandInfo> kCommands = {
      {"pretrain",
       "train a transformer",
       "--num-layers N --hidden-size N ... [options]",
       {"trifold pretrain --data-path text.txt --num-layers 4 --hidden-size 128 --num-attention-heads 4 \\",
        "    --seq-length 64 --micro-batch-size 12 --train-iters 2000 --lr 1e-3 --save out",
        "trifold pretrain --config launch/configs/bert-large-phase1.cfg --data-path wiki.txt ...",
        "trifold pretrain --config small.ini --ranks 2 --global-batch-size 24",
        "mpirun -n 8 trifold pretrain --config small.ini"}},
      {"finetune",
       "tune a trained BERT for a task: classes of texts, or SQuAD's questions",
       "--task classify|squad --load DIR --train-data FILE ... [options]",
       {"trifold finetune --task classify --load bert --train-data train.tsv --valid-data dev.tsv \\",
        "    --micro-batch-size 32 --train-epochs 3 --lr 3e-5 --save tuned",
        "trifold finetune --task squad --load bert --train-data train-v2.0.json ...",
        "trifold finetune --task classify --load tuned --valid-data test.tsv --micro-batch-size 32 \\",
        "    --predictions out.jsonl    # evaluates only"}},
      {"generate",
       "sample text from a checkpoint",
       "--load DIR [options]",
       {"trifold generate --load out --prompt 'To be' --max-new-tokens 100",
        "trifold generate --load out --temperature 0.8 --top-k 40 --num-samples 3"}},
      {"evaluate",
       "measure the loss of a checkpoint on a data set",
       "--load DIR --data-path PATH [options]",
       {"trifold evaluate --load out --data-path text.txt --split 90,10,0 --part valid",
        "trifold evaluate --load out --data-path other.txt --split 1,0,0 --part train --ranks 2"}},
      {"inspect",
       "show what a checkpoint holds, verify it, compare two",
       "DIR [options]",
       {"trifold inspect out", "trifold inspect out --verify", "trifold inspect out --diff other"}},
      {"reshard",
       "rewrite a checkpoint for another mesh, number of files or type",
       "--load DIR --save DIR [options]",
       {"trifold reshard --load out --save out8 --tp 2 --pp 2 --dp 2 --zero-stage 1",
        "trifold reshard --load out --save small --files 1 --dtype bf16 --no-save-optim"}},
      {"convert",
       "turn a checkpoint into a Hugging Face model (GPT-2, Llama, BERT), and back",
       "--load DIR --save DIR [options]",
       {"trifold convert --load out --save gpt2-mine --dtype bf16    # then open it in transformers",
        "trifold convert --load gpt2 --save out    # config.json and model.safetensors; then train it "
        "further"}},
      {"bench",
       "measure training steps, matrix products, collectives and the parts of a plan",
       "[options]",
       {"trifold bench                 # GPT-2 124M, a training step and the matrix product rate",
        "trifold bench --what comm --ranks 2 --json comm.json",
        "trifold bench --what blocks --json costs.json && trifold plan --costs costs.json ..."}},
      {"plan",
       "show what a training run would do on every rank: stages, schedule, time, memory",
       "--num-layers N --hidden-size N ... [options]",
       {"trifold plan --config launch/configs/gpt-1t.cfg",
        "trifold plan --config launch/configs/gpt2-124m.cfg --ranks 4 --pp 4 --global-batch-size 32 \\",
        "    --schedule zb-h1 --svg step.svg"}},
      {"tokenize",
       "turn text or JSON lines into a .bin/.idx data set",
       "--input FILE --output-prefix PREFIX [options]",
       {"trifold tokenize --input text.txt --output-prefix text",
        "trifold tokenize --input web.jsonl --json-keys text --output-prefix web \\",
        "    --tokenizer-type sentencepiece --tokenizer-model sp.model"}},
      {"preprocess",
       "turn click logs into a data set of a recommender",
       "--input FILE ... --output DIR [options]",
       {"trifold preprocess --input train.txt --output clicks",
        "trifold preprocess --input day_0 day_1 day_2 --output clicks --frequency-threshold 3 \\",
        "    --max-ind-range 10000000 --drop-negatives 0.875",
        "trifold preprocess --input day_23 --output test --dictionaries-of clicks --max-ind-range 10000000"}},
      {"recommend",
       "train a recommender (DLRM) with its embedding tables spread over ranks",
       "--train-data PATH --table-rows N-N-... [options]",
       {"trifold recommend --train-data synthetic --table-rows 10000-2000-500-30 --valid-samples 50000 \\",
        "    --eval-interval 50 --ranks 2",
        "trifold recommend --config launch/configs/dlrm-kaggle.cfg --train-data train.txt",
        "mpirun -n 8 trifold recommend --config launch/configs/dlrm-small.cfg"}},
      {"plan-recommender",
       "show where a recommender's tables would be, what travels, and how long a step takes",
       "--table-rows N-N-... [options]",
       {"trifold plan-recommender --config launch/configs/dlrm-mlperf.cfg --ranks 16 --memory-limit 16",
        "trifold plan --config launch/configs/dlrm-kaggle.cfg     # the same: the file has --table-rows",
        "trifold plan-recommender --config launch/configs/dlrm-small.cfg --ranks 2 --measure-steps 50"}},
      {"completion",
       "print a script that completes these commands in bash",
       "bash",
       {"source <(trifold completion bash)"}}};
  return kCommands;
}

const CommandInfo& command_info(std::string_view name) {
  for (const CommandInfo& info : commands())
    if (info.name == name) return info;
  fail("there is no command '{}'", name);
}

}  // namespace trifold
