// ActionTimes: how long a rank needs for each action of a step, one at a time: the measured costs of forecasts.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "pipeline/executor.h"

namespace trifold {

// Waits for all work in flight at the beginning and the end of each action that it is shown, so that the time is that of
// the action alone, and not that of an exchange between ranks which usually runs beside it.
class ActionTimes final : public StepWatch {
 public:
  // `settle` waits for all work in flight of this rank.
  explicit ActionTimes(std::function<void()> settle) : settle_(std::move(settle)) {}
  void before(const Action& action) override;
  void after(const Action& action) override;

  // Drops the steps so far.
  void restart() { samples_.clear(); }
  // The median of the actions of this kind on this stage, in seconds; 0 if there was none.
  double median(ActionKind kind, int stage) const;

 private:
  std::function<void()> settle_;
  Clock::time_point begin_;
  std::map<std::pair<ActionKind, int>, std::vector<double>> samples_;
};

}  // namespace trifold
