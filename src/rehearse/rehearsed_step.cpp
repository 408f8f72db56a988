#include "rehearse/rehearsed_step.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>

#include "schedule/simulate.h"

namespace trifold {

namespace {

// The times of a stage that some rank measured.
struct MeasuredStage {
  int rank = 0;
  int stage = 0;
  StageTimes times;
};

// The kinds of blocks of a stage.
struct StageKinds {
  std::set<std::pair<BlockKind, size_t>> all, layers;
};

StageKinds kinds_of(const CutModel& model, size_t stage) {
  StageKinds kinds;
  for (const int index : model.blocks_of(stage)) {
    const Block& block = model.model.blocks[static_cast<size_t>(index)];
    kinds.all.emplace(block.kind, block.layer_kind);
    if (block.kind == BlockKind::Layer) kinds.layers.emplace(block.kind, block.layer_kind);
  }
  return kinds;
}

// The costs of a stage without its collectives.
StageCost without(StageCost cost, const StageCalls& calls) {
  cost.b = cost.whole_backward() - calls.i - calls.w;
  cost.f -= calls.f;
  cost.i -= calls.i;
  cost.w -= calls.w;
  cost.step -= calls.step;
  return cost;
}

std::optional<double> seconds_of_part(ActionKind kind, const StageCost& cost) {
  switch (kind) {
    case ActionKind::F:
      return cost.f;
    case ActionKind::I:
      return cost.i;
    case ActionKind::W:
      return cost.w;
    case ActionKind::B:
      return cost.whole_backward();
    case ActionKind::Step:
      return cost.step;
    default:
      return std::nullopt;
  }
}

// The measured time of actions of one kind, for the whole stage.
std::optional<double> seconds_of_kind(const RehearsedRank& rank, ActionKind kind, int stage, int blocks) {
  const auto measured =
      std::find_if(rank.actions.begin(), rank.actions.end(), [&](const MeasuredAction& action) {
        return action.kind == kind && action.stage == stage && action.count > 0;
      });
  if (measured == rank.actions.end()) return std::nullopt;
  return measured->of_block ? blocks * measured->median_seconds : measured->median_seconds;
}

// The slower of two measurements of one stage counts.
void keep_slower(std::vector<MeasuredStage>& list, const MeasuredStage& one) {
  const auto known = std::find_if(list.begin(), list.end(),
                                  [&](const MeasuredStage& other) { return other.stage == one.stage; });
  if (known == list.end())
    list.push_back(one);
  else if (*known->times.f < *one.times.f)
    *known = one;
}

// The costs of all stages, from the plan and the measured stages.
class RehearsedCosts {
 public:
  RehearsedCosts(const PlannedRun& planned, const PlanReport& report, std::span<const RehearsedRank> ranks,
                 bool waited)
      : planned_(planned), report_(report), waited_(waited) {
    const CutModel& model = planned_.cut();
    for (size_t stage = 0; stage < model.stages.size(); ++stage) {
      kinds_.push_back(kinds_of(model, stage));
      const int place = model.rank_of_stage[stage];
      const auto blocks = static_cast<int>(model.blocks_of(stage).size());
      for (const RehearsedRank& rank : ranks) {
        if (rank.pipeline_rank != place) continue;
        const int index = static_cast<int>(stage);
        const StageTimes times = measured_times(rank, index, blocks);
        if (times.f) keep_slower(measured_, {rank.rank, index, times});
      }
    }
  }

  bool any() const { return !measured_.empty(); }

  // The costs with which the whole mesh is simulated; adds the source of each stage to `sources`.
  CostModel costs(std::vector<StageSource>& sources) const {
    CostModel model = report_.costs;
    model.timeline = false;
    for (size_t stage = 0; stage < model.stages.size(); ++stage) {
      const MeasuredStage& source = like(static_cast<int>(stage));
      replace(model.stages[stage], stage, source);
      sources.push_back({source.rank, source.stage, source.stage != static_cast<int>(stage)});
    }
    return model;
  }

