// The report of a rehearsal: what each rank held, did and took, compared with the plan, and the step of the whole mesh, as lines
// of text and as JSON. For runs of every kind.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "plan/report.h"
#include "rehearse/rehearsed_rank.h"
#include "rehearse/rehearsed_step.h"

namespace trifold {

// A rank with what the plan of the whole step says of it. With cut micro-batches, `rank.planned` is of the cut step.
struct ReportedRank {
  RehearsedRank rank;
  std::vector<std::optional<double>> planned_actions;  // seconds of each of rank.actions; absent: not planned
  std::optional<MemoryReport> whole_step;              // absent if the step was not cut
  double whole_step_micros = 0;                        // micro-batches of the step that was not cut
  std::optional<int> fails_as = {};                    // an earlier rank that failed in the same way
};

// Seconds that the plan gives an action of the rank: without the collectives in it unless the ranks waited for them.
// Absent for actions that only start other work.
std::vector<std::optional<double>> planned_actions(const PlannedRun& planned, const PlanReport& report,
                                                   const RehearsedRank& rank, bool waited);

// The tables of one rank. A rank that failed has the tables of what it had done before.
std::vector<std::string> rank_lines(const ReportedRank& reported);

// The simulated step of the whole mesh. `unit` is what a step's tokens are called.
std::vector<std::string> step_lines(const RehearsedStep& step, const PlanReport& report,
                                    const std::string& unit);

nlohmann::ordered_json to_json(const ReportedRank& reported);
nlohmann::ordered_json to_json(const RehearsedStep& step, const PlanReport& report);

}  // namespace trifold
