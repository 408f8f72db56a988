#include <algorithm>
#include <map>
#include <tuple>

#include "core/error.h"
#include "schedule/passes.h"
#include "schedule/placement.h"
#include "schedule/simulate.h"

namespace trifold {

namespace {

// Time between a lookup and the use of its result, and between its gradient and its backward: that of a stage's longest
// computation, a whole backward, where a forward takes 1.
constexpr double kLead = 2;

struct Span {
  double begin, end;
};

// The begin and end of each computation, by kind (B counts as I and as W), stage and micro-batch.
class Times {
 public:
  Times(const Plan& plan, const PlanShape& shape) {
    const auto stages = static_cast<size_t>(shape.stages);
    CostModel cost;
    cost.stages.resize(stages);
    const Plan whole =
        add_communication(add_reduce(plan, shape.blocks, std::vector<std::vector<int>>(stages)));
    for (const TimelineEntry& entry : simulate(whole, shape, cost).timeline) {
      const ActionKind kind = entry.action.kind;
      if (kind == ActionKind::B || kind == ActionKind::I) note(ActionKind::I, entry);
      if (kind == ActionKind::B || kind == ActionKind::W) note(ActionKind::W, entry);
      if (kind == ActionKind::F) note(kind, entry);
    }
  }

  Span of(ActionKind kind, int stage, int micro) const { return spans_.at({kind, stage, micro}); }
  Span of(const Action& action) const {
    return of(action.kind == ActionKind::B ? ActionKind::I : action.kind, action.stage, action.micro);
  }

 private:
  // Records an entry; the blocks of a stage count as one.
  void note(ActionKind kind, const TimelineEntry& entry) {
    const auto [at, is_new] =
        spans_.try_emplace({kind, entry.action.stage, entry.action.micro}, Span{entry.begin, entry.end});
    if (is_new) return;
    at->second.begin = std::min(at->second.begin, entry.begin);
    at->second.end = std::max(at->second.end, entry.end);
  }

  std::map<std::tuple<ActionKind, int, int>, Span> spans_;
};

// The shape of the plan without its lookup stages.
PlanShape shape_behind(const PlanShape& shape) {
  const auto count = static_cast<std::ptrdiff_t>(shape.lookups.size());
  PlanShape own{.stages = shape.stages - static_cast<int>(count), .micros = shape.micros};
  own.blocks.resize(static_cast<size_t>(own.stages), 1);
  if (!shape.blocks.empty()) own.blocks.assign(shape.blocks.begin() + count, shape.blocks.end());
  return own;
}

// Splits the last backward of the first stage into I and W if other backwards of the plan are split, so that its
// gradient is sent before the weight gradients are computed.
void split_last(Plan& plan) {
  const auto has = [&](ActionKind kind) {
    return std::any_of(plan.begin(), plan.end(), [&](const RankPlan& row) {
      return std::any_of(row.begin(), row.end(), [&](const Action& action) { return action.kind == kind; });
    });
  };
  if (!has(ActionKind::I)) return;
  for (RankPlan& row : plan)
    for (size_t i = row.size(); i-- > 0;) {
      if (row[i].stage != 0 || !is_backward(row[i].kind)) continue;
      if (row[i].kind != ActionKind::B || row[i].block != Action::kAll || row[i].overlaps_next) return;
      if (i > 0 && row[i - 1].overlaps_next) return;
      Action weight = row[i];
      weight.kind = ActionKind::W;
      row[i].kind = ActionKind::I;
      row.insert(row.begin() + static_cast<std::ptrdiff_t>(i) + 1, weight);
      return;
    }
}

// Every added action gets a time between the computations around it in its row, and later than the actions it depends
// on, so the rows can run in the order of these times.
class LookupWriter {
 public:
  LookupWriter(const Plan& plan, const PlanShape& shape)
      : plan_(plan), shape_(shape), times_(plan, shape_behind(shape)), added_(plan.size()) {
    for (const RankPlan& row : plan) {
      std::vector<double>& begins = begins_.emplace_back();
      std::vector<double>& ends = ends_.emplace_back();
      for (const Action& action : row) {
        const Span span = times_.of(action);
        begins.push_back(std::max(begins.empty() ? 0 : begins.back(), span.begin));
        ends.push_back(std::max(ends.empty() ? 0 : ends.back(), span.end));
      }
    }
  }

