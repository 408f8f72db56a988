// RunProbe lets a test observe any kind of training run: every rank calls it before each part of the run, where
// the test may let that rank fail.
#pragma once

#include "checkpoint/new_checkpoint.h"
#include "pipeline/executor.h"
#include "run/savable.h"

namespace trifold {

// What a rank is about to do; Updated: what it has just done.
enum class RunPart { Load, Step, Updated, Evaluate, Save };

// Functions are called by the ranks' threads, several at a time.
class RunProbe {
 public:
  virtual ~RunProbe() = default;
  // On rank `rank`, which trains `state`. For Load the weights are not there yet.
  virtual void reach(RunPart part, int rank, Savable& state) = 0;
  // A save of this rank is in that phase.
  virtual void reach(SavePhase phase, int rank) = 0;
  // What is shown every block that this rank computes; null: nobody.
  virtual StepWatch* watch(int rank) = 0;
};

}  // namespace trifold
