#include <algorithm>
#include <set>

#include "core/error.h"
#include "pipeline/passes.h"
#include "pipeline/placement.h"

namespace trifold {

namespace {

using Tied = std::optional<std::pair<int, int>>;

bool is_weight_gradient(const Action& action) {
  return action.kind == ActionKind::B || action.kind == ActionKind::W;
}

bool has(const RankPlan& row, ActionKind kind, int stage) {
  return std::any_of(row.begin(), row.end(),
                     [&](const Action& a) { return a.kind == kind && a.stage == stage; });
}

// The last weight gradient of `stage` before `end`; none when a Step comes first.
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

// Replaces action `at`, a backward of a whole stage, by one backward a block, with reductions after bucket
// ends. An overlapped pair with it comes apart.
void split_with_reductions(RankPlan& row, size_t at, int blocks, const std::vector<int>& bucket_ends,
                           bool first_of_tied) {
  Action part = row[at];
  part.overlaps_next = false;
  if (at > 0) row[at - 1].overlaps_next = false;
  RankPlan parts;
  for (int block = blocks - 1; block >= 0; --block) {
    part.block = block;
    parts.push_back(part);
    if (first_of_tied && block == 0) parts.push_back({ActionKind::ReduceTied, part.stage});
    if (std::find(bucket_ends.begin(), bucket_ends.end(), block) != bucket_ends.end())
      parts.push_back({ActionKind::ReduceGrad, part.stage, block});
  }
  row.erase(row.begin() + static_cast<std::ptrdiff_t>(at));
  insert(row, at, parts);
}

// Works on the rows one stage after the other, each from its last Step to its first so that places stay
// valid.
class Reducer {
 public:
  Reducer(std::span<const int> blocks, std::span<const std::vector<int>> bucket_ends, Tied tied)
      : blocks_(blocks), bucket_ends_(bucket_ends), tied_(tied) {}

  void complete(RankPlan& row) {
    std::set<int> stages;
    for (const Action& action : row)
      if (is_compute(action.kind)) stages.insert(action.stage);
    for (int stage : stages) name_buckets(row, stage);
    RankPlan end;  // tied reductions before Steps: all reductions first
    for (int stage : stages) {
      has_reductions_ = has(row, ActionKind::ReduceGrad, stage);
      if (has(row, ActionKind::Step, stage)) {
        reduce_before_steps(row, stage);
        continue;
      }
      reduce_before(row, row.size(), stage);
      if (needs_tied(row, stage)) end.insert(end.begin(), {ActionKind::ReduceTied, stage});
      end.push_back({ActionKind::Step, stage});
    }
    insert(row, row.size(), end);
  }

 private:
  // Only the last of the two stages has its tied reduction left to do, at its Step.
  bool needs_tied(const RankPlan& row, int stage) const {
    return tied_ && stage == tied_->second && !has(row, ActionKind::ReduceTied, stage);
  }

  // A reduction of the whole stage, as PyTorch writes it, becomes one of each of its buckets.
  void name_buckets(RankPlan& row, int stage) const {
    const std::vector<int>& ends = bucket_ends_[place(stage)];
    for (size_t i = row.size(); i-- > 0;) {
      if (row[i] != Action{ActionKind::ReduceGrad, stage}) continue;
      RankPlan buckets;
      for (int block : ends) buckets.push_back({ActionKind::ReduceGrad, stage, block});
      row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
      insert(row, i, buckets);
    }
  }

  size_t place(int stage) const {
    const auto index = static_cast<size_t>(stage);
    check(index < blocks_.size() && index < bucket_ends_.size(), "the plan has a stage {}, the model has {}",
          stage, blocks_.size());
    return index;
  }

  void reduce_before(RankPlan& row, size_t end, int stage) {
    const std::optional<size_t> at = last_weight_gradient(row, end, stage);
    check(at.has_value(), "the plan has no backward on stage {} to reduce the gradients of", stage);
    if (has_reductions_ || row[*at].block != Action::kAll) return;
    split_with_reductions(row, *at, blocks_[place(stage)], bucket_ends_[place(stage)],
                          tied_ && stage == tied_->first);
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
  Tied tied_;
  bool has_reductions_ = false;  // the stage at hand
};

}  // namespace

Plan add_reduce(Plan plan, std::span<const int> blocks, std::span<const std::vector<int>> bucket_ends,
                Tied tied) {
  const std::vector<int> ranks = stage_ranks(plan);
  if (tied) {
    const auto [first, last] = *tied;
    const auto exists = [&](int stage) { return 0 <= stage && stage < static_cast<int>(ranks.size()); };
    check(exists(first) && exists(last) && first < last, "stages {} and {} of {} cannot share a weight",
          first, last, ranks.size());
    if (ranks[static_cast<size_t>(first)] == ranks[static_cast<size_t>(last)]) tied.reset();
  }
  Reducer reducer(blocks, bucket_ends, tied);
  for (RankPlan& row : plan) reducer.complete(row);
  return plan;
}

}  // namespace trifold
