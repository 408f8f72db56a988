#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "schedule/passes.h"
#include "schedule/placement.h"

namespace trifold {

namespace {

bool is_weight_gradient(const Action& action) {
  return action.kind == ActionKind::B || action.kind == ActionKind::W;
}

bool has(const RankPlan& row, ActionKind kind, int stage) {
  return std::any_of(row.begin(), row.end(),
                     [&](const Action& a) { return a.kind == kind && a.stage == stage; });
}

// Whether the row reduces gradients of the stage: of all micro-batches at once, or of one.
bool has_reduction(const RankPlan& row, int stage, bool of_one_micro) {
  return std::any_of(row.begin(), row.end(), [&](const Action& a) {
    return a.kind == ActionKind::ReduceGrad && a.stage == stage && (a.micro != Action::kAll) == of_one_micro;
  });
}

// The last weight gradient of `stage` before `end`; none if a Step comes first.
std::optional<size_t> last_weight_gradient(const RankPlan& row, size_t end, int stage) {
  for (size_t i = end; i-- > 0;) {
    if (row[i].stage != stage) continue;
    if (row[i].kind == ActionKind::Step) return std::nullopt;
    if (is_weight_gradient(row[i])) return i;
  }
  return std::nullopt;
}

void insert(RankPlan& row, size_t at, const RankPlan& actions) {
  row.insert(row.begin() + static_cast<std::ptrdiff_t>(at), actions.begin(), actions.end());
}

bool contains(const std::vector<int>& ends, int block) {
  return std::find(ends.begin(), ends.end(), block) != ends.end();
}

// Replaces action `at`, a backward of a whole stage, by one backward per block, with reductions after bucket
// ends. An overlapped pair that contains it is split.
void split_with_reductions(RankPlan& row, size_t at, int blocks, const std::vector<int>& bucket_ends) {
  Action part = row[at];
  part.overlaps_next = false;
  if (at > 0) row[at - 1].overlaps_next = false;
  RankPlan parts;
  for (int block = blocks - 1; block >= 0; --block) {
    part.block = block;
    parts.push_back(part);
    if (contains(bucket_ends, block)) parts.push_back({ActionKind::ReduceGrad, part.stage, block});
  }
  row.erase(row.begin() + static_cast<std::ptrdiff_t>(at));
  insert(row, at, parts);
}

// The buckets of `ends` that are not in `each`, in order.
std::vector<int> without(const std::vector<int>& ends, const std::vector<int>& each) {
  std::vector<int> rest;
  for (int end : ends)
    if (!contains(each, end)) rest.push_back(end);
  return rest;
}

// The stages that share a weight with an earlier one, by whether both are on the same rank.
struct TiedUses {
  std::vector<int> remote;       // last stage of each other rank that shares the first stage's weight
  std::vector<TiedStage> local;  // stages on the rank of the earlier stage
  // Whether the weight of block 0 of `stage` is shared.
  bool shares(int stage) const {
    return (stage == 0 && !remote.empty()) ||
           std::any_of(local.begin(), local.end(), [&](const TiedStage& tied) { return tied.of == stage; });
  }
  // `stage`, if it shares the weight of `of` on the same rank.
  const TiedStage* find_local(int stage, int of) const {
    const auto found = std::find_if(local.begin(), local.end(), [&](const TiedStage& tied) {
      return tied.stage == stage && tied.of == of;
    });
    return found == local.end() ? nullptr : &*found;
  }
};

TiedUses uses_of(const std::vector<TiedStage>& tied, const std::vector<int>& rank_of) {
  TiedUses uses;
  std::map<int, int> last;  // [rank] its last stage that shares the first stage's weight
  for (const TiedStage& each : tied) {
    check(0 <= each.of && each.of < each.stage && each.stage < static_cast<int>(rank_of.size()),
          "stages {} and {} of {} cannot share a weight", each.of, each.stage, rank_of.size());
    const int rank = rank_of[static_cast<size_t>(each.stage)];
    if (rank == rank_of[static_cast<size_t>(each.of)]) {
      uses.local.push_back(each);
      continue;
    }
    check(each.of == 0, "stages {} and {}, on different ranks, cannot share a weight", each.of, each.stage);
    last[rank] = std::max(last[rank], each.stage);
  }
  for (const auto& [rank, stage] : last) uses.remote.push_back(stage);
  return uses;
}

// Processes a row one stage at a time, from the last Step to the first, so that indices stay valid.
class Reducer {
 public:
  Reducer(std::span<const int> blocks, std::span<const std::vector<int>> bucket_ends, TiedUses tied,
          std::span<const std::vector<int>> each)
      : blocks_(blocks), bucket_ends_(bucket_ends), tied_(std::move(tied)), each_(each) {}

