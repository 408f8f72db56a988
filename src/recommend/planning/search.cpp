#include "recommend/planning/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "plan/layout_search.h"
#include "recommend/planning/place_tables.h"

namespace trifold {

namespace {

constexpr size_t kShownRecommenders = 10;
constexpr double kBytesOfGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kNoTime = std::numeric_limits<double>::infinity();

// The part of a step that takes longest, and its share.
std::string longest_part(const StepTimes& times) {
  const auto longest = std::max_element(times.parts.begin(), times.parts.end());
  return fmt::format("{} {:.0f} %", kStepPartNames[static_cast<size_t>(longest - times.parts.begin())],
                     100 * *longest / times.step);
}

struct PlannedRecommender {
  FoundRecommender found;
  std::vector<TablePlacement> places;
};

class RecommenderSearcher {
 public:
  explicit RecommenderSearcher(const PlanRecommenderConfig& config)
      : config_(config), schema_(schema_to_plan(config_.run)) {
    if (config.run.placement.memory_limit) limit_ = kBytesOfGib * *config.run.placement.memory_limit;
  }

  RecommenderSearch find() {
    for (const int ranks : rank_counts())
      for (const TablePlacements& placement : placements(ranks))
        for (const bool bf16 : exchanges(ranks)) visit(ranks, placement, bf16);
    if (layouts_ == 0)
      bad_input("no placement on up to {} ranks can run: {}", config_.run.mesh.ranks, problem_);
    if (fitting_.empty())
      bad_input(
          "none of {} placements fits in {:.2f} GiB per rank: the smallest, {:.2f} GiB, is needed with {}",
          layouts_, limit_ / kBytesOfGib, static_cast<double>(least_.bytes) / kBytesOfGib,
          fmt::join(least_.words, " "));
    RecommenderSearch search{layouts_, static_cast<int64_t>(fitting_.size()), {}};
    for (const size_t at : best_first()) {
      if (search.best.size() == kShownRecommenders) break;
      FoundRecommender& found = fitting_[at];
      const auto faster = fastest_not_fitting_.find(found.run.mesh.ranks);
      if (faster != fastest_not_fitting_.end() && faster->second < (1 - kSearchTie) * found.step_seconds)
        found.bound = "memory, " + found.bound;
      search.best.push_back(std::move(found));
    }
    return search;
  }

 private:
  // ---- The space ----

  std::vector<int> rank_counts() const {
    const int most = config_.run.mesh.ranks;
    std::vector<int> counts;
    for (int64_t ranks = 1; ranks < most; ranks *= 2) counts.push_back(static_cast<int>(ranks));
    counts.push_back(most);
    return counts;
  }

  // On one rank all placements are the same.
  static std::vector<TablePlacements> placements(int ranks) {
    std::vector<TablePlacements> all{{}};
    if (ranks > 1)
      for (const auto& named : Names<PlacementKind>::kAll) all.push_back({{named.value}});
    return all;
  }

  std::vector<bool> exchanges(int ranks) const {
    const bool given = config_.run.placement.bf16_exchange;
    if (given || ranks == 1 || config_.run.precision.f64) return {given};
    return {false, true};
  }

  void visit(int ranks, const TablePlacements& placement, bool bf16) {
    PlanRecommenderConfig one = config_;
    one.run.mesh.ranks = ranks;
    one.run.placement.placement = placement;
    one.run.placement.bf16_exchange = bf16;
    std::optional<PlannedRecommender> candidate = planned(one);  // the planner keeps to the limit if it can
    one.run.placement.memory_limit.reset();
    const std::optional<PlannedRecommender> unlimited = planned(one);
    if (!unlimited) return;
    ++layouts_;
    if (!candidate) candidate = unlimited;
    if (layouts_ == 1 || candidate->found.bytes < least_.bytes) least_ = candidate->found;
    if (!fits(unlimited->found)) {
      double& fastest = fastest_not_fitting_.try_emplace(ranks, kNoTime).first->second;
      fastest = std::min(fastest, unlimited->found.step_seconds);
    }
    if (!fits(candidate->found)) return;
    const bool is_new = seen_.insert(key_of(ranks, bf16, candidate->places)).second;
    if (is_new) fitting_.push_back(std::move(candidate->found));
  }

  // nullopt if it cannot run.
  std::optional<PlannedRecommender> planned(const PlanRecommenderConfig& one) {
    try {
      const RecommendPlan plan = plan_on_schema(one, schema_);
      FoundRecommender found{
          one.run, {}, plan.step.times.step, 0, imbalance(plan.loads), longest_part(plan.step.times)};
      found.run.placement.memory_limit = config_.run.placement.memory_limit;
      const RecommendConfig& run = one.run;
      found.words = {fmt::format("--ranks {}", run.mesh.ranks),
                     fmt::format("--placement {}", run.placement.placement.text())};
      if (run.placement.bf16_exchange) found.words.emplace_back("--bf16-exchange");
      for (const RecommenderMemory& memory : plan.memory) found.bytes = std::max(found.bytes, memory.total());
      return PlannedRecommender{std::move(found), plan.setup.placement};
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      if (problem_.empty()) problem_ = error.what();
      return std::nullopt;
    }
  }

  bool fits(const FoundRecommender& found) const { return static_cast<double>(found.bytes) <= limit_; }

  // Identifies the placement of every table.
  static std::vector<int> key_of(int ranks, bool bf16, const std::vector<TablePlacement>& places) {
    std::vector<int> key{ranks, bf16 ? 1 : 0};
    for (const TablePlacement& place : places)
      key.insert(key.end(), {static_cast<int>(place.kind), place.first_rank, place.parts});
    return key;
  }

  // Ties go to less memory, then to fewer ranks.
  std::vector<size_t> best_first() const {
    std::vector<LayoutRank> all;
    double most = 0;
    for (const FoundRecommender& found : fitting_) {
      all.push_back({found.step_seconds, static_cast<double>(found.bytes), found.run.mesh.ranks});
      most = std::max(most, static_cast<double>(found.bytes));
    }
    return order_of_layouts(all, std::min(limit_, most));
  }

  PlanRecommenderConfig config_;
  ClickSchema schema_;
  double limit_ = kNoTime;  // bytes of a rank
  int64_t layouts_ = 0;
  std::string problem_;  // the first
  FoundRecommender least_;
  std::vector<FoundRecommender> fitting_;
  std::set<std::vector<int>> seen_;
  std::map<int, double> fastest_not_fitting_;  // [ranks]
};

}  // namespace

RecommenderSearch search_recommender(const PlanRecommenderConfig& config) {
  return RecommenderSearcher(config).find();
}

}  // namespace trifold
