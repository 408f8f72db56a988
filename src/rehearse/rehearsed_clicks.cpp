#include "rehearse/rehearsed_clicks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/bytes_text.h"
#include "recommend/planning/recommender_memory.h"

namespace trifold {

namespace {

// The times of one action on all rehearsed ranks.
struct ActionSpread {
  double sum = 0, most = 0;
  int ranks = 0;
  double mean() const { return ranks == 0 ? 0 : sum / ranks; }
};

ActionSpread spread_of(std::span<const RehearsedRank> ranks, ActionKind kind, int stage) {
  ActionSpread spread;
  for (const RehearsedRank& rank : ranks)
    for (const MeasuredAction& action : rank.actions) {
      if (action.kind != kind || action.stage != stage || action.count == 0) continue;
      spread.sum += action.median_seconds;
      spread.most = std::max(spread.most, action.median_seconds);
      ++spread.ranks;
    }
  return spread;
}

BlockSeconds block_of(std::span<const RehearsedRank> ranks, int stage) {
  const auto mean = [&](ActionKind kind) { return spread_of(ranks, kind, stage).mean(); };
  return {mean(ActionKind::F), mean(ActionKind::I), mean(ActionKind::W), mean(ActionKind::B)};
}

// Seconds of the exchanges that a measured update does not contain: the sums of replicated tables' gradients, and the
// gathering of weights whose update is sharded.
struct UpdateExchanges {
  double rows = 0, dense = 0;
};

UpdateExchanges exchanges_of(const RecommendPlan& plan) {
  const auto ranks = static_cast<double>(plan.loads.size());
  if (plan.loads.size() == 1) return {};
  double copies = 0;
  for (const RankLoad& load : plan.loads) copies = std::max(copies, load.copies_out);
  UpdateExchanges exchanges{copies / plan.rates.link + (ranks - 1) * plan.rates.latency, 0};
  if (dense_sharing(plan.setup, static_cast<int>(plan.loads.size())).stage.optimizer)
    exchanges.dense = (ranks - 1) / ranks * static_cast<double>(plan.step.dense_parameters) *
                      static_cast<double>(size_of(plan.setup.dtype)) / plan.rates.link;
  return exchanges;
}

}  // namespace

std::optional<StepTimes> simulate_rehearsed(const RecommendPlan& plan, std::span<const RehearsedRank> ranks,
                                            bool waited) {
  const int top = step_shape(plan.setup).top();
  if (spread_of(ranks, ActionKind::F, top).ranks == 0) return std::nullopt;
  const UpdateExchanges added = waited ? UpdateExchanges() : exchanges_of(plan);
  const auto slowest = [&](ActionKind kind) { return spread_of(ranks, kind, 0).most; };
  MeasuredActions measured;
  measured.top = block_of(ranks, top);
  if (top > 0) measured.bottom = block_of(ranks, 0);
  measured.lookups = slowest(ActionKind::Lookup);
  measured.update = slowest(ActionKind::UpdateRows) + added.rows;
  measured.dense_update = slowest(ActionKind::Step) + added.dense;
  RankRates rates = plan.rates;
  rates.measured = measured;
  return predict_step(plan.setup, plan.loads, rates, true).times;
}

std::vector<std::optional<double>> planned_actions(const RecommendPlan& plan, const RehearsedRank& rank) {
  std::vector<std::optional<double>> seconds;
  for (const MeasuredAction& action : rank.actions) {
    const std::vector<TimelineEntry>& timeline = plan.step.simulation.timeline;
    const auto entry = std::find_if(timeline.begin(), timeline.end(), [&](const TimelineEntry& one) {
      return !one.communication && one.action.kind == action.kind && one.action.stage == action.stage;
    });
    if (entry == timeline.end())
      seconds.emplace_back();
    else
      seconds.emplace_back(entry->end - entry->begin);
  }
  return seconds;
}

std::vector<std::string> step_lines(const StepTimes& step, const RecommendPlan& plan) {
  std::vector<std::string> lines;
  const size_t ranks = plan.loads.size();
  lines.push_back(
      fmt::format("parts       of the simulated step of all {} rank{}", ranks, ranks == 1 ? "" : "s"));
  lines.push_back(fmt::format("  {:<18} {:>12} {:>12}", "", "planned", "rehearsed"));
  for (size_t part = 0; part < kStepPartNames.size(); ++part)
    lines.push_back(fmt::format("  {:<18} {:>12} {:>12}", kStepPartNames[part],
                                seconds_text(plan.step.times.parts[part]), seconds_text(step.parts[part])));
  const auto samples = static_cast<double>(plan.setup.global_batch);
  lines.push_back(
      fmt::format("step        {}, {} samples/s", seconds_text(step.step), rate_text(samples / step.step)));
  lines.push_back(fmt::format("            planned: {}", seconds_text(plan.step.times.step)));
  return lines;
}

nlohmann::ordered_json to_json(const StepTimes& step, const RecommendPlan& plan) {
  nlohmann::ordered_json parts;
  for (size_t part = 0; part < kStepPartNames.size(); ++part)
    parts[kStepPartNames[part]] = {{"planned_seconds", plan.step.times.parts[part]},
                                   {"seconds", step.parts[part]}};
  return {{"seconds", step.step},
          {"planned_seconds", plan.step.times.step},
          {"samples_per_second", static_cast<double>(plan.setup.global_batch) / step.step},
          {"parts", std::move(parts)}};
}

}  // namespace trifold
