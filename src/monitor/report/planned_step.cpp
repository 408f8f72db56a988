#include "monitor/report/planned_step.h"

#include <algorithm>

#include "config/commands/json.h"
#include "config/commands/validate.h"
#include "core/error.h"
#include "plan/planned_run.h"
#include "plan/report.h"
#include "plan/resolve.h"
#include "recommend/planning/forecast.h"

namespace trifold {

namespace {

PlannedPicture of_language_model(const nlohmann::json& start) {
  PlanConfig config;
  config.run = resolve(pretrain_from_json(start["options"]));
  if (const auto peak = start.find("peak_flops"); peak != start.end() && peak->is_number())
    config.peak_gflops = std::max(1e-3, peak->get<double>() / config.run.mesh.ranks / 1e9);
  const RunSpec spec = run_spec(config.run);
  const PlannedRun planned(spec, batches_to_simulate(spec));
  const PlanReport report = make_plan_report(planned, planned_machine(config));
  size_t most = 0;
  for (const MemoryReport& rank : report.memory) most = std::max(most, rank.predicted_total());
  return {report.step_seconds, most, {report.simulation, picture_text(report)}};
}

PlannedPicture of_recommender(const nlohmann::json& start) {
  PlanRecommenderConfig config;
  config.run = recommend_from_json(start["options"]);
  const RecommendPlan plan = make_recommend_plan(config);
  size_t most = 0;
  for (const RecommenderMemory& rank : plan.memory) most = std::max(most, static_cast<size_t>(rank.total()));
  return {plan.step.times.step, most, {plan.step.simulation, picture_text(plan)}};
}

PlannedPicture planned_picture(const nlohmann::json& start) {
  if (!start.is_object() || !start.contains("options") || !start["options"].is_object())
    bad_input("the log has no options of the run");
  const nlohmann::json command = start.contains("command") ? start["command"] : nlohmann::json();
  if (command == "recommend") return of_recommender(start);
  if (command == "pretrain" || command == "finetune") return of_language_model(start);
  bad_input("the log's command is none that has a plan");
}

}  // namespace

Planned planned_step(const nlohmann::json& start) {
  try {
    return {planned_picture(start), ""};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

}  // namespace trifold