  void complete(RankPlan& row) {
    std::set<int> stages;
    for (const Action& action : row)
      if (is_compute(action.kind)) stages.insert(action.stage);
    for (int stage : stages) {
      name_buckets(row, stage);
      join_tied(row, stage);
    }
    RankPlan end;  // tied reductions and Steps: after all other reductions
    for (int stage : stages) {
      has_once_ = has_reduction(row, stage, false);
      has_each_ = has_reduction(row, stage, true);
      if (has(row, ActionKind::Step, stage)) {
        reduce_before_steps(row, stage);
        reduce_each(row, stage);
        continue;
      }
      reduce_before(row, row.size(), stage);
      reduce_each(row, stage);
      if (needs_tied(row, stage)) end.insert(end.begin(), {ActionKind::ReduceTied, stage});
      end.push_back({ActionKind::Step, stage});
    }
    insert(row, row.size(), end);
  }

 private:
  // The first stage already has its tied reduction; the others need theirs, at their Step.
  bool needs_tied(const RankPlan& row, int stage) const {
    return contains(tied_.remote, stage) && !has(row, ActionKind::ReduceTied, stage);
  }

  // Replaces a reduction of the whole stage, as PyTorch writes it, by one for each of its buckets. A
  // reduction after all micro-batches is dropped if the bucket is reduced after each.
  void name_buckets(RankPlan& row, int stage) const {
    const std::vector<int>& ends = bucket_ends_[place(stage)];
    const std::vector<int> after_each = each(stage);
    for (size_t i = row.size(); i-- > 0;) {
      const Action whole = row[i];
      if (whole.kind != ActionKind::ReduceGrad || whole.stage != stage) continue;
      RankPlan buckets;
      for (int block : whole.block == Action::kAll ? ends : std::vector<int>{whole.block})
        if (whole.micro != Action::kAll || !contains(after_each, block))
          buckets.push_back({ActionKind::ReduceGrad, stage, block, whole.micro});
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
      insert(row, i, buckets);
    }
  }

  // Makes the embedding's reduction include the gradients of the head, because PyTorch's plans have no tied weights.
  void join_tied(RankPlan& row, int stage) const {
    if (!tied_.shares(stage) || has(row, ActionKind::ReduceTied, stage)) return;
    for (size_t i = row.size(); i-- > 0;)
      if (row[i] == Action{ActionKind::ReduceGrad, stage, 0}) reduce_with_tied(row, i);
  }

