#include <algorithm>
#include <map>
#include <tuple>

#include "schedule/passes.h"

namespace trifold {

namespace {

// Stage, block, micro-batch.
using Kept = std::tuple<int, int, int>;

// Inserts OFFLOAD and FETCH between the computations of one row. Positions are indices in the row split into blocks.
class Offloader {
 public:
  Offloader(std::span<const int> blocks, std::span<const int> offloaded, int ahead,
            std::span<const int> not_kept)
      : blocks_(blocks), offloaded_(offloaded), not_kept_(not_kept), ahead_(static_cast<size_t>(ahead)) {}

  RankPlan run(const RankPlan& row) {
    for (const Action& action : row) split(action);
    find_uses();
    place();
    return write();
  }

 private:
  int offloaded_of(int stage) const { return offloaded_[static_cast<size_t>(stage)]; }

  int first_of(int stage) const { return not_kept_.empty() ? 0 : not_kept_[static_cast<size_t>(stage)]; }

  void split(Action action) {
    if (!is_compute(action.kind) || action.block != Action::kAll || offloaded_of(action.stage) == 0) {
      row_.push_back(action);
      return;
    }
    action.overlaps_next = false;
    if (!row_.empty()) row_.back().overlaps_next = false;
    const int count = blocks_[static_cast<size_t>(action.stage)];
    for (int i = 0; i < count; ++i) {
      action.block = action.kind == ActionKind::F ? i : count - 1 - i;
      row_.push_back(action);
    }
  }

  // Finds the forward of the next block, after which the activations of a block may be off-loaded, and the backward of
  // that block, which is the first to read them again.
  void find_uses() {
    for (size_t at = 0; at < row_.size(); ++at) {
      const Action& action = row_[at];
      if (!is_compute(action.kind)) continue;
      computations_.push_back(at);
      const int block = action.block - 1;
      if (block < first_of(action.stage) || block >= offloaded_of(action.stage)) continue;
      const Kept kept{action.stage, block, action.micro};
      if (action.kind == ActionKind::F)
        leave_[kept] = at;
      else
        read_.try_emplace(kept, at);
    }
  }

  void place() {
    for (const auto& [kept, read] : read_) {
      const auto [stage, block, micro] = kept;
      const auto left = leave_.find(kept);
      if (left == leave_.end()) continue;  // the checker reports the missing forward
      const auto place = std::lower_bound(computations_.begin(), computations_.end(), read);
      const size_t before = std::min(ahead_, static_cast<size_t>(place - computations_.begin()));
      const size_t fetch = *(place - static_cast<std::ptrdiff_t>(before));
      if (fetch <= left->second) continue;  // nothing would be computed between OFFLOAD and FETCH
      const auto next = std::upper_bound(computations_.begin(), computations_.end(), left->second);
      if (next == computations_.end() || *next >= fetch) continue;
      after_[left->second].push_back({ActionKind::Offload, stage, block, micro});
      before_[fetch].push_back({ActionKind::Fetch, stage, block, micro});
    }
  }

  RankPlan write() {
    RankPlan out;
    for (size_t at = 0; at < row_.size(); ++at) {
      if (const auto found = before_.find(at); found != before_.end())
        out.insert(out.end(), found->second.begin(), found->second.end());
      out.push_back(row_[at]);
      if (const auto found = after_.find(at); found != after_.end())
        out.insert(out.end(), found->second.begin(), found->second.end());
    }
    return out;
  }

  std::span<const int> blocks_, offloaded_, not_kept_;
  size_t ahead_;
  RankPlan row_;
  std::vector<size_t> computations_;  // positions of computations
  std::map<Kept, size_t> leave_, read_;
  std::map<size_t, RankPlan> after_, before_;
};

}  // namespace

Plan add_offload(Plan plan, std::span<const int> blocks, std::span<const int> offloaded, int ahead,
                 std::span<const int> not_kept) {
  if (std::all_of(offloaded.begin(), offloaded.end(), [](int count) { return count == 0; })) return plan;
  for (RankPlan& row : plan) {
    const bool given =
        std::any_of(row.begin(), row.end(), [](const Action& action) { return is_offload(action.kind); });
    if (!given) row = Offloader(blocks, offloaded, ahead, not_kept).run(row);
  }
  return plan;
}

}  // namespace trifold
