#include "pipeline/action_times.h"

#include "core/median.h"

namespace trifold {

void ActionTimes::before(const Action& action) {
  StepWatch::before(action);
  settle_();
  begin_ = Clock::now();
}

void ActionTimes::after(const Action& action) {
  settle_();
  end_ = Clock::now();
  samples_[{action.kind, action.stage}].push_back(std::chrono::duration<double>(end_ - begin_).count());
  StepWatch::after(action);
}

double ActionTimes::median(ActionKind kind, int stage) const {
  const auto found = samples_.find({kind, stage});
  return found == samples_.end() ? 0 : trifold::median(found->second);
}

}  // namespace trifold
