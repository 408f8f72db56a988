#include "config/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "config/model_family.h"
#include "config/option_tables.h"
#include "config/pipeline_choice.h"
#include "config/problems.h"
#include "config/search_axes.h"
#include "config/validate_data.h"
#include "config/validate_mesh.h"
#include "config/validate_model.h"
#include "config/validate_training.h"
#include "core/error.h"

namespace trifold {

namespace {

void check_run(const PretrainConfig& config, Problems& problems) {
  check_length(config.batch, problems);
  check_data(config.data, problems);
  family_of_model(config.model).check_data(config.data, problems);
  check_part(config.data, Split::Train, "training", problems);
  check_checkpoint(config.checkpoint, problems);
  check_task_head(config, problems);
  const EvalConfig& eval = config.eval;
  if (!eval.eval_interval && eval.eval_iters != EvalConfig().eval_iters && eval.eval_iters > 0)
    problems.add("--eval-iters {} has no effect without --eval-interval N", eval.eval_iters);
  if (eval.eval_interval && eval.eval_iters == 0)
    problems.add(
        "--eval-interval {} has no effect with --eval-iters 0, which evaluates nothing: leave it out, or "
        "give at "
        "least --eval-iters 1",
        *eval.eval_interval);
  check_overlap(config.log, config.mesh, problems);
  if (eval.eval_interval && eval.eval_iters > 0)
    check_part(config.data, Split::Valid, "--eval-interval", problems);
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
    if (option.group == "Mesh of ranks" && option.name != "enable-cuda-graph" &&
        option.name != "tune-products" && option.name != "no-deterministic-mode")
      continue;
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

// With temperature 0 nothing is drawn.
void check_sampling(const GenerateConfig& config, Problems& problems) {
  const GenerateConfig defaults;
  const std::pair<const char*, bool> options[] = {{"top-k", config.top_k != defaults.top_k},
                                                  {"top-p", config.top_p != defaults.top_p},
                                                  {"seed", config.seed != defaults.seed}};
  if (config.temperature != 0) return;
  for (const auto& [option, changed] : options)
    if (changed && problems.sound({option}))
      problems.add("--{} has no effect with --temperature 0, which always takes the likeliest token", option);
}

void check_costs(const PlanConfig& config, Problems& problems) {
  const PlanConfig defaults;
  const std::pair<const char*, bool> options[] = {
      {"peak-gflops", config.peak_gflops != defaults.peak_gflops},
      {"tensor-link-bandwidth", config.tensor_link_bandwidth != defaults.tensor_link_bandwidth},
      {"link-bandwidth", config.link_bandwidth != defaults.link_bandwidth},
      {"link-latency", config.link_latency != defaults.link_latency}};
  if (config.costs && config.hardware)
    problems.add("--costs {} and --hardware {} exclude each other: give one of them", *config.costs,
                 *config.hardware);
  for (const auto& [option, given] :
       {std::pair{"hardware-set", !config.hardware_set.empty()}, std::pair{"assume", !config.assume.empty()}})
    if (given && !config.hardware) problems.add("--{} needs --hardware NAME or FILE.json", option);
  if (!config.costs && !config.hardware) return;
  for (const auto& [option, changed] : options)
    if (changed && problems.sound({option}))
      problems.add("--{} has no effect with --{} {}, whose times count", option,
                   config.costs ? "costs" : "hardware", config.costs ? *config.costs : *config.hardware);
}

// What belongs to a search, or to one plan.
void check_plan_search(const PlanConfig& config, Problems& problems) {
  if (!config.search) {
    if (!config.search_over.empty()) problems.add("--search-over has no effect without --search");
    if (!config.search_schedules.empty()) problems.add("--search-schedules has no effect without --search");
    return;
  }
  const std::vector<SearchAxis> axes = axes_searched(config);
  if (!config.search_schedules.empty() && std::count(axes.begin(), axes.end(), SearchAxis::Schedule) == 0)
    problems.add("--search-schedules has no effect where --search-over leaves the schedule out");
  if (!config.hardware)
    problems.add("--search needs --hardware NAME or FILE.json: the device that steps are timed for");
  if (config.schedule_csv)
    problems.add(
        "--schedule-csv has no effect with --search: plan the layout that it finds with the line it prints");
  check_search(config.run, axes, "--search", problems);
}

// What can be said of a run whose layout is still to be chosen. Its batch is held against each layout.
PretrainConfig without_layout(PretrainConfig run) {
  open_axes(run, all_search_axes());
  run.batch.global_batch_size.reset();
  return run;
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
  const bool decays = config.lr.lr_decay_style != LrDecayStyle::Constant || config.lr.lr_warmup_fraction;
  if (decays && !config.lr.lr_decay_iters && config.batch.train_iters > 0)
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
  check_tuning(config.mesh, problems);
  check_determinism(config, problems);
  check_tf32(config.precision, config.mesh, problems);
  check_fp8(config, problems);
}

}  // namespace

std::string multiples_around(int64_t value, int64_t unit) {
  const int64_t low = value / unit * unit;
  return low == 0 ? fmt::format("{} is", unit) : fmt::format("{} and {} are", low, low + unit);
}

std::vector<std::string> problems(const PretrainConfig& config) {
  PretrainConfig copy = config;
  Problems problems(options_of(copy));
  if (config.auto_layout) {
    check_search(config, all_search_axes(), "--auto-layout", problems);
    check_layout(without_layout(config), problems);
  } else {
    check_layout(config, problems);
  }
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
  check_tokenizer(config.run.data.tokenizer_type, config.run.data.tokenizer_model, problems);
  if (config.task == FinetuneTask::Classify) check_squad_options(config, problems);
  return problems.take();
}

std::vector<std::string> problems(const GenerateConfig& config) {
  GenerateConfig copy = config;
  Problems problems(options_of(copy));
  check_tokenizer(config.tokenizer_type, config.tokenizer_model, problems);
  check_sampling(config, problems);
  return problems.take();
}

std::vector<std::string> problems(const EvaluateConfig& config) {
  EvaluateConfig copy = config;
  Problems problems(options_of(copy));
  check_mesh(config.mesh, problems);
  check_data(config.data, problems);
  check_part(config.data, config.part, fmt::format("--part {}", name_of(config.part)), problems);
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
  if (config.what.size() > 1 && std::count(config.what.begin(), config.what.end(), BenchPart::Hardware) > 0)
    problems.add("--what hardware writes a file of its own: measure it alone");
  if (run.mesh.enable_cuda_graph && std::count(config.what.begin(), config.what.end(), BenchPart::Step) == 0)
    problems.add("--enable-cuda-graph has no effect on what is measured: it needs --what step");
  if (run.mesh.tune_products != "off" &&
      std::count(config.what.begin(), config.what.end(), BenchPart::Step) == 0)
    problems.add("--tune-products {} has no effect on what is measured: it needs --what step",
                 run.mesh.tune_products);
  return problems.take();
}

std::vector<std::string> problems(const PlanConfig& config) {
  PlanConfig copy = config;
  Problems problems(options_of(copy));
  check_layout(config.search ? without_layout(config.run) : config.run, problems);
  check_plan_search(config, problems);
  if (config.run.auto_layout)
    problems.add("--auto-layout {0} is of trifold pretrain: to plan, give --search --hardware {0}",
                 *config.run.auto_layout);
  check_optimizer(config.run.optimizer, problems);
  if (config.format != PlanFormat::Trifold && !config.schedule_csv)
    problems.add("--format {} has no effect without --schedule-csv FILE", name_of(config.format));
  check_costs(config, problems);
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
  if (config.ids == IdSource::Hash && config.max_ind_range == 0)
    problems.add("--ids hash needs --max-ind-range: the rows of every table");
  if (config.ids == IdSource::Hash && config.max_ind_range > 2147483647)
    problems.add("--ids hash: --max-ind-range {} is more rows than a table can have, 2147483647",
                 config.max_ind_range);
  if (config.ids == IdSource::Hash && config.frequency_threshold > 1)
    problems.add("--frequency-threshold {} has no effect with --ids hash: nothing is counted",
                 config.frequency_threshold);
  if (config.ids == IdSource::Hash && config.dictionaries_of)
    problems.add("--dictionaries-of {} has no effect with --ids hash", *config.dictionaries_of);
  if (config.dictionaries_of && config.frequency_threshold > 1)
    problems.add("--frequency-threshold {} has no effect with --dictionaries-of, which are not changed",
                 config.frequency_threshold);
  return problems.take();
}

PretrainConfig resolve(PretrainConfig config) {
  throw_problems(problems(config));
  if (config.auto_layout) {
    fill_model(config.model);
    open_axes(config, all_search_axes());
    return config;
  }
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

std::vector<std::string> problems(const PlanLinesConfig& config) {
  PlanLinesConfig copy = config;
  Problems problems(options_of(copy));
  return problems.take();
}

PlanLinesConfig resolve(PlanLinesConfig config) {
  throw_problems(problems(config));
  return config;
}

PlanConfig resolve(PlanConfig config) {
  throw_problems(problems(config));
  if (config.search) {
    fill_model(config.run.model);
    open_axes(config.run, axes_searched(config));
    return config;
  }
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
