#include "config/command_line/command_info.h"

#include <algorithm>

#include "config/command_line/completion.h"
#include "config/command_line/help.h"
#include "config/command_line/man_page.h"
#include "config/command_line/read_command.h"

namespace trifold {

namespace {

using Words = std::span<const std::string>;

constexpr bool kOneProcess = true;

// A table entry: the given fields, and the functions that follow from the type of the configuration.
template <class Config>
CommandInfo command(CommandInfo info, bool one_process = false, std::string_view instead_of = {},
                    std::string_view when_given = {}) {
  info.one_process = one_process;
  info.instead_of = instead_of;
  info.when_given = when_given;
  info.read = read_command<Config>;
  info.with_table = [](FunctionRef<void(const OptionTable&)> body) {
    Config config;
    body(options_of(config));
  };
  return info;
}

bool asks_for_help(Words arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) { return word == "--help" || word == "-h"; });
}

// The help of a command without a table of options.
Request short_help(const CommandInfo& info) {
  return TextRequest{
      fmt::format("{}\n\n{}\n\nexample:\n  {}\n", usage_line(info), info.summary, info.examples.at(0))};
}

Request read_completion(const CommandInfo& info, Words arguments, const Environment&, Remarks&) {
  if (asks_for_help(arguments)) return short_help(info);
  if (arguments.size() == 1 && arguments[0] == "bash") return TextRequest{bash_completion()};
  if (arguments.empty()) bad_input("completion needs the name of a shell: trifold completion bash");
  bad_input("completion is for bash only, not for '{}': trifold completion bash",
            fmt::join(arguments.begin(), arguments.end(), " "));
}

Request read_man_page(const CommandInfo& info, Words arguments, const Environment&, Remarks&) {
  if (asks_for_help(arguments)) return short_help(info);
  if (arguments.empty()) return TextRequest{man_page()};
  bad_input("man-page takes no arguments, '{}' was given: trifold man-page",
            fmt::join(arguments.begin(), arguments.end(), " "));
}

CommandInfo without_options(CommandInfo info, decltype(CommandInfo::read) read) {
  info.read = read;
  return info;
}

}  // namespace

