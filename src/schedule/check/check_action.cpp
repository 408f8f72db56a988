#include "schedule/check/check_action.h"

#include <algorithm>

namespace trifold {

bool is_each(const PlanShape& shape, int stage, int block) {
  if (shape.each.empty()) return false;
  const std::vector<int>& each = shape.each.at(static_cast<size_t>(stage));
  return std::find(each.begin(), each.end(), block) != each.end();
}

bool reduces_one_micro(const PlanShape& shape, const Action& action) {
  return action.kind == ActionKind::ReduceGrad && is_each(shape, action.stage, std::max(action.block, 0));
}

void check_fields(const PlanPosition& at, const Action& action, const PlanShape& shape, int blocks) {
  const bool residency = action.kind == ActionKind::Unshard || action.kind == ActionKind::Reshard;
  const bool forward = action.kind == ActionKind::F || action.kind == ActionKind::SendF ||
                       action.kind == ActionKind::RecvF || residency;
  at.require(forward || !shape.forward_only, "is not allowed in a forward-only plan");
  if (has_micro(action.kind) || reduces_one_micro(shape, action))
    at.require(is_micro_of(shape, action), "names a micro-batch that does not exist; there are {}",
               shape.micros);
  else
    at.require(
        action.micro == Action::kAll, "must not name a micro-batch{}",
        action.kind == ActionKind::ReduceGrad ? ": its bucket is reduced once, after all of them" : "");
  const bool by_block =
      is_compute(action.kind) || is_offload(action.kind) || action.kind == ActionKind::ReduceGrad;
  at.require(action.block == Action::kAll || by_block, "is for the whole stage, not for one block");
  at.require(Action::kAll <= action.block && action.block < blocks,
             "names a block that does not exist; stage {} has {}", action.stage, blocks);
  at.require(action.version == 0 || is_compute(action.kind), "has no weight version");
}

void check_pair(const PlanPosition& at, const Action& action) {
  const RankPlan& row = at.plan[at.rank];
  const size_t next = at.index + 1;
  const bool followed = next < row.size() && is_compute(row[next].kind) && is_compute(action.kind);
  at.require(followed && (action.kind == ActionKind::F) != (row[next].kind == ActionKind::F),
             "overlaps the next action, which takes one forward and one backward");
}

}  // namespace trifold
