#include <algorithm>

#include "schedule/passes.h"

namespace trifold {

namespace {

// Whether the action computes, moves or sums gradients of the first `stages` stages.
bool is_backward_of_first(const Action& action, int stages) {
  const bool to_them = action.stage <= stages && action.kind == ActionKind::SendB;
  const bool theirs =
      action.stage < stages && (is_backward(action.kind) || action.kind == ActionKind::RecvB ||
                                action.kind == ActionKind::ReduceGrad || action.kind == ActionKind::Fetch ||
                                action.kind == ActionKind::Offload);
  return to_them || theirs;
}

}  // namespace

Plan drop_backward(Plan plan, int stages) {
  if (stages == 0) return plan;
  for (RankPlan& row : plan) {
    for (size_t at = 0; at + 1 < row.size(); ++at)
      if (row[at].overlaps_next &&
          (is_backward_of_first(row[at], stages) || is_backward_of_first(row[at + 1], stages)))
        row[at].overlaps_next = false;
    std::erase_if(row, [&](const Action& action) { return is_backward_of_first(action, stages); });
  }
  return plan;
}

}  // namespace trifold