const std::vector<CommandInfo>& commands() {
  static const std::vector<CommandInfo> kCommands = {
      command<PretrainConfig>(
          {"pretrain",
           "train a transformer",
           "--num-layers N --hidden-size N ... [options]",
           {"trifold pretrain --data-path text.txt --num-layers 4 --hidden-size 128 \\",
            "    --num-attention-heads 4 --seq-length 64 --micro-batch-size 12 \\",
            "    --train-iters 2000 --lr 1e-3 --save out",
            "trifold pretrain --config launch/configs/bert-large-phase1.cfg --data-path wiki.txt ...",
            "trifold pretrain --config small.ini --ranks 2 --global-batch-size 24",
            "mpirun -n 8 trifold pretrain --config small.ini"}}),
      command<FinetuneConfig>(
          {"finetune",
           "fine-tune a trained GPT on conversations or preferences, or a trained BERT for classification or SQuAD",
           "--task chat|lm|dpo|classify|squad --load DIR --train-data FILE ... [options]",
           {"trifold finetune --task chat --load llama --train-data chats.jsonl --valid-data held_out.jsonl \\",
            "    --seq-length 2048 --micro-batch-size 4 --train-epochs 3 --lr 1e-5 --save tuned",
            "trifold finetune --task classify --load bert --train-data train.tsv --valid-data dev.tsv \\",
            "    --micro-batch-size 32 --train-epochs 3 --lr 3e-5 --save tuned",
            "trifold finetune --task squad --load bert --train-data train-v2.0.json ...",
            "trifold finetune --task classify --load tuned --valid-data test.tsv --micro-batch-size 32 \\",
            "    --predictions out.jsonl    # evaluates only"}}),
      command<GenerateConfig>(
          {"generate",
           "sample text from a checkpoint, or talk with it",
           "--load DIR [options]",
           {"trifold generate --load out --prompt 'To be' --max-new-tokens 100",
            "trifold generate --load out --temperature 0.8 --top-k 40 --num-samples 3",
            "trifold generate --load llama --chat --system 'Answer briefly.' --min-p 0.05"}},
          kOneProcess),
      command<EvaluateConfig>(
          {"evaluate",
           "measure the loss of a checkpoint on a data set",
           "--load DIR --data-path PATH [options]",
           {"trifold evaluate --load out --data-path text.txt --split 90,10,0 --part valid",
            "trifold evaluate --load out --data-path other.txt --split 1,0,0 --part train --ranks 2",
            "trifold evaluate --load run/dlrm --data test    # a recommender"}}),
      command<EvaluateTaskConfig>(
          {"evaluate-task",
           "answer multiple-choice questions by log-likelihood, or measure the perplexity of texts",
           "--load DIR --task FILE [options]",
           {"trifold evaluate --load out --task questions.jsonl    # the same, because of --task",
            "trifold evaluate --load out --task texts.jsonl --log-likelihoods each.jsonl --tp 2"}},
          false, "evaluate", "task"),
      command<ServeConfig>({"serve",
                            "answer requests for completions, chats and log-probabilities over HTTP",
                            "--load DIR [options]",
                            {"trifold serve --load out --port 8000",
                             "lm_eval --model local-completions --tasks piqa --model_args \\",
                             "    base_url=http://127.0.0.1:8000/v1/completions,model=gpt2,max_length=1026"}},
                           kOneProcess),
      command<InspectConfig>(
          {"inspect",
           "show the contents of a checkpoint, a Hugging Face folder or a model exported by PyTorch, verify it, or compare two",
           "DIR|MODEL.pt2 [options]",
           {"trifold inspect out", "trifold inspect out --verify", "trifold inspect out --diff other",
            "trifold inspect gpt2", "trifold inspect model.pt2"}},
          kOneProcess),
      command<ImportConfig>(
          {"import-config",
           "print the options that DeepSpeed's JSON or accelerate's FSDP YAML means here",
           "FILE [options]",
           {"trifold import-config ds_config.json",
            "trifold pretrain $(trifold import-config ds_config.json) --num-layers 12 ...",
            "trifold import-config fsdp.yaml --format config > fsdp.cfg    # for --config"}},
          kOneProcess),
      command<ReshardConfig>(
          {"reshard",
           "rewrite a checkpoint for another mesh, number of files or type",
           "--load DIR --save DIR [options]",
           {"trifold reshard --load out --save out8 --tp 2 --pp 2 --dp 2 --zero-stage 1",
            "trifold reshard --load out --save small --files 1 --dtype bf16 --no-save-optim"}},
          kOneProcess),
      command<ConvertConfig>(
          {"convert",
           "convert a checkpoint to a Hugging Face model (GPT-2, Llama, Mixtral, Qwen2-MoE, Qwen3-MoE, "
           "DeepSeek-V3, BERT), or back; a recommender to ONNX or safetensors; "
           "a model of torch.export to its state dictionary",
           "--load DIR --save DIR [options]",
           {"trifold convert --load out --save gpt2-mine --dtype bf16    # then open it in transformers",
            "trifold convert --load gpt2 --save out    # the model for further training",
            "trifold convert --load run/dlrm --save dlrm.onnx"}},
          kOneProcess),
      command<BenchConfig>(
          {"bench",
           "measure training steps, matrix products, collectives and the parts of a plan",
           "[options]",
           {"trifold bench                 # GPT-2 124M, a training step and the matrix product rate",
            "trifold bench --what comm --ranks 2 --json comm.json",
            "trifold bench --what blocks --json costs.json && trifold plan --costs costs.json ..."}}),
      command<PlanConfig>(
          {"plan",
           "forecast a training run without starting ranks: stages, schedule, time, memory",
           "--num-layers N --hidden-size N ... [options]",
           {"trifold plan --config launch/configs/gpt-1t.cfg",
            "trifold plan --config launch/configs/gpt2-124m.cfg --ranks 4 --pp 4 --global-batch-size 32 \\",
            "    --schedule zb-h1 --svg step.svg"}},
          kOneProcess),
      command<RehearsePretrainConfig>(
          {"rehearse",
           "run chosen ranks of a mesh of any size alone on this host, and compare them with the plan",
           "--num-layers N --hidden-size N ... [options]",
           {"trifold rehearse --config launch/configs/gpt-175b.cfg --micro-batches 3 --only-ranks 0",
            "trifold rehearse --config small.ini --ranks 64 --pp 8 --data-path text.txt --hardware h100 \\",
            "    --wait planned --json rehearsal.json"}},
          kOneProcess),
      command<RehearseFinetuneConfig>(
          {"rehearse-task",
           "rehearse a run of finetune",
           "--task chat|lm|dpo|classify|squad --load DIR --train-data FILE ... [options]",
           {"trifold rehearse --task chat --load llama --train-data chats.jsonl --seq-length 2048 \\",
            "    --micro-batch-size 4 --train-epochs 3 --lr 1e-5 --ranks 64 --tp 8    # because of --task"}},
          kOneProcess, "rehearse", "task"),
      command<RehearseRecommenderConfig>(
          {"rehearse-recommender",
           "rehearse a run of recommend",
           "--train-data PATH --table-rows N-N-... [options]",
           {"trifold rehearse --config launch/configs/dlrm-mlperf.cfg --ranks 16 --only-ranks 0,15",
            "trifold rehearse --train-data clicks --ranks 64    # because of --train-data"}},
          kOneProcess, "rehearse", "table-rows train-data"),
      command<TokenizeConfig>({"tokenize",
                               "tokenize text or JSON lines into a .bin/.idx data set",
                               "--input FILE --output-prefix PREFIX [options]",
                               {"trifold tokenize --input text.txt --output-prefix text",
                                "trifold tokenize --input web.jsonl --json-keys text --output-prefix web \\",
                                "    --tokenizer-type sentencepiece --tokenizer-model sp.model"}},
                              kOneProcess),
      command<PreprocessConfig>(
          {"preprocess",
           "convert click logs to a data set for recommenders",
           "--input FILE ... --output DIR [options]",
           {"trifold preprocess --input train.txt --output clicks",
            "trifold preprocess --input day_0 day_1 day_2 --output clicks --frequency-threshold 3 \\",
            "    --max-ind-range 10000000 --drop-negatives 0.875",
            "trifold preprocess --input day_23 --output test --dictionaries-of clicks \\",
            "    --max-ind-range 10000000",
            "trifold preprocess --input own.csv --output clicks --label 'rating>=4' --dense age \\",
            "    --sparse user,item"}},
          kOneProcess),
      command<RecommendConfig>(
          {"recommend",
           "train a recommender (DLRM) with embedding tables distributed over ranks",
           "--train-data PATH --table-rows N-N-... [options]",
           {"trifold recommend --train-data synthetic --table-rows 10000-2000-500-30 --valid-samples 50000 "
            "\\",
            "    --eval-interval 50 --ranks 2",
            "trifold recommend --config launch/configs/dlrm-kaggle.cfg --train-data train.txt",
            "mpirun -n 8 trifold recommend --config launch/configs/dlrm-small.cfg"}}),
      command<PlanRecommenderConfig>(
          {"plan-recommender",
           "forecast a recommender's table placement, memory, traffic and step time",
           "--table-rows N-N-... [options]",
           {"trifold plan-recommender --config launch/configs/dlrm-mlperf.cfg --ranks 16 --memory-limit 16",
            "trifold plan --config launch/configs/dlrm-kaggle.cfg     # the same, "
            "because the file has --table-rows",
            "trifold plan-recommender --config launch/configs/dlrm-mlperf.cfg "
            "--ranks 16 --memory-limit 40 --search",
            "trifold plan-recommender --config launch/configs/dlrm-small.cfg --ranks 2 --measure-steps 50"}},
          kOneProcess, "plan", "table-rows train-data"),
      command<ScoreConfig>({"score",
                            "write the predictions of a trained recommender",
                            "--load DIR --data PATH --output FILE [options]",
                            {"trifold score --load run/dlrm --data test.tsv --output scores.csv",
                             "trifold score --load run/dlrm --data clicks --output scores.jsonl --ranks 2",
                             "trifold score --load run/dlrm --data clicks --output - | head"}}),
      command<EvaluateRecommenderConfig>(
          {"evaluate-recommender",
           "measure the AUC, log loss and calibration of a trained recommender on a data set",
           "--load DIR --data PATH [options]",
           {"trifold evaluate-recommender --load run/dlrm --data test --group-by C1",
            "trifold evaluate --load run/dlrm --data test    # the same, "
            "because --data is an option of recommenders"}},
          false, "evaluate", "data"),
      command<PlanLinesConfig>(
          {"plan-lines",
           "plan many runs, one per line of a file, and print a line of JSON for each",
           "--lines FILE [options]",
           {"trifold plan --lines layouts.txt --closed-form    # each line: options of trifold plan",
            "trifold plan --lines layouts.txt"}},
          kOneProcess, "plan", "lines"),
      command<ReportConfig>(
          {"report",
           "show one or several runs as a page: curves, rates, events, options, the planned step",
           "RUN... --output FILE.html",
           {"trifold report run/log.jsonl --output run.html",
            "trifold report one two/log.jsonl --output both.html    # a folder with one log, and a log"}},
          kOneProcess),
      command<DoctorConfig>({"doctor",
                             "report what this host and this build have, what is missing and how to get it",
                             "[options]",
                             {"trifold doctor", "srun -n 1 trifold doctor    # on a node of a batch job",
                              "trifold doctor --json - | python3 -m json.tool"}}),
      without_options({"completion",
                       "print a script that completes these commands in bash",
                       "bash",
                       {"source <(trifold completion bash)"}},
                      read_completion),
      without_options({"man-page", "print the manual page, trifold(1)", "", {"trifold man-page | man -l -"}},
                      read_man_page)};
  return kCommands;
}

const CommandInfo& command_info(std::string_view name) {
  for (const CommandInfo& info : commands())
    if (info.name == name) return info;
  fail("there is no command '{}'", name);
}

void with_default_table(std::string_view command, FunctionRef<void(const OptionTable&)> body) {
  const CommandInfo& info = command_info(command);
  if (info.with_table == nullptr) fail("the command '{}' has no options", command);
  info.with_table(body);
}

}  // namespace trifold