  Plan write() {
    for (int micro = 0; micro < shape_.micros; ++micro) {
      add_forwards(micro);
      add_backwards(micro);
    }
    Plan all(plan_.size());
    for (size_t rank = 0; rank < plan_.size(); ++rank) all[rank] = merged(rank);
    return all;
  }

 private:
  struct Added {
    size_t at;  // the action of the row that it comes before
    double time;
    Action action;
  };

  int count() const { return static_cast<int>(shape_.lookups.size()); }
  size_t rank_of(int stage) const { return static_cast<size_t>(shape_.lookups[static_cast<size_t>(stage)]); }

  // Both actions of a pair stay together.
  bool splits_pair(size_t rank, size_t at) const { return at > 0 && plan_[rank][at - 1].overlaps_next; }

  void add_forwards(int micro) {
    double time = times_.of(ActionKind::F, 0, micro).begin;
    for (int stage = count(); stage-- > 0;) {
      time -= kLead;
      const size_t rank = rank_of(stage);
      const std::vector<double>& ends = ends_[rank];
      auto at = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), time) - ends.begin());
      while (splits_pair(rank, at)) --at;
      if (at < ends.size()) time = std::min(time, begins_[rank][at]);
      added_[rank].push_back({at, time, {ActionKind::F, stage, Action::kAll, micro}});
    }
  }

  void add_backwards(int micro) {
    // If gradients are summed per micro-batch, both uses of a weight share their memory, and the head's use comes
    // first.
    const bool in_order = shape_.micros == 1 || !shape_.each.empty();
    double time = times_.of(ActionKind::I, 0, micro).end;
    for (int stage = count(); stage-- > 0;) {
      time += kLead;
      for (const TiedStage& tied : shape_.tied)
        if (tied.of == stage && in_order)
          time = std::max(time, times_.of(ActionKind::W, tied.stage - count(), micro).end);
      const size_t rank = rank_of(stage);
      const std::vector<double>& begins = begins_[rank];
      auto at = static_cast<size_t>(std::lower_bound(begins.begin(), begins.end(), time) - begins.begin());
      while (splits_pair(rank, at)) ++at;
      if (at < begins.size()) time = std::max(time, begins[at]);
      added_[rank].push_back({at, time, {ActionKind::B, stage, Action::kAll, micro}});
    }
  }

  RankPlan merged(size_t rank) {
    std::vector<Added>& added = added_[rank];
    std::stable_sort(added.begin(), added.end(), [](const Added& a, const Added& b) {
      return std::tie(a.at, a.time) < std::tie(b.at, b.time);
    });
    RankPlan row;
    auto next = added.begin();
    for (size_t i = 0; i <= plan_[rank].size(); ++i) {
      for (; next != added.end() && next->at == i; ++next) row.push_back(next->action);
      if (i == plan_[rank].size()) break;
      row.push_back(plan_[rank][i]);
      row.back().stage += count();
    }
    return row;
  }

  const Plan& plan_;
  const PlanShape& shape_;
  Times times_;
  std::vector<std::vector<double>> begins_, ends_;  // [rank][action]
  std::vector<std::vector<Added>> added_;           // [rank]
};

}  // namespace

Plan add_lookups(Plan plan, const PlanShape& shape) {
  if (shape.lookups.empty()) return plan;
  for (const RankPlan& row : plan)
    for (const Action& action : row)
      check(is_compute(action.kind), "stages that look up tokens are added to computation, not to {}",
            to_string(action));
  split_last(plan);
  return LookupWriter(plan, shape).write();
}

}  // namespace trifold
