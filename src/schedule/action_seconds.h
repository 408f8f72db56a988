// The seconds that F, I, W and B take, alone and in pairs; internal to simulate.
#pragma once

#include <algorithm>

#include "schedule/simulate.h"

namespace trifold {

class ActionSeconds {
 public:
  // Both must outlive this object.
  ActionSeconds(const PlanShape& shape, const CostModel& cost) : shape_(shape), cost_(cost) {}

  double of(const Action& action) const {
    const StageCost& cost = cost_of(action);
    return share(action, action.kind == ActionKind::F   ? cost.f
                         : action.kind == ActionKind::I ? cost.i
                         : action.kind == ActionKind::W ? cost.w
                                                        : cost.whole_backward());
  }
  // Seconds of a pair that runs as one action.
  double of_pair(const Action& one, const Action& two) const {
    if (cost_.pairs == PairExecution::Concurrent) return std::max(of(one), of(two));
    return of(one) + of(two) - hidden(one, two) - hidden(two, one);
  }

 private:
  const StageCost& cost_of(const Action& action) const {
    return cost_.stages[static_cast<size_t>(action.stage)];
  }
  double share(const Action& action, double whole) const {
    if (action.block == Action::kAll || shape_.blocks.empty()) return whole;
    return whole / shape_.blocks[static_cast<size_t>(action.stage)];
  }
  // Seconds in which only the action's exchanges are in flight.
  double exchanges(const Action& action) const {
    const StageCost& cost = cost_of(action);
    return share(action, action.kind == ActionKind::F   ? cost.f_exchanges
                         : action.kind == ActionKind::I ? cost.i_exchanges
                         : action.kind == ActionKind::B ? cost.b_exchanges
                                                        : 0);
  }
  // Seconds of the exchanges of `sends` that the computation of `computes` hides.
  double hidden(const Action& sends, const Action& computes) const {
    return std::min(exchanges(sends), of(computes) - exchanges(computes));
  }

  const PlanShape& shape_;
  const CostModel& cost_;
};

}  // namespace trifold
