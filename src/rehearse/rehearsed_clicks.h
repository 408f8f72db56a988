// The step of a recommender on a whole mesh, from what rehearsed ranks measured, and its part of the report.
//
// The measured actions replace the formulas of recommend/planning/forecast.h: for blocks the mean over the rehearsed
// ranks, for tables and the dense update the slowest, because all ranks wait for it. Exchanges are the plan's.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "recommend/planning/forecast.h"
#include "rehearse/rehearsed_rank.h"

namespace trifold {

// The simulated parts of the step. `waited`: the ranks waited for exchanges as long as planned. nullopt if no rank
// measured the forward of the top MLP.
std::optional<StepTimes> simulate_rehearsed(const RecommendPlan& plan, std::span<const RehearsedRank> ranks,
                                            bool waited);

// Seconds that the plan gives each action of the rank; absent for actions that only start other work.
std::vector<std::optional<double>> planned_actions(const RecommendPlan& plan, const RehearsedRank& rank);

std::vector<std::string> step_lines(const StepTimes& step, const RecommendPlan& plan);
nlohmann::ordered_json to_json(const StepTimes& step, const RecommendPlan& plan);

}  // namespace trifold
