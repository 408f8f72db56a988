// `trifold recommend`, and the plan of a recommender.
#include <utility>

#include "config/commands/json.h"
#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "config/options/bounds.h"
#include "config/options/problems.h"
#include "config/subjects/planning/goodput.h"
#include "config/subjects/recommenders/recommender.h"
#include "config/subjects/training.h"

namespace trifold {

RecommendConfig::RecommendConfig() {
  lr.lr = 0.1;
  lr.lr_decay_style = LrDecayStyle::Parabola;
}

OptionTable options_of(RecommendConfig& config) {
  OptionTable table;
  add_click_data(table, config.data);
  add_recommender(table, config.model);
  add_click_training(table, config);
  add_table_ranks(table, config);
  add_click_files(table, config);
  return table;
}

void add_click_costs(OptionTable& table, PlanRecommenderConfig& config) {
  table.group("Costs of a rank");
  table.add("peak-gflops", &config.peak_gflops, "GFLOP/s of matrix products.").positive();
  table
      .add("memory-bandwidth", &config.memory_bandwidth,
           "GB/s (1e9 bytes) of reading table rows from memory.")
      .positive();
  table.add("link-bandwidth", &config.link_bandwidth, "GB/s (1e9 bytes) between ranks.").positive();
  table.add("link-latency", &config.link_latency, "Latency of a message in microseconds.").at_least(0);
}

OptionTable options_of(PlanRecommenderConfig& config) {
  OptionTable table = options_of(config.run);
  table.forget_outputs();
  add_goodput(table, config.goodput);
  table.add("ranks-per-node", &config.run.mesh.ranks_per_node, "Number of ranks on a node.")
      .range(1, kMaxRanks)
      .absent("none")
      .only_with("mtbf", "because no failures are forecast");
  table.group("Plan");
  table
      .add("measure-steps", &config.measure_steps,
           "Measure this host's rates, train this many steps on synthetic clicks with --ranks thread ranks, "
           "and print forecast and measurement.")
      .range(0, 1'000'000)
      .no_effect_with("search", {}, "measure one of the layouts that it finds");
  table.add("svg", &config.svg, "Draw the step of a rank to this file, with overlapping work.")
      .writes("FILE.svg", {svg_mark("plan")})
      .written_as(".svg")
      .absent("none")
      .no_effect_with("search", {}, "draw one of the layouts that it finds");
  table.add("json", &config.json, "Write the figures to this file.")
      .writes("FILE", {json_mark("plan")})
      .absent("none");
  table.add("search", &config.search,
            "Find the number of ranks (at most --ranks), the placement and the exchange format with the "
            "shortest step within --memory-limit, instead of planning the given ones.");
  add_click_costs(table, config);
  return table;
}

namespace {

// Whether a rule depends on an option that a run may inherit from the checkpoint that it loads.
constexpr auto kIsAboutModel = [](const Option& option, const Rule& rule) {
  return is_inherited(option.name) ||
         is_about(rule, [](std::string_view name) { return is_inherited(name); });
};

// The problems with `run`, a part of `config`, a command's whole configuration. Callers make the checks that depend on
// the model once the run's checkpoint is known.
template <class Config>
Findings findings_of_run(const Config& config, const RecommendConfig& run) {
  const bool starts_fresh = !run.checkpoint.load && !run.checkpoint.auto_resume;
  Problems problems = problems_of_options(config, [starts_fresh](const Option& option, const Rule& rule) {
    return starts_fresh || !kIsAboutModel(option, rule);
  });
  if (starts_fresh) check_recommender(run, problems);
  check_click_data(run.data, problems);
  check_lr(run.lr, run.training.train_iters.value_or(0), problems);
  return problems.findings();
}

RecommendConfig filled(RecommendConfig config) {
  if (!config.training.embedding_lr) config.training.embedding_lr = config.lr.lr;
  return config;
}

}  // namespace

RecommendConfig without_data(RecommendConfig config) {
  config.data.valid_data.reset();
  config.data.valid_samples = 0;
  config.training.eval_interval.reset();
  config.training.target_auc.reset();
  config.training.early_stop_patience.reset();
  config.checkpoint.save_best = false;
  return config;
}

Findings findings(const RecommendConfig& config) { return findings_of_run(config, config); }

std::vector<Problem> model_problems(const RecommendConfig& config) {
  Problems problems = problems_of_options(config, kIsAboutModel);
  check_recommender(config, problems);
  return problems.take();
}

Findings findings(const PlanRecommenderConfig& config) {
  PlanRecommenderConfig copy = config;
  copy.run = without_data(std::move(copy.run));
  return findings_of_run(copy, copy.run);
}

PlanRecommenderConfig resolve(PlanRecommenderConfig config) {
  throw_problems(problems(config));
  config.run = filled(without_data(std::move(config.run)));
  return config;
}

RecommendConfig resolve(RecommendConfig config) {
  throw_problems(problems(config));
  return filled(std::move(config));
}

}  // namespace trifold