 private:
  // 0: the same kinds of blocks; 1: the same kinds of layers; 2: others.
  int unlike(int stage, int other) const {
    const StageKinds& one = kinds_[static_cast<size_t>(stage)];
    const StageKinds& two = kinds_[static_cast<size_t>(other)];
    return one.all == two.all ? 0 : one.layers == two.layers ? 1 : 2;
  }

  const MeasuredStage& like(int stage) const {
    const auto rank = [&](const MeasuredStage& one) {
      return std::tuple(one.stage != stage, unlike(stage, one.stage), std::abs(one.stage - stage));
    };
    return *std::min_element(measured_.begin(), measured_.end(),
                             [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  }

  // The plan's seconds of a stage's computation.
  StageCost computation(size_t stage) const {
    return without(report_.costs.stages[stage], report_.calls[stage]);
  }

  void replace(StageCost& cost, size_t stage, const MeasuredStage& source) const {
    const StageCost own = computation(stage), other = computation(static_cast<size_t>(source.stage));
    const auto scaled = [](std::optional<double> measured, double of_stage, double of_source) {
      if (!measured) return of_stage;  // the plan has an action there that was not measured
      return of_source > 0 ? *measured * of_stage / of_source : *measured;
    };
    const StageTimes& times = source.times;
    const StageCalls added = waited_ ? StageCalls() : report_.calls[stage];
    cost.f = scaled(times.f, own.f, other.f) + added.f;
    cost.i = scaled(times.i, own.i, other.i) + added.i;
    cost.w = scaled(times.w, own.w, other.w) + added.w;
    cost.b = scaled(times.b, own.b, other.b) + added.i + added.w;
    // What an update moves is proportional to its gradients and its state.
    const auto moved = [](const StageCost& each) { return static_cast<double>(each.state_bytes); };
    cost.step = times.step ? scaled(times.step, moved(own), moved(other)) + added.step : cost.step;
  }

  const PlannedRun& planned_;
  const PlanReport& report_;
  bool waited_;
  std::vector<StageKinds> kinds_;  // [stage]
  std::vector<MeasuredStage> measured_;
};

}  // namespace

StageTimes measured_times(const RehearsedRank& rank, int stage, int blocks) {
  const auto seconds = [&](ActionKind kind) { return seconds_of_kind(rank, kind, stage, blocks); };
  return {seconds(ActionKind::F), seconds(ActionKind::I), seconds(ActionKind::W), seconds(ActionKind::B),
          seconds(ActionKind::Step)};
}

std::optional<double> planned_seconds(const PlannedRun& planned, const PlanReport& report,
                                      const MeasuredAction& action, bool waited) {
  const auto stage = static_cast<size_t>(action.stage);
  if (stage >= report.costs.stages.size()) return std::nullopt;
  const StageCost& whole = report.costs.stages[stage];
  const std::optional<double> seconds =
      seconds_of_part(action.kind, waited ? whole : without(whole, report.calls[stage]));
  if (!seconds || !is_compute(action.kind) || !action.of_block) return seconds;
  return *seconds / static_cast<double>(planned.cut().blocks_of(stage).size());
}

std::optional<RehearsedStep> simulate_rehearsed(const PlannedRun& planned, const PlanReport& report,
                                                std::span<const RehearsedRank> ranks, bool waited) {
  const RehearsedCosts costs(planned, report, ranks, waited);
  if (!costs.any()) return std::nullopt;
  RehearsedStep step;
  const Simulation simulation = simulate(planned.plan(), planned.shape(), costs.costs(step.sources));
  step.seconds = simulation.makespan / report.batches;
  step.bubble = simulation.bubble;
  step.tokens_per_second = static_cast<double>(report.tokens) / step.seconds;
  step.mfu = report.flops / (step.seconds * planned.sizes().ranks() * report.peak_flops);
  return step;
}

}  // namespace trifold
