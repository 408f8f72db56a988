// LoneRank: the program of one rank as a rehearsal runs it, and how it is measured: the same for every kind of run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/absent_comm.h"
#include "pipeline/executor.h"
#include "rehearse/rehearsed_rank.h"

namespace trifold {

class LoneRank {
 public:
  virtual ~LoneRank() = default;
  // Loads what the run would load; returns a line for each thing loaded.
  virtual std::vector<std::string> load() { return {}; }
  // Trains the next step, or the steps of one plan, whose number steps_at_once() is, before and after.
  virtual void advance() = 0;
  virtual int64_t steps_at_once() const { return 1; }
  // The steps until the end of the run.
  virtual int64_t steps_left() const = 0;
  // Shows the actions of the steps that follow to `watch`; null: to nobody.
  virtual void watch(StepWatch* watch) = 0;
  // Waits for all work of the rank in flight.
  virtual void settle() = 0;
  // The actions of advance().
  virtual const RankPlan& actions() const = 0;
  // Writes what the rank holds now to `held` of `result`, or of its parts.
  virtual void note_held(RehearsedRank& result) const = 0;

 protected:
  LoneRank() = default;
  LoneRank(const LoneRank&) = default;
  LoneRank& operator=(const LoneRank&) = default;
};

// Loads, trains one plan (a step, or the steps_at_once() of an asynchronous schedule) that is not measured, then further
// ones until `steps` steps are measured (fewer if the run ends earlier), and writes what was held and how long everything
// took to `result`, as far as it gets. The first plan is measured if it is the run's only one or has more than `steps`
// steps. Of the measured plans every second one, the first included, is timed action by action, each alone; the others are
// timed as a whole, as they overlap. `calls` counts the rank's calls; result.resident_bytes is the resident memory before
// the rank was built.
void measure(LoneRank& rank, AbsentCallCounts& calls, int64_t steps, RehearsedRank& result);

// The calls of one step, by the names of their axes.
std::vector<MeasuredCall> measured_calls(const AbsentCallCounts& calls, int64_t steps);

}  // namespace trifold
