// ActionTimes: measures how long a rank needs for each action of a step alone, for forecasts.
#pragma once

#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "pipeline/executor.h"

namespace trifold {

// Waits for all work in flight at the beginning and at the end of each action, so that its time does not include
// exchanges between ranks that usually overlap with it.
class ActionTimes final : public StepWatch {
 public:
  // `settle` waits for all of this rank's work in flight.
  explicit ActionTimes(std::function<void()> settle) : settle_(std::move(settle)) {}
  void before(const Action& action) override;
  void after(const Action& action) override;

  // Discards the measurements so far.
  void restart() { samples_.clear(); }
  // The median time of actions of this kind on this whole stage, in seconds. If all were on single blocks: the mean of the
  // blocks' medians, so that times the number of blocks it is the time of the stage. 0 if there were none.
  double median(ActionKind kind, int stage) const;
  // When the last action ended.
  Clock::time_point last_end() const { return end_; }

 private:
  std::function<void()> settle_;
  Clock::time_point begin_, end_;
  std::map<std::tuple<ActionKind, int, int>, std::vector<double>> samples_;  // kind, stage, block
};

}  // namespace trifold
