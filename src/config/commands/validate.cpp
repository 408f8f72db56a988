#include "config/commands/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "config/commands/option_tables.h"
#include "config/commands/search_axes.h"
#include "config/fields/batch_sizes.h"
#include "config/fields/pipeline_choice.h"
#include "config/options/problems.h"
#include "config/subjects/experts.h"
#include "config/subjects/memory.h"
#include "config/subjects/mesh.h"
#include "config/subjects/model.h"
#include "config/subjects/model_family.h"
#include "config/subjects/planning/plan.h"
#include "config/subjects/precision.h"
#include "config/subjects/scaling/ramps.h"
#include "config/subjects/schedule.h"
#include "config/subjects/text.h"
#include "config/subjects/training.h"
#include "config/subjects/tuning/adapters.h"
#include "config/subjects/zero.h"
#include "core/error.h"

namespace trifold {

namespace {

void check_run(const PretrainConfig& config, Problems& problems) {
  check_length(config.batch, problems);
  check_router_training(config.model, problems);
  check_upcycling(config, problems);
  check_adapters_start(config, problems);
  check_data(config.data, problems);
  check_part(config.data, Split::Train, "training", {"split"}, problems);
  check_task_head(config, problems);
  const EvalConfig& eval = config.eval;
  const bool evaluates = eval.eval_interval && eval.eval_iters > 0;
  if (evaluates && !config.data.train_data_path.empty() && config.data.valid_data_path.empty())
    problems.about("eval-interval", "valid-data-path", "train-data-path")
        .wrong("--eval-interval {} needs data to evaluate on with --train-data-path", *eval.eval_interval)
        .right("give --valid-data-path too, or leave it out");
  if (evaluates)
    check_part(config.data, Split::Valid, "--eval-interval", {"split", "eval-interval"}, problems);
}

bool searches(const PlanConfig& config, SearchAxis axis) {
  const std::vector<SearchAxis> axes = axes_searched(config);
  return config.search && std::count(axes.begin(), axes.end(), axis) > 0;
}

// A search leaves out layouts in which the load of experts is impossible.
void check_load(const PlanConfig& config, Problems& problems) {
  if (config.run.model.num_experts && searches(config, SearchAxis::Expert)) return;
  check_expert_load(config.moe_load_imbalance, config.run, problems);
}

// Options that apply only to a search, or only to a single plan.
void check_plan_search(const PlanConfig& config, Problems& problems) {
  if (!config.search) return;
  const std::vector<SearchAxis> axes = axes_searched(config);
  if (!config.search_schedules.empty() && std::count(axes.begin(), axes.end(), SearchAxis::Schedule) == 0)
    problems.about("search-schedules", "search-over")
        .wrong("--search-schedules has no effect if --search-over does not include the schedule")
        .right("leave it out too");
  check_search(config.run, axes, "search", problems);
}

// The run with a neutral layout, for checks that apply to every layout; the search checks the batch against each
// layout.
PretrainConfig without_layout(PretrainConfig run) {
  open_axes(run, all_search_axes());
  run.batch.global_batch_size.reset();
  // A single expert rank has neither option.
  run.mesh.moe_buffer_factor.reset();
  run.mesh.moe_token_dispatcher_type = TokenDispatcher::AllToAll;
  run.mesh.overlap_moe_expert_parallel_comm = false;
  return run;
}

// A plan takes the options of pretrain, but trains nothing.
constexpr auto kIsPlanned = [](const Option& option, const Rule&) {
  constexpr std::string_view kTraining[] = {"Data",       "Length of the run", "Learning rate",
                                            "Checkpoint", "Evaluation",        "Logging"};
  return std::find(std::begin(kTraining), std::end(kTraining), option.group) == std::end(kTraining);
};

void choose_family(ModelConfig& model) {
  if (model.model) model.model_type = type_of_family("model");
}

// The configuration with the model as its options give it.
template <class Config>
Config as_given(Config config) {
  ModelConfig& model = [&]() -> ModelConfig& {
    if constexpr (requires { config.run; })
      return config.run.model;
    else
      return config.model;
  }();
  model = without_sizes_of_file(model);
  choose_family(model);
  return config;
}

// A model in a file has no sizes in the options. A sample counts as one token. The number of layers is that of the
// file's numbered modules, which are known when it is read (models/family_graph.cpp).
void fill_graph(ModelConfig& model) {
  model.hidden_size = model.num_attention_heads = model.seq_length = 1;
  model.vocab_size = 1;
  model.ffn_hidden_size = 1;
}

void fill_model(ModelConfig& model) {
  if (model.model) fill_graph(model);
  model.ffn_hidden_size = inner_width(model);
  if (!model.max_position_embeddings) model.max_position_embeddings = model.seq_length;
}

// The decay of the learning rate ends with the run unless the options say otherwise.
void fill_decay(PretrainConfig& config) {
  const bool decays = config.lr.lr_decay_style != LrDecayStyle::Constant || config.lr.lr_warmup_fraction;
  if (!decays || config.batch.train_iters == 0) return;
  const BatchSizes sizes(ramp_of(config.batch), *config.batch.global_batch_size);
  if (sizes.grows() && !config.lr.lr_decay_samples)
    config.lr.lr_decay_samples = sizes.samples_of(config.batch.train_iters);
  else if (!sizes.grows() && !config.lr.lr_decay_iters)
    config.lr.lr_decay_iters = config.batch.train_iters;
}

void fill_run(PretrainConfig& config) {
  fill_model(config.model);
  const int64_t data = data_parallel_size(config.mesh);
  if (!config.mesh.data_parallel_size) config.mesh.data_parallel_size = static_cast<int>(data);
  if (!config.batch.global_batch_size) config.batch.global_batch_size = config.batch.micro_batch_size * data;
  take_samples_as_steps(config.batch, config.lr, *config.batch.global_batch_size);
  fill_pipeline(config);
  fill_decay(config);
}

// The samples of a step; 0 if they are not known yet, or an option that decides about them is wrong.
int64_t known_global_batch(const PretrainConfig& config, Problems& problems) {
  if (!sound_sizes(problems) || !problems.sound({"micro-batch-size", "global-batch-size"})) return 0;
  if (config.batch.global_batch_size) return *config.batch.global_batch_size;
  return config.auto_layout ? 0 : config.batch.micro_batch_size * data_parallel_size(config.mesh);
}

// The configuration with lengths in steps, as far as they can be computed.
PretrainConfig in_steps(PretrainConfig config, Problems& problems) {
  const bool grows = !config.batch.rampup_batch_size.empty();
  if (!grows && !gives_samples(config.batch, config.lr)) return config;
  const int64_t batch = known_global_batch(config, problems);
  if (batch > 0 || config.auto_layout) check_samples(config.batch, config.lr, batch, problems);
  if (batch > 0) take_samples_as_steps(config.batch, config.lr, batch);
  return config;
}

// The checks that training runs on any data, plans and benchmarks have in common.
void check_layout(const PretrainConfig& config, Problems& problems) {
  check_model(config.model, problems);
  check_adapters(config.model, problems);
  check_mesh(config.mesh, problems);
  check_batch(config.batch, config.mesh, problems);
  if (sound_sizes(problems)) check_batch_ramp(config, data_parallel_size(config.mesh), problems);
  check_weight_decay(config.optimizer, problems);
  check_experts_mesh(config, problems);
  check_tensor(config, problems);
  check_context(config, problems);
  check_tiled_mlp(config, problems);
  check_pipeline(config, problems);
  check_zero(config, problems);
  check_fp8(config, problems);
}

}  // namespace

ModelConfig without_sizes_of_file(ModelConfig model) {
  const bool filled = model.model && family_of_model(model).chosen_by == "model" && model.seq_length == 1;
  if (!filled) return model;
  const ModelConfig none;
  model.num_layers = none.num_layers;
  model.hidden_size = none.hidden_size;
  model.num_attention_heads = none.num_attention_heads;
  model.seq_length = none.seq_length;
  model.vocab_size = none.vocab_size;
  model.ffn_hidden_size = none.ffn_hidden_size;
  model.max_position_embeddings = none.max_position_embeddings;
  return model;
}

Findings findings(const PretrainConfig& given) {
  const PretrainConfig config = as_given(given);
  const bool any_layout = config.auto_layout.has_value();
  const PretrainConfig neutral = any_layout ? without_layout(config) : config;
  Problems problems = any_layout ? problems_of_options(config, neutral, kEveryRule)  //
                                 : problems_of_options(config);
  if (any_layout) check_search(config, all_search_axes(), "auto-layout", problems);
  check_layout(neutral, problems);
  const PretrainConfig steps = in_steps(config, problems);
  check_lr(steps.lr, steps.batch.train_iters, problems);
  check_run(config, problems);
  return problems.findings();
}

Findings findings(const BenchConfig& given) {
  const BenchConfig config = as_given(given);
  Problems problems = problems_of_options(config);
  PretrainConfig run = config.run;
  if (problems.sound({"warmup-iters", "iters"})) run.batch.train_iters = config.warmup_iters + config.iters;
  check_layout(run, problems);
  if (config.what.size() > 1 && std::count(config.what.begin(), config.what.end(), BenchPart::Hardware) > 0)
    problems.about("what")
        .wrong(
            "--what hardware cannot be combined with other measurements, "
            "because it writes its own kind of file")
        .right("measure it alone");
  return problems.findings();
}

Findings findings(const PlanConfig& given) {
  const PlanConfig config = as_given(given);
  const bool any_layout = config.search;
  PlanConfig neutral = config;
  if (any_layout) neutral.run = without_layout(config.run);
  Problems problems =
      any_layout ? problems_of_options(config, neutral, kIsPlanned) : problems_of_options(config, kIsPlanned);
  check_layout(neutral.run, problems);
  check_plan_search(config, problems);
  if (config.length_given) check_length(config.run.batch, problems);
  if (config.run.auto_layout)
    problems.about("auto-layout", "search", "hardware")
        .wrong("--auto-layout {} is an option of trifold pretrain", *config.run.auto_layout)
        .right("to plan, give --search and --hardware {}", *config.run.auto_layout);
  check_load(config, problems);
  if (!config.run.model.model && !config.run.model.vocab_size && config.run.data.data_path.empty())
    problems.about("vocab-size", "data-path")
        .wrong("--vocab-size is needed, the size of the tokenizer's vocabulary")
        .right("give it, or name the --data-path");
  return problems.findings();
}

PretrainConfig resolve(PretrainConfig config) {
  throw_problems(problems(config));
  choose_family(config.model);
  if (config.auto_layout) {
    fill_model(config.model);
    open_axes(config, all_search_axes());
    if (config.batch.global_batch_size)
      take_samples_as_steps(config.batch, config.lr, *config.batch.global_batch_size);
    return config;
  }
  fill_run(config);
  return config;
}

PretrainConfig resolve_length(PretrainConfig config, int64_t samples, const RunPosition& from) {
  const BatchSizes sizes(ramp_of(config.batch), *config.batch.global_batch_size);
  config.batch.pass_samples = samples;
  config.batch.train_iters = from.steps + sizes.steps_to(samples, from.consumed_samples);
  return resolve(std::move(config));
}

BenchConfig resolve(BenchConfig config) {
  throw_problems(problems(config));
  choose_family(config.run.model);
  config.run.batch.train_iters = config.warmup_iters + config.iters;
  fill_run(config.run);
  return config;
}

bool knows_length(const PlanConfig& config) {
  const BatchConfig& batch = config.run.batch;
  return config.length_given || batch.train_iters != PlanConfig().run.batch.train_iters ||
         batch.train_epochs || batch.train_samples;
}

PlanConfig resolve(PlanConfig config) {
  throw_problems(problems(config));
  choose_family(config.run.model);
  if (config.search) {
    fill_model(config.run.model);
    open_axes(config.run, axes_searched(config));
    return config;
  }
  fill_run(config.run);
  return config;
}

}  // namespace trifold
