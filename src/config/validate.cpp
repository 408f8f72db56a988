#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "config/number.h"
#include "config/option_tables.h"
#include "config/pipeline_choice.h"
#include "config/problems.h"
#include "config/validate_mesh.h"
#include "core/error.h"

namespace trifold {
namespace {

void check_heads(const ModelConfig& model, Problems& problems) {
  if (!model.kv_channels && problems.sound({"hidden-size", "num-attention-heads"}) &&
      model.hidden_size % model.num_attention_heads != 0)
    problems.add("--hidden-size {} is not divisible by --num-attention-heads {}: {}", model.hidden_size,
                 model.num_attention_heads, multiples_around(model.hidden_size, model.num_attention_heads));
  if (!problems.sound({"num-attention-heads", "num-query-groups"})) return;
  if (!model.group_query_attention && model.num_query_groups != ModelConfig().num_query_groups)
    problems.add("--num-query-groups {} has no effect: it needs --group-query-attention",
                 model.num_query_groups);
  else if (model.group_query_attention && model.num_attention_heads % model.num_query_groups != 0)
    problems.add(
        "--num-query-groups {} does not divide --num-attention-heads {}: each group has as many heads",
        model.num_query_groups, model.num_attention_heads);
}

void check_rope(const ModelConfig& model, Problems& problems) {
  const ModelConfig defaults;
  const bool rope = model.position_embedding_type == "rope";
  const std::pair<const char*, bool> options[] = {
      {"rotary-base", model.rotary_base != defaults.rotary_base},
      {"rotary-percent", model.rotary_percent != defaults.rotary_percent},
      {"use-rope-scaling", model.use_rope_scaling}};
  for (const auto& [option, changed] : options)
    if (changed && !rope && problems.sound({option, "position-embedding-type"}))
      problems.add("--{} has no effect: it needs --position-embedding-type rope", option);
  if (model.rope_scaling_factor != defaults.rope_scaling_factor && !model.use_rope_scaling)
    problems.add("--rope-scaling-factor {} has no effect: it needs --use-rope-scaling",
                 format_double(model.rope_scaling_factor));
  if (!rope || !problems.sound({"hidden-size", "num-attention-heads", "kv-channels", "rotary-percent"}))
    return;
  const int64_t head = head_width(model);
  const auto turned = static_cast<int64_t>(static_cast<double>(head) * model.rotary_percent);
  constexpr int64_t kMost = 1024;
  if (turned < 2 || turned % 2 != 0 || turned > kMost)
    problems.add(
        "--position-embedding-type rope turns pairs of a head's numbers, but {} of {} ({} of "
        "--rotary-percent) "
        "are not an even number from 2 to {}: give another --kv-channels or --rotary-percent",
        turned, head, format_double(model.rotary_percent), kMost);
}

// Options that make another model of a GPT have no part in BERT as it was published.
void check_model_type(const ModelConfig& model, Problems& problems) {
  if (!problems.sound({"model-type"})) return;
  if (!is_bert(model)) {
    if (model.bert_no_binary_head)
      problems.add("--bert-no-binary-head has no effect: it needs --model-type bert");
    return;
  }
  const ModelConfig defaults;
  const std::pair<const char*, bool> options[] = {
      {"position-embedding-type", model.position_embedding_type != defaults.position_embedding_type},
      {"group-query-attention", model.group_query_attention},
      {"qk-layernorm", model.qk_layernorm},
      {"normalization", model.normalization != defaults.normalization},
      {"swiglu", model.swiglu},
      {"disable-bias-linear", model.disable_bias_linear},
      {"untie-embeddings-and-output-weights", model.untie_embeddings_and_output_weights}};
  for (const auto& [option, changed] : options)
    if (changed && problems.sound({option}))
      problems.add("--{} is not possible with --model-type bert: leave it out", option);
}

// A stage of an asynchronous pipeline counts the labels of tokens, of which a task has none.
void check_task_head(const PretrainConfig& config, Problems& problems) {
  if (!has_task_head(config.model) || !problems.sound({"schedule"})) return;
  if (config.pipeline.schedule && config.pipeline.schedule->starts_with("pipedream"))
    problems.add(
        "--schedule {} does not train a task: give one whose steps wait for their gradients, like 1f1b",
        *config.pipeline.schedule);
}

void check_activation(const ModelConfig& model, Problems& problems) {
  if (model.swiglu && model.gelu != ModelConfig().gelu && problems.sound({"gelu"}))
    problems.add("--gelu {} has no effect with --swiglu: leave one of them out", model.gelu);
}

void check_pairs(const ModelConfig& model, const DataConfig& data, Problems& problems) {
  if (is_bert(model)) {
    if (data.eod_mask_loss)
      problems.add(
          "--eod-mask-loss has no effect with --model-type bert, whose loss is of masked tokens only");
    return;
  }
  if (const auto option = given_option_of_pairs(data))
    problems.add("--{} has no effect: it needs --model-type bert", *option);
}

void check_model(const ModelConfig& model, Problems& problems) {
  check_heads(model, problems);
  check_model_type(model, problems);
  check_activation(model, problems);
  check_rope(model, problems);
  const bool lengths = problems.sound({"seq-length", "max-position-embeddings"});
  if (lengths && model.seq_length > model.max_position_embeddings.value_or(model.seq_length))
    problems.add("--seq-length {} is more than --max-position-embeddings {}: give at most {} or at least {}",
                 model.seq_length, *model.max_position_embeddings, *model.max_position_embeddings,
                 model.seq_length);
}

void check_precision(const PrecisionConfig& precision, Problems& problems) {
  std::vector<std::string> given;
  if (precision.bf16) given.emplace_back("--bf16");
  if (precision.fp16) given.emplace_back("--fp16");
  if (precision.f64) given.emplace_back("--f64");
  if (given.size() > 1)
    problems.add("{} exclude each other: give one of them, or none for f32", fmt::join(given, " and "));
  if (precision.loss_scale && !precision.bf16 && !precision.fp16)
    problems.add("--loss-scale {} has no effect: it needs --fp16 (or --bf16)",
                 format_double(*precision.loss_scale));
  if (precision.grad_reduce_in_bf16 && precision.f64)
    problems.add(
        "--grad-reduce-in-bf16 with --f64: what is computed to check the mathematics is not rounded to bf16; "
        "give one of them");
  const PrecisionConfig defaults;
  const std::pair<const char*, bool> searched[] = {
      {"initial-loss-scale", precision.initial_loss_scale != defaults.initial_loss_scale},
      {"min-loss-scale", precision.min_loss_scale != defaults.min_loss_scale},
      {"loss-scale-window", precision.loss_scale_window != defaults.loss_scale_window},
      {"hysteresis", precision.hysteresis != defaults.hysteresis}};
  for (const auto& [option, changed] : searched)
    if (changed && (!precision.fp16 || precision.loss_scale))
      problems.add("--{} has no effect: it needs --fp16 without --loss-scale", option);
  if (problems.sound({"initial-loss-scale", "min-loss-scale"}) &&
      precision.initial_loss_scale < precision.min_loss_scale)
    problems.add("--initial-loss-scale {} is less than --min-loss-scale {}: give at least as much",
                 format_double(precision.initial_loss_scale), format_double(precision.min_loss_scale));
}

void check_warmup(const LrConfig& lr, int64_t decay, Problems& problems) {
  if (lr.lr_warmup_fraction && lr.lr_warmup_iters > 0)
    problems.add("--lr-warmup-fraction {} and --lr-warmup-iters {} exclude each other: give one of them",
                 *lr.lr_warmup_fraction, lr.lr_warmup_iters);
  if (!problems.sound({"lr-warmup-iters", "lr-decay-iters", "train-iters"}) || lr.lr_warmup_iters < decay)
    return;
  problems.add(
      "--lr-warmup-iters {} is not below --lr-decay-iters {}{}: give at most {} or more steps of decay",
      lr.lr_warmup_iters, decay, lr.lr_decay_iters ? "" : " (taken from --train-iters)", decay - 1);
}

void check_wsd(const LrConfig& lr, int64_t decay, Problems& problems) {
  const bool wsd = lr.lr_decay_style == LrDecayStyle::Wsd;
  if (wsd && !lr.lr_wsd_decay_iters)
    problems.add(
        "--lr-decay-style WSD needs --lr-wsd-decay-iters: the steps of the fall at the end, from 1 to {}",
        decay);
  if (!wsd && lr.lr_wsd_decay_iters)
    problems.add("--lr-wsd-decay-iters {} has no effect: it needs --lr-decay-style WSD",
                 *lr.lr_wsd_decay_iters);
  if (!wsd && lr.lr_wsd_decay_style != LrConfig().lr_wsd_decay_style)
    problems.add("--lr-wsd-decay-style has no effect: it needs --lr-decay-style WSD");
  if (wsd && lr.lr_wsd_decay_iters.value_or(0) > decay && problems.sound({"lr-decay-iters", "train-iters"}))
    problems.add("--lr-wsd-decay-iters {} is more than --lr-decay-iters {}: give at most {}",
                 *lr.lr_wsd_decay_iters, decay, decay);
}

void check_lr(const LrConfig& lr, int64_t train_iters, Problems& problems) {
  if (problems.sound({"lr", "min-lr"}) && lr.min_lr > lr.lr)
    problems.add("--min-lr {0} is more than --lr {1}: give at most {1}", format_double(lr.min_lr),
                 format_double(lr.lr));
  if (problems.sound({"lr", "lr-warmup-init"}) && lr.lr_warmup_init > lr.lr)
    problems.add("--lr-warmup-init {0} is more than --lr {1}: give at most {1}",
                 format_double(lr.lr_warmup_init), format_double(lr.lr));
  if (lr.lr_decay_style == LrDecayStyle::Constant && lr.min_lr > 0)
    problems.add(
        "--min-lr {} has no effect with --lr-decay-style constant: leave it out, or give another style",
        format_double(lr.min_lr));
  if (lr.lr_decay_style != LrDecayStyle::Polynomial && lr.lr_decay_power != LrConfig().lr_decay_power)
    problems.add("--lr-decay-power {} has no effect: it needs --lr-decay-style polynomial",
                 format_double(lr.lr_decay_power));
  if (train_iters == 0 && !lr.lr_decay_iters) return;  // looked at again when the length of the run is known
  const int64_t decay = lr.lr_decay_iters.value_or(train_iters);
  check_warmup(lr, decay, problems);
  check_wsd(lr, decay, problems);
}

// Options that have nothing to say to some optimizers, and the optimizers that use them.
struct OptimizerOption {
  std::string_view name;
  double OptimizerConfig::*value;
  std::vector<std::string_view> users;
};
const std::vector<OptimizerOption>& optimizer_options() {
  static const std::vector<OptimizerOption> kOptions = {
      {"adam-beta1", &OptimizerConfig::adam_beta1, {"adam", "lamb"}},
      {"adam-beta2", &OptimizerConfig::adam_beta2, {"adam", "lamb"}},
      {"adam-eps", &OptimizerConfig::adam_eps, {"adam", "lamb"}},
      {"sgd-momentum", &OptimizerConfig::sgd_momentum, {"sgd"}},
      {"adagrad-eps", &OptimizerConfig::adagrad_eps, {"adagrad"}}};
  return kOptions;
}

// Here a value that is not the default counts as given; the command line knows better.
void check_optimizer(const OptimizerConfig& optimizer, Problems& problems) {
  if (!problems.sound({"optimizer"})) return;
  for (const OptimizerOption& option : optimizer_options()) {
    const std::string name(option.name);
    const bool given = optimizer.*option.value != OptimizerConfig().*option.value;
    if (!given || !problems.sound({name.c_str()})) continue;
    if (const auto problem = unused_by_optimizer(name, optimizer)) problems.add("{}", *problem);
  }
  if (optimizer.optimizer == "lamb" && optimizer.weight_decay == 0)
    problems.add(
        "--optimizer lamb needs --weight-decay above 0: parameters without decay have no trust ratio, so it "
        "would be adam under another name");
}

std::optional<double> as_number(const std::string& text) {
  try {
    return parse_double(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Megatron-LM's rule: an odd number of words is paths only; an even number is pairs of weight and path,
// unless no word in a weight's place is a number.
void check_blend(const std::vector<std::string>& words, Problems& problems) {
  if (words.size() % 2 != 0) return;
  size_t numbers = 0;
  double sum = 0;
  for (size_t i = 0; i < words.size(); i += 2)
    if (const auto weight = as_number(words[i])) {
      ++numbers;
      sum += *weight;
      if (*weight < 0)
        problems.add("--data-path: the weight {} of '{}' is negative: give a number above 0", words[i],
                     words[i + 1]);
    }
  if (numbers == 0) return;
  for (size_t i = 0; i < words.size(); i += 2)
    if (!as_number(words[i]))
      problems.add(
          "--data-path: '{}' stands where the weight of '{}' belongs: give a weight before every path, or "
          "before none",
          words[i], words[i + 1]);
  if (sum == 0) problems.add("--data-path: all weights are 0: give numbers above 0");
}

// The shares of a split like "969,30,1", missing ones 0; empty when the text is not a split. Separators are
// those that Megatron-LM's users write.
std::vector<double> split_shares(const std::string& split) {
  constexpr std::string_view kSeparators = ", \t/:";
  std::vector<double> shares;
  double sum = 0;
  for (size_t begin = split.find_first_not_of(kSeparators); begin < split.size();) {
    const size_t end = std::min(split.find_first_of(kSeparators, begin), split.size());
    const auto share = as_number(split.substr(begin, end - begin));
    if (!share || *share < 0) return {};
    shares.push_back(*share);
    sum += *share;
    begin = split.find_first_not_of(kSeparators, end);
  }
  if (shares.size() > 3 || !(sum > 0)) return {};
  shares.resize(3, 0.0);
  return shares;
}

void check_tokenizer(const std::string& type, const std::optional<std::string>& model, Problems& problems) {
  const bool has_model = type == "sentencepiece" || type == "huggingface";
  if (has_model && !model) problems.add("--tokenizer-type {} needs --tokenizer-model FILE", type);
  if (!has_model && model)
    problems.add("--tokenizer-model {} has no effect: it needs --tokenizer-type sentencepiece or huggingface",
                 *model);
}

void check_data(const DataConfig& data, Problems& problems) {
  check_blend(data.data_path, problems);
  if (split_shares(data.split).empty())
    problems.add("--split '{}' is not possible: give up to three shares that are not all 0, like 969,30,1",
                 data.split);
  check_tokenizer(data.tokenizer_type.value_or(""), data.tokenizer_model, problems);
}

// `option` names the part of the data that is used: its share must not be 0.
void check_part(const DataConfig& data, size_t part, const std::string& option, Problems& problems) {
  const std::vector<double> shares = split_shares(data.split);
  if (!shares.empty() && shares[part] == 0)
    problems.add(
        "{} needs data, but --split {} leaves none: its share ({} of training, validation, test) must be "
        "above 0",
        option, data.split,
        part == 0   ? "first"
        : part == 1 ? "second"
                    : "third");
}

void check_length(const BatchConfig& batch, Problems& problems) {
  if (batch.train_epochs && batch.train_iters > 0 && !batch.train_samples)
    problems.add("--train-iters {} and --train-epochs {} exclude each other: give one of them",
                 batch.train_iters, *batch.train_epochs);
}

void check_checkpoint(const CheckpointConfig& config, Problems& problems) {
  const auto needs = [&](bool given, const char* option, const std::optional<std::string>& other,
                         const char* name) {
    if (given && !other) problems.add("{} has no effect without {} DIR", option, name);
  };
  needs(config.auto_resume, "--auto-resume", config.save, "--save");
  needs(config.async_save, "--async-save", config.save, "--save");
  needs(config.save_retain.has_value(), "--save-retain", config.save, "--save");
  needs(config.finetune, "--finetune", config.load, "--load");
}

void check_run(const PretrainConfig& config, Problems& problems) {
  check_length(config.batch, problems);
  check_data(config.data, problems);
  check_pairs(config.model, config.data, problems);
  check_part(config.data, 0, "training", problems);
  if (config.checkpoint.save_interval && !config.checkpoint.save)
    problems.add("--save-interval {} has no effect without --save DIR", *config.checkpoint.save_interval);
  check_checkpoint(config.checkpoint, problems);
  check_task_head(config, problems);
  const EvalConfig& eval = config.eval;
  if (!eval.eval_interval && eval.eval_iters != EvalConfig().eval_iters && eval.eval_iters > 0)
    problems.add("--eval-iters {} has no effect without --eval-interval N", eval.eval_iters);
  if (eval.eval_interval && eval.eval_iters > 0) check_part(config.data, 1, "--eval-interval", problems);
}

// What belongs to a run, where there is none: all that is neither of the task, nor of the mesh, nor named
// here.
void check_evaluation_only(const FinetuneConfig& config, Problems& problems) {
  static const std::set<std::string_view> kUsed{"task",
                                                "valid-data",
                                                "predictions",
                                                "seq-length",
                                                "doc-stride",
                                                "max-query-length",
                                                "max-answer-length",
                                                "null-score-diff-threshold",
                                                "tokenizer-type",
                                                "tokenizer-model",
                                                "micro-batch-size",
                                                "load",
                                                "log-json",
                                                "save"};
  FinetuneConfig own = config, plain;
  const OptionTable given = options_of(own), defaults = options_of(plain);
  for (size_t i = 0; i < given.options().size(); ++i) {
    const Option& option = given.options()[i];
    if (kUsed.count(option.name) > 0) continue;
    if (option.group == "Mesh of ranks" && option.name != "enable-cuda-graph") continue;
    if (value_words(option) != value_words(defaults.options()[i]))
      problems.add("--{} has no effect without --train-data FILE", option.name);
  }
  if (config.run.checkpoint.save)
    problems.add("--save {} has no effect without --train-data FILE", *config.run.checkpoint.save);
}

void check_squad_options(const FinetuneConfig& config, Problems& problems) {
  const FinetuneConfig defaults;
  const std::pair<const char*, bool> options[] = {
      {"doc-stride", config.doc_stride != defaults.doc_stride},
      {"max-query-length", config.max_query_length != defaults.max_query_length},
      {"max-answer-length", config.max_answer_length != defaults.max_answer_length},
      {"null-score-diff-threshold", config.null_score_diff_threshold != 0}};
  for (const auto& [option, changed] : options)
    if (changed) problems.add("--{} has no effect with --task classify: leave it out", option);
}

void fill_model(ModelConfig& model) {
  model.ffn_hidden_size = inner_width(model);
  if (!model.max_position_embeddings) model.max_position_embeddings = model.seq_length;
}

void fill_run(PretrainConfig& config) {
  fill_model(config.model);
  const int64_t data = data_parallel_size(config.mesh);
  if (!config.mesh.data_parallel_size) config.mesh.data_parallel_size = static_cast<int>(data);
  if (!config.batch.global_batch_size) config.batch.global_batch_size = config.batch.micro_batch_size * data;
  fill_pipeline(config);
  if (!config.lr.lr_decay_iters && config.batch.train_iters > 0)
    config.lr.lr_decay_iters = config.batch.train_iters;
}

// What a training run needs whatever it trains on, and a plan or benchmark of it as well.
void check_layout(const PretrainConfig& config, Problems& problems) {
  check_model(config.model, problems);
  check_precision(config.precision, problems);
  check_mesh(config.mesh, problems);
  check_batch(config.batch, config.mesh, problems);
  check_tensor(config, problems);
  check_pipeline(config, problems);
  check_zero(config, problems);
  check_graphs(config.mesh, problems);
  check_fp8(config, problems);
}

}  // namespace

std::optional<std::string> given_option_of_pairs(const DataConfig& data) {
  const DataConfig defaults;
  if (data.mask_prob != defaults.mask_prob) return "mask-prob";
  if (data.short_seq_prob != defaults.short_seq_prob) return "short-seq-prob";
  if (data.whole_word_masking) return "whole-word-masking";
  if (data.split_sentences) return "split-sentences";
  return std::nullopt;
}

std::string multiples_around(int64_t value, int64_t unit) {
  const int64_t low = value / unit * unit;
  return low == 0 ? fmt::format("{} is", unit) : fmt::format("{} and {} are", low, low + unit);
}

std::optional<std::string> unused_by_optimizer(const std::string& option, const OptimizerConfig& optimizer) {
  for (const auto& [name, value, users] : optimizer_options()) {
    if (name != option) continue;
    if (std::find(users.begin(), users.end(), optimizer.optimizer) != users.end()) return std::nullopt;
    return fmt::format("--{} has no effect with --optimizer {}: leave it out, or give --optimizer {}", option,
                       optimizer.optimizer, fmt::join(users, " or "));
  }
  return std::nullopt;
}

std::vector<std::string> problems(const PretrainConfig& config) {
  PretrainConfig copy = config;
  Problems problems(options_of(copy));
  check_layout(config, problems);
  check_lr(config.lr, config.batch.train_iters, problems);
  check_optimizer(config.optimizer, problems);
  check_run(config, problems);
  return problems.take();
}

// What can be said before the model is known; resolve(PretrainConfig) says the rest when it is.
std::vector<std::string> problems(const FinetuneConfig& config) {
  FinetuneConfig copy = config;
  Problems problems(options_of(copy));
  check_mesh(config.run.mesh, problems);
  check_checkpoint(config.run.checkpoint, problems);
  if (!config.run.checkpoint.load) problems.add("--load needs a value: the folder of a trained BERT");
  if (!config.train_data && !config.valid_data)
    problems.add(
        "give --train-data FILE to tune the model, --valid-data FILE to evaluate a tuned one, or both");
  if (config.predictions && !config.valid_data)
    problems.add("--predictions {} has no effect without --valid-data FILE", *config.predictions);
  if (config.run.eval.eval_interval && !config.valid_data)
    problems.add("--eval-interval {} has no effect without --valid-data FILE",
                 *config.run.eval.eval_interval);
  if (!config.train_data) check_evaluation_only(config, problems);
  check_tokenizer(config.run.data.tokenizer_type.value_or(""), config.run.data.tokenizer_model, problems);
  if (config.task == "classify") check_squad_options(config, problems);
  return problems.take();
}

std::vector<std::string> problems(const GenerateConfig& config) {
  GenerateConfig copy = config;
  return Problems(options_of(copy)).take();
}

std::vector<std::string> problems(const EvaluateConfig& config) {
  EvaluateConfig copy = config;
  Problems problems(options_of(copy));
  check_mesh(config.mesh, problems);
  check_data(config.data, problems);
  const size_t part = config.part == "train" ? 0 : config.part == "valid" ? 1 : 2;
  check_part(config.data, part, "--part " + config.part, problems);
  return problems.take();
}

std::vector<std::string> problems(const InspectConfig& config) {
  InspectConfig copy = config;
  Problems problems(options_of(copy));
  if (config.directory.empty()) problems.add("name the checkpoint to look at: trifold inspect DIR");
  return problems.take();
}

std::vector<std::string> problems(const BenchConfig& config) {
  BenchConfig copy = config;
  Problems problems(options_of(copy));
  PretrainConfig run = config.run;
  if (problems.sound({"warmup-iters", "iters"})) run.batch.train_iters = config.warmup_iters + config.iters;
  check_layout(run, problems);
  return problems.take();
}

std::vector<std::string> problems(const PlanConfig& config) {
  PlanConfig copy = config;
  Problems problems(options_of(copy));
  check_layout(config.run, problems);
  check_optimizer(config.run.optimizer, problems);
  if (!config.run.model.vocab_size && config.run.data.data_path.empty())
    problems.add("--vocab-size is needed: the size of the tokenizer's vocabulary (or name the --data-path)");
  return problems.take();
}

std::vector<std::string> problems(const TokenizeConfig& config) {
  TokenizeConfig copy = config;
  Problems problems(options_of(copy));
  check_tokenizer(config.tokenizer_type, config.tokenizer_model, problems);
  return problems.take();
}

std::vector<std::string> problems(const PreprocessConfig& config) {
  PreprocessConfig copy = config;
  Problems problems(options_of(copy));
  if (config.ids == "hash" && config.max_ind_range == 0)
    problems.add("--ids hash needs --max-ind-range: the rows of every table");
  if (config.ids == "hash" && config.max_ind_range > 2147483647)
    problems.add("--ids hash: --max-ind-range {} is more rows than a table can have, 2147483647",
                 config.max_ind_range);
  if (config.ids == "hash" && config.frequency_threshold > 1)
    problems.add("--frequency-threshold {} has no effect with --ids hash: nothing is counted",
                 config.frequency_threshold);
  if (config.ids == "hash" && config.dictionaries_of)
    problems.add("--dictionaries-of {} has no effect with --ids hash", *config.dictionaries_of);
  if (config.dictionaries_of && config.frequency_threshold > 1)
    problems.add("--frequency-threshold {} has no effect with --dictionaries-of, which are not changed",
                 config.frequency_threshold);
  return problems.take();
}

PretrainConfig resolve(PretrainConfig config) {
  throw_problems(problems(config));
  fill_run(config);
  return config;
}

PretrainConfig resolve_length(PretrainConfig config, int64_t samples, const RunPosition& from) {
  const int64_t batch = *config.batch.global_batch_size;
  const int64_t left = std::max<int64_t>(0, samples - from.consumed_samples);
  config.batch.train_samples = samples;
  config.batch.train_iters = from.steps + (left + batch - 1) / batch;
  return resolve(std::move(config));
}

FinetuneConfig resolve(FinetuneConfig config) {
  throw_problems(problems(config));
  if (!config.run.mesh.data_parallel_size)
    config.run.mesh.data_parallel_size = static_cast<int>(data_parallel_size(config.run.mesh));
  return config;
}

GenerateConfig resolve(GenerateConfig config) {
  throw_problems(problems(config));
  return config;
}

EvaluateConfig resolve(EvaluateConfig config) {
  throw_problems(problems(config));
  if (!config.mesh.data_parallel_size)
    config.mesh.data_parallel_size = static_cast<int>(data_parallel_size(config.mesh));
  return config;
}

// The mesh is looked at with the model, which is in the checkpoint.
std::vector<std::string> problems(const ReshardConfig& config) {
  ReshardConfig copy = config;
  Problems problems(options_of(copy));
  const bool mesh = config.mesh.tensor_model_parallel_size > 1 ||
                    config.mesh.pipeline_model_parallel_size > 1 ||
                    config.mesh.data_parallel_size.value_or(1) > 1;
  if (config.files && mesh)
    problems.add("--files {} and a mesh exclude each other: give one of them", *config.files);
  if (!config.load.empty() && config.load == config.save)
    problems.add("--save {} is the folder of --load: give another", config.save);
  return problems.take();
}

ReshardConfig resolve(ReshardConfig config) {
  throw_problems(problems(config));
  return config;
}

std::vector<std::string> problems(const ConvertConfig& config) {
  ConvertConfig copy = config;
  Problems problems(options_of(copy));
  if (!config.load.empty() && config.load == config.save)
    problems.add("--save {} is the folder of --load: give another", config.save);
  return problems.take();
}

ConvertConfig resolve(ConvertConfig config) {
  throw_problems(problems(config));
  return config;
}

InspectConfig resolve(InspectConfig config) {
  throw_problems(problems(config));
  return config;
}

BenchConfig resolve(BenchConfig config) {
  throw_problems(problems(config));
  config.run.batch.train_iters = config.warmup_iters + config.iters;
  fill_run(config.run);
  return config;
}

PlanConfig resolve(PlanConfig config) {
  throw_problems(problems(config));
  fill_run(config.run);
  return config;
}

TokenizeConfig resolve(TokenizeConfig config) {
  throw_problems(problems(config));
  return config;
}

PreprocessConfig resolve(PreprocessConfig config) {
  throw_problems(problems(config));
  return config;
}

void throw_problems(const std::vector<std::string>& list) {
  if (list.empty()) return;
  if (list.size() == 1) bad_input("{}", list[0]);
  bad_input("{} problems:\n  - {}", list.size(), fmt::join(list, "\n  - "));
}

}  // namespace trifold
