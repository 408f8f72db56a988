#include "config/commands/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "config/commands/option_tables.h"
#include "config/commands/search_axes.h"
#include "config/fields/pipeline_choice.h"
#include "config/options/problems.h"
#include "config/subjects/experts.h"
#include "config/subjects/model.h"
#include "config/subjects/model_family.h"
#include "config/subjects/precision.h"
#include "config/subjects/validate_data.h"
#include "config/subjects/validate_mesh.h"
#include "config/subjects/validate_training.h"
#include "core/error.h"

namespace trifold {

namespace {

void check_run(const PretrainConfig& config, Problems& problems) {
  check_length(config.batch, problems);
  check_router_training(config.model, problems);
  check_upcycling(config, problems);
  check_data(config.data, problems);
  check_part(config.data, Split::Train, "training", {"split"}, problems);
  check_checkpoint(config.checkpoint, problems);
  check_best(config.checkpoint, config.eval.early_stop_patience,
             config.eval.eval_interval && config.eval.eval_iters > 0, problems);
  check_task_head(config, problems);
  const EvalConfig& eval = config.eval;
  if (!eval.eval_interval && eval.eval_iters != EvalConfig().eval_iters && eval.eval_iters > 0)
    problems.about("eval-iters", "eval-interval")
        .wrong("--eval-iters {} has no effect without --eval-interval N", eval.eval_iters)
        .right("give both, or neither");
  if (eval.eval_interval && eval.eval_iters == 0)
    problems.about("eval-interval", "eval-iters")
        .wrong("--eval-interval {} has no effect with --eval-iters 0, which disables evaluation",
               *eval.eval_interval)
        .right("leave it out, or give at least --eval-iters 1");
  check_overlap(config.log, config.mesh, problems);
  if (eval.eval_interval && eval.eval_iters > 0)
    check_part(config.data, Split::Valid, "--eval-interval", {"split", "eval-interval"}, problems);
}

bool searches(const PlanConfig& config, SearchAxis axis) {
  const std::vector<SearchAxis> axes = axes_searched(config);
  return config.search && std::count(axes.begin(), axes.end(), axis) > 0;
}

// Ranks that hold parts of the same experts get the same rows. A search leaves out layouts that do not have such a
// load.
void check_load(const PlanConfig& config, Problems& problems) {
  if (config.moe_load_imbalance == 1 ||
      !problems.sound({"moe-load-imbalance", "expert-model-parallel-size", "num-experts"}))
    return;
  if (config.run.model.num_experts && searches(config, SearchAxis::Expert)) return;
  const int ranks = config.run.model.num_experts ? config.run.mesh.expert_model_parallel_size : 1;
  if (ranks == 1)
    problems.about("moe-load-imbalance", "expert-model-parallel-size", "num-experts")
        .wrong("--moe-load-imbalance {} has no effect: no ranks share experts", config.moe_load_imbalance)
        .right("it needs --num-experts and --expert-model-parallel-size");
  else if (config.moe_load_imbalance > ranks)
    problems.about("moe-load-imbalance", "expert-model-parallel-size")
        .wrong("--moe-load-imbalance {} is not possible with --expert-model-parallel-size {}",
               config.moe_load_imbalance, ranks)
        .right("give at most {}: all rows on one rank", ranks);
  else if (config.costs)
    problems.about("moe-load-imbalance", "costs")
        .wrong("--moe-load-imbalance {} has no effect with --costs {}, whose times count",
               config.moe_load_imbalance, *config.costs)
        .right("leave it out");
}

void check_costs(const PlanConfig& config, Problems& problems) {
  check_load(config, problems);
  const PlanConfig defaults;
  const std::pair<const char*, bool> options[] = {
      {"peak-gflops", config.peak_gflops != defaults.peak_gflops},
      {"tensor-link-bandwidth", config.tensor_link_bandwidth != defaults.tensor_link_bandwidth},
      {"link-bandwidth", config.link_bandwidth != defaults.link_bandwidth},
      {"link-latency", config.link_latency != defaults.link_latency}};
  if (config.costs && config.hardware)
    problems.about("costs", "hardware")
        .wrong("--costs {} and --hardware {} exclude each other", *config.costs, *config.hardware)
        .right("give one of them");
  for (const auto& [option, given] :
       {std::pair{"hardware-set", !config.hardware_set.empty()}, std::pair{"assume", !config.assume.empty()}})
    if (given && !config.hardware)
      problems.about(option, "hardware")
          .wrong("--{} needs --hardware NAME or FILE.json", option)
          .right("give both, or neither");
  if (!config.costs && !config.hardware) return;
  for (const auto& [option, changed] : options)
    if (changed && problems.sound({option}))
      problems.about(option, config.costs ? "costs" : "hardware")
          .wrong("--{} has no effect with --{} {}, whose times count", option,
                 config.costs ? "costs" : "hardware", config.costs ? *config.costs : *config.hardware)
          .right("leave it out");
}

// Options that apply only to a search, or only to a single plan.
void check_plan_search(const PlanConfig& config, Problems& problems) {
  if (!config.search) {
    if (!config.search_over.empty())
      problems.about("search-over", "search")
          .wrong("--search-over has no effect without --search")
          .right("give both, or neither");
    if (!config.search_schedules.empty())
      problems.about("search-schedules", "search")
          .wrong("--search-schedules has no effect without --search")
          .right("give both, or neither");
    return;
  }
  const std::vector<SearchAxis> axes = axes_searched(config);
  if (!config.search_schedules.empty() && std::count(axes.begin(), axes.end(), SearchAxis::Schedule) == 0)
    problems.about("search-schedules", "search-over")
        .wrong("--search-schedules has no effect if --search-over does not include the schedule")
        .right("leave it out too");
  if (!config.hardware)
    problems.about("search", "hardware")
        .wrong("--search needs --hardware NAME or FILE.json, the device that steps are timed for")
        .right("give it");
  if (config.schedule_csv)
    problems.about("schedule-csv", "search")
        .wrong("--schedule-csv has no effect with --search")
        .right("plan the layout found, with the options that the search prints");
  check_search(config.run, axes, "search", problems);
}

// The run with a neutral layout, for checks that hold for every layout; the search checks the batch against each one.
PretrainConfig without_layout(PretrainConfig run) {
  open_axes(run, all_search_axes());
  run.batch.global_batch_size.reset();
  // One expert rank has neither of these.
  run.mesh.moe_buffer_factor.reset();
  run.mesh.moe_token_dispatcher_type = TokenDispatcher::AllToAll;
  run.mesh.overlap_moe_expert_parallel_comm = false;
  return run;
}

// A plan takes the options of pretrain, but trains nothing.
constexpr auto is_planned = [](const Option& option, const Rule&) {
  constexpr std::string_view kTraining[] = {"Data",       "Length of the run", "Learning rate",
                                            "Checkpoint", "Evaluation",        "Logging"};
  return std::find(std::begin(kTraining), std::end(kTraining), option.group) == std::end(kTraining);
};

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

// The checks that training runs on any data, plans and benchmarks have in common.
void check_layout(const PretrainConfig& config, Problems& problems) {
  check_model(config.model, problems);
  check_mesh(config.mesh, problems);
  check_batch(config.batch, config.mesh, problems);
  check_experts_mesh(config, problems);
  check_tensor(config, problems);
  check_context(config, problems);
  check_tiled_mlp(config, problems);
  check_offloaded_layers(config, problems);
  check_pipeline(config, problems);
  check_zero(config, problems);
  check_graphs(config.mesh, problems);
  check_tuning(config.mesh, problems);
  check_determinism(config, problems);
  check_fp8(config, problems);
}

}  // namespace

std::vector<Problem> problems(const PretrainConfig& config) {
  PretrainConfig copy = config;
  Problems problems(options_of(copy));
  if (config.auto_layout) {
    check_search(config, all_search_axes(), "auto-layout", problems);
    check_rules(without_layout(config), problems);
    check_layout(without_layout(config), problems);
  } else {
    check_rules(config, problems);
    check_layout(config, problems);
  }
  check_lr(config.lr, config.batch.train_iters, problems);
  check_optimizer(config.optimizer, problems);
  check_run(config, problems);
  return problems.take();
}

std::vector<Problem> problems(const BenchConfig& config) {
  BenchConfig copy = config;
  Problems problems(options_of(copy));
  PretrainConfig run = config.run;
  if (problems.sound({"warmup-iters", "iters"})) run.batch.train_iters = config.warmup_iters + config.iters;
  check_rules(config, problems);
  check_layout(run, problems);
  if (config.what.size() > 1 && std::count(config.what.begin(), config.what.end(), BenchPart::Hardware) > 0)
    problems.about("what")
        .wrong(
            "--what hardware cannot be combined with other measurements, "
            "because it writes its own kind of file")
        .right("measure it alone");
  const bool steps = std::count(config.what.begin(), config.what.end(), BenchPart::Step) > 0;
  if (run.mesh.enable_cuda_graph && !steps)
    problems.about("enable-cuda-graph", "what")
        .wrong("--enable-cuda-graph has no effect on these measurements")
        .right("it needs --what step");
  if (run.mesh.tune_products != "off" && !steps)
    problems.about("tune-products", "what")
        .wrong("--tune-products {} has no effect on these measurements", run.mesh.tune_products)
        .right("it needs --what step");
  if (run.mesh.cpu_offloading_num_layers > 0 && !steps)
    problems.about("cpu-offloading-num-layers", "what")
        .wrong("--cpu-offloading-num-layers {} has no effect on these measurements",
               run.mesh.cpu_offloading_num_layers)
        .right("it needs --what step");
  return problems.take();
}

std::vector<Problem> problems(const PlanConfig& config) {
  PlanConfig copy = config;
  Problems problems(options_of(copy));
  if (config.search) copy.run = without_layout(config.run);
  check_rules(copy, problems, is_planned);
  check_layout(copy.run, problems);
  check_plan_search(config, problems);
  if (config.run.auto_layout)
    problems.about("auto-layout", "search", "hardware")
        .wrong("--auto-layout {} is an option of trifold pretrain", *config.run.auto_layout)
        .right("to plan, give --search and --hardware {}", *config.run.auto_layout);
  check_optimizer(config.run.optimizer, problems);
  if (config.format != PlanFormat::Trifold && !config.schedule_csv)
    problems.about("format", "schedule-csv")
        .wrong("--format {} has no effect without --schedule-csv FILE", name_of(config.format))
        .right("give both, or neither");
  check_costs(config, problems);
  if (!config.run.model.vocab_size && config.run.data.data_path.empty())
    problems.about("vocab-size", "data-path")
        .wrong("--vocab-size is needed, the size of the tokenizer's vocabulary")
        .right("give it, or name the --data-path");
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

BenchConfig resolve(BenchConfig config) {
  throw_problems(problems(config));
  config.run.batch.train_iters = config.warmup_iters + config.iters;
  fill_run(config.run);
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

}  // namespace trifold
