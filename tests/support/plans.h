// Plans of whole configurations, as `trifold plan` makes them.
#pragma once

#include <vector>

#include "plan/memory_fit.h"
#include "plan/planned_run.h"
#include "plan/report.h"
#include "plan/resolve.h"
#include "plan/zero_table.h"

namespace trifold::test {

inline PlannedRun plan_run(const PretrainConfig& config) {
  const RunSpec run = run_spec(config);
  return PlannedRun(run, batches_to_simulate(run));
}

inline PlanReport report_of(const PlanConfig& config) {
  PlanReport report = make_plan_report(plan_run(config.run), planned_machine(config));
  check_memory_limit(config.run, report.memory);
  return report;
}

inline PlanOutcome outcome_of(const PlanConfig& config) {
  return plan_outcome(plan_run(config.run), planned_machine(config));
}

inline std::vector<PlannedRank> ranks_of(const PlanConfig& config, CountedActivations* counted = nullptr) {
  return planned_ranks(plan_run(config.run), planned_machine(config), counted);
}

inline ZeroTable zero_table_of(const PlanConfig& config) {
  return make_zero_table(plan_run(config.run), planned_machine(config));
}

}  // namespace trifold::test
