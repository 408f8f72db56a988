// `trifold rehearse`, of each kind of run. A rehearsal has the options of its run, checked as the run checks them, and
// options of its own.
#include <algorithm>
#include <iterator>
#include <utility>

#include "config/commands/option_tables.h"
#include "config/fields/batch_sizes.h"
#include "config/fields/pipeline_choice.h"
#include "config/options/bounds.h"
#include "config/options/problems.h"
#include "config/subjects/mesh.h"
#include "config/subjects/planning/plan.h"
#include "config/subjects/planning/rehearse.h"

namespace trifold {

namespace {

template <class T>
void append(std::vector<T>& list, std::vector<T> more) {
  std::move(more.begin(), more.end(), std::back_inserter(list));
}

// The findings of the run's own command, and those in `own`, about the options of the rehearsal alone.
Findings findings_with(Findings run, Problems own) {
  Findings found = own.findings();
  append(run.errors, std::move(found.errors));
  append(run.notes, std::move(found.notes));
  return run;
}

void add_json(OptionTable& table, std::optional<std::string>& json) {
  table.add("json", &json, "Write the figures to this file.")
      .writes("FILE", {json_mark("rehearse")})
      .absent("none");
}

void add_own(OptionTable& table, RehearseConfig& rehearse, PlanConfig& plan) {
  add_rehearsal(table, rehearse);
  add_rehearsed_batch(table, rehearse);
  add_json(table, plan.json);
  add_costs(table, plan);
}
void add_own(OptionTable& table, RehearsePretrainConfig& config) {
  add_own(table, config.rehearse, config.plan);
}
void add_own(OptionTable& table, RehearseFinetuneConfig& config) {
  add_own(table, config.rehearse, config.plan);
}
void add_own(OptionTable& table, RehearseRecommenderConfig& config) {
  add_rehearsal(table, config.rehearse);
  add_rehearsed_ids(table, config.rehearse);
  add_json(table, config.plan.json);
  add_click_costs(table, config.plan);
}

// The mistakes in the options of the rehearsal alone.
template <class Config>
Problems own_problems(Config config) {
  Config plain;
  OptionTable table, defaults;
  add_own(table, config);
  add_own(defaults, plain);
  Problems problems(table);
  problems.check_rules(table, defaults, kEveryRule);
  return problems;
}

bool names_data(const DataConfig& data) {
  return data.mock_data || !data.arrays.empty() || !data.data_path.empty() || !data.train_data_path.empty() ||
         !data.valid_data_path.empty();
}

// The steps of a run whose length is not given: enough for the rehearsal and for a schedule of the learning rate.
int64_t least_steps(const LrConfig& lr, int64_t steps) {
  return std::max(
      {steps, lr.lr_warmup_iters + lr.lr_wsd_decay_iters.value_or(0) + 1, lr.lr_decay_iters.value_or(0)});
}

// The steps with batches that --rampup-batch-size makes smaller.
int64_t steps_of_ramp(const BatchConfig& batch) {
  const std::optional<BatchRamp> ramp = ramp_of(batch);
  const int64_t full = batch.global_batch_size.value_or(0);
  if (!ramp || ramp->start < 1 || ramp->increment < 1 || ramp->start >= full ||
      (full - ramp->start) % ramp->increment != 0)
    return 0;  // a mistake that is reported
  int64_t steps = 0;
  for (const StepsOfSize& some : BatchSizes(ramp, full).sizes_of())
    if (some.size < full) steps += some.steps;
  return steps;
}

// The steps of the run, if options give them as such.
std::optional<int64_t> given_steps(const PlanConfig& plan) {
  const BatchConfig& batch = plan.run.batch;
  if (!knows_length(plan) || batch.train_epochs || batch.train_samples) return std::nullopt;
  return batch.train_iters;
}

// Steps that a rehearsal measures between two drains of an asynchronous schedule, if no window is given: with them even
// the first stage keeps all its versions of the weights, so that memory is the memory of a longer window.
int64_t short_window(const PretrainConfig& run, const RehearseConfig& rehearse,
                     std::optional<int64_t> length) {
  const int64_t ranks = std::max(run.mesh.pipeline_model_parallel_size, 1);
  const int64_t samples = std::max<int64_t>(1, run.batch.micro_batch_size * data_parallel_size(run.mesh));
  const int64_t micros =
      rehearse.micro_batches.value_or(run.batch.global_batch_size.value_or(samples) / samples);
  const int64_t window = 2 + (ranks - 1) / std::max<int64_t>(1, micros);
  return std::min(window, length.value_or(window));
}

// Bounded, because the run is checked together with --steps.
int64_t measured_steps(const RehearseConfig& rehearse) {
  return std::clamp<int64_t>(rehearse.steps, 1, kMostRehearsedSteps);
}

// The steps of a rehearsal, which runs whole windows of an asynchronous schedule: one that is not measured, and then
// at least rehearse.steps.
int64_t steps_to_run(const PretrainConfig& run, const RehearseConfig& rehearse) {
  const int64_t window = std::max<int64_t>(1, run.pipeline.async_window.value_or(1));
  return window * (1 + (measured_steps(rehearse) + window - 1) / window);
}

// The run of a rehearsal, which like a plan can do without data and without a length.
PretrainConfig run_of(const RehearsePretrainConfig& config) {
  PretrainConfig run = config.plan.run;
  BatchConfig& batch = run.batch;
  if (!names_data(run.data)) run.data.mock_data = true;
  const auto schedule = chosen_schedule(run.pipeline);
  if (schedule && is_async(*schedule) && !run.pipeline.async_window)
    run.pipeline.async_window = short_window(run, config.rehearse, given_steps(config.plan));
  const int64_t steps = steps_to_run(run, config.rehearse) + steps_of_ramp(batch);
  if (!knows_length(config.plan)) batch.train_iters = least_steps(run.lr, steps);
  return run;
}

// The run of a rehearsal of a recommender. Without data it has enough synthetic clicks for the steps, read as such even if
// options name the format of the data that the real run will have.
RecommendConfig run_of(const RehearseRecommenderConfig& config) {
  const RecommendConfig& whole = config.plan.run;
  if (whole.data.train_data != "synthetic") return whole;
  RecommendConfig run = without_data(whole);
  ClickDataConfig& data = run.data;
  const int64_t batch = std::clamp<int64_t>(run.training.global_batch_size, 1, kMaxSize);
  data.synthetic_samples = std::max(data.synthetic_samples, (measured_steps(config.rehearse) + 1) * batch);
  if (data.data_format != "auto" && data.data_format != "synthetic") {
    data.data_format = "auto";
    data.dense_transform.reset();
    data.id_policy.reset();
  }
  return run;
}

}  // namespace

OptionTable options_of(RehearsePretrainConfig& config) {
  OptionTable table = options_of(config.plan.run);
  table.forget_outputs();
  for (const char* name : {"data-path", "train-iters", "lr"}) table.change(name).optional();
  table.change("data-path").absent("none: random tokens, as with --mock-data");
  add_own(table, config);
  return table;
}

Findings findings(const RehearsePretrainConfig& config) {
  Problems own = own_problems(config);
  const PretrainConfig run = run_of(config);
  check_rehearsed_ranks(config.rehearse, run.mesh.ranks, own);
  check_expert_load(config.plan.moe_load_imbalance, run, own);
  return findings_with(findings(run), std::move(own));
}

RehearsePretrainConfig resolve(RehearsePretrainConfig config) {
  throw_problems(problems(config));
  config.plan.length_given = knows_length(config.plan);
  config.rehearse.no_data = !names_data(config.plan.run.data);
  config.plan.run = resolve(run_of(config));
  return config;
}

OptionTable options_of(RehearseFinetuneConfig& config) {
  OptionTable table = options_of(config.run);
  table.forget_outputs();
  add_own(table, config);
  return table;
}

// The load of experts is checked when the checkpoint has been read.
Findings findings(const RehearseFinetuneConfig& config) {
  Problems own = own_problems(config);
  check_rehearsed_ranks(config.rehearse, config.run.run.mesh.ranks, own);
  if (!config.run.train_data && config.run.valid_data)
    own.about("train-data")
        .wrong("a rehearsal trains, and --train-data is not given")
        .right("give it; trifold finetune --valid-data evaluates");
  if (config.run.task == FinetuneTask::Dpo && config.run.dpo_reference == PairReference::Model)
    own.about("dpo-reference", "task")
        .wrong("a rank alone cannot compute the log-probabilities of the reference model of --task dpo")
        .right("rehearse with --dpo-reference none");
  return findings_with(findings(config.run), std::move(own));
}

RehearseFinetuneConfig resolve(RehearseFinetuneConfig config) {
  throw_problems(problems(config));
  config.run = resolve(std::move(config.run));
  return config;
}

OptionTable options_of(RehearseRecommenderConfig& config) {
  OptionTable table = options_of(config.plan.run);
  table.forget_outputs();
  add_own(table, config);
  return table;
}

Findings findings(const RehearseRecommenderConfig& config) {
  Problems own = own_problems(config);
  check_rehearsed_ranks(config.rehearse, config.plan.run.mesh.ranks, own);
  return findings_with(findings(run_of(config)), std::move(own));
}

RehearseRecommenderConfig resolve(RehearseRecommenderConfig config) {
  throw_problems(problems(config));
  config.plan.run = resolve(run_of(config));
  return config;
}

}  // namespace trifold
