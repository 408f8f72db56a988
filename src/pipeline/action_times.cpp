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
  samples_[{action.kind, action.stage, action.block}].push_back(
      std::chrono::duration<double>(end_ - begin_).count());
  StepWatch::after(action);
}

double ActionTimes::median(ActionKind kind, int stage) const {
  if (const auto whole = samples_.find({kind, stage, Action::kAll}); whole != samples_.end())
    return trifold::median(whole->second);
  double sum = 0;
  int blocks = 0;
  for (const auto& [key, seconds] : samples_) {
    if (std::get<0>(key) != kind || std::get<1>(key) != stage) continue;
    sum += trifold::median(seconds);
    ++blocks;
  }
  return blocks == 0 ? 0 : sum / blocks;
}

}  // namespace trifold