  // Moves the reduction of a stage's block 0 from `at` behind the gradients of the stages on this rank that share its
  // weight and, if stages on other ranks share the first stage's weight, behind a REDUCE_TIED.
  void reduce_with_tied(RankPlan& row, size_t at) const {
    const Action reduction = row[at];
    size_t last = at;
    for (size_t i = at + 1; i < row.size() && row[i] != Action{ActionKind::Step, reduction.stage}; ++i)
      if (tied_.find_local(row[i].stage, reduction.stage) != nullptr && is_weight_gradient(row[i])) last = i;
    std::rotate(row.begin() + static_cast<std::ptrdiff_t>(at),
                row.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                row.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    if (reduction.stage == 0 && !tied_.remote.empty())
      insert(row, last, {{ActionKind::ReduceTied, reduction.stage}});
  }

  size_t place(int stage) const {
    const auto index = static_cast<size_t>(stage);
    check(index < blocks_.size() && index < bucket_ends_.size(), "the plan has a stage {}, the model has {}",
          stage, blocks_.size());
    return index;
  }

  void reduce_before(RankPlan& row, size_t end, int stage) {
    const std::optional<size_t> at = last_weight_gradient(row, end, stage);
    if (!at && bucket_ends_[place(stage)].empty()) return;  // nothing is trained
    check(at.has_value(), "the plan has no backward on stage {} to reduce the gradients of", stage);
    if (has_once_ || has_each_ || row[*at].block != Action::kAll) return;
    const std::vector<int> ends = without(bucket_ends_[place(stage)], each(stage));
    split_with_reductions(row, *at, blocks_[place(stage)], ends);
    if (!tied_.shares(stage)) return;
    const auto first = row.begin() + static_cast<std::ptrdiff_t>(*at);
    const auto last = std::find(first, row.end(), Action{ActionKind::ReduceGrad, stage, 0});
    if (last != row.end()) reduce_with_tied(row, static_cast<size_t>(last - row.begin()));
  }

  std::vector<int> each(int stage) const { return each_.empty() ? std::vector<int>() : each_[place(stage)]; }

  void reduce_each(RankPlan& row, int stage) const {
    const std::vector<int> ends = each(stage);
    if (ends.empty() || has_each_) return;
    for (size_t i = row.size(); i-- > 0;) {
      if (row[i].stage != stage || !is_weight_gradient(row[i])) continue;
      if (row[i].block == Action::kAll) {
        const int blocks = blocks_[place(stage)];
        split_with_reductions(row, i, blocks, {});
        for (int block = 0; block < blocks; ++block)
          add_reduction(row, i + static_cast<size_t>(blocks - 1 - block), ends);
      } else {
        add_reduction(row, i, ends);
      }
    }
  }

  // Adds the reduction of one micro-batch after action `at`, if a bucket ends there.
  void add_reduction(RankPlan& row, size_t at, const std::vector<int>& ends) const {
    const Action done = row[at];
    if (std::find(ends.begin(), ends.end(), done.block) == ends.end()) return;
    if (done.block == 0)
      for (size_t i = row.size() - 1; i > at; --i) {
        const Action& other = row[i];
        const TiedStage* tied = tied_.find_local(other.stage, done.stage);
        if (tied == nullptr || other.micro != done.micro || !is_weight_gradient(other) ||
            (other.block != Action::kAll && other.block != tied->block))
          continue;
        at = i;
        break;
      }
    insert(row, at + 1, {{ActionKind::ReduceGrad, done.stage, done.block, done.micro}});
  }

  void reduce_before_steps(RankPlan& row, int stage) {
    const bool tied = needs_tied(row, stage);
    for (size_t i = row.size(); i-- > 0;) {
      if (row[i].kind != ActionKind::Step || row[i].stage != stage) continue;
      if (tied) insert(row, i, {{ActionKind::ReduceTied, stage}});
      reduce_before(row, i, stage);
    }
  }

  std::span<const int> blocks_;
  std::span<const std::vector<int>> bucket_ends_;
  TiedUses tied_;
  std::span<const std::vector<int>> each_;
  bool has_once_ = false, has_each_ = false;  // has_reduction of the current stage
};

}  // namespace

Plan add_reduce(Plan plan, std::span<const int> blocks, std::span<const std::vector<int>> bucket_ends,
                const std::vector<TiedStage>& tied, std::span<const std::vector<int>> each) {
  Reducer reducer(blocks, bucket_ends, uses_of(tied, stage_ranks(plan)), each);
  for (RankPlan& row : plan) reducer.complete(row);
  return plan;
}

std::vector<std::pair<WeightUnit, WeightUnit>> gradients_together(
    const RankPlan& row, const UnitsOfBlocks& units, FunctionRef<bool(ActionKind, StageBlockIndex)> adds) {
  std::set<WeightUnit> here;
  std::optional<WeightUnit> under_way;
  std::set<std::pair<WeightUnit, WeightUnit>> pairs;
  const auto open = [&](const WeightUnit& unit) {
    if (here.count(unit) > 0) return;
    for (const WeightUnit& other : here) pairs.insert(std::minmax(unit, other));
    if (under_way && !(*under_way == unit)) pairs.insert(std::minmax(unit, *under_way));
    here.insert(unit);
  };
  for (const Action& action : row) {
    if (action.kind == ActionKind::ReduceGrad && here.erase({action.stage, action.block}) > 0)
      under_way = {action.stage, action.block};
    if (!is_compute(action.kind)) continue;
    const auto& blocks = units.at(static_cast<size_t>(action.stage));
    for (size_t i = blocks.size(); i-- > 0;) {
      if (action.block != Action::kAll && action.block != static_cast<int>(i)) continue;
      if (!adds(action.kind, {action.stage, static_cast<int>(i)})) continue;
      for (const WeightUnit& unit : blocks[i]) open(unit);
    }
  }
  return {pairs.begin(), pairs.end()};
}

}  // namespace trifold
