// RunProbe lets a test observe any kind of training run: every rank calls it before each part of the run, where
// the test may let that rank fail.
#pragma once

#include "checkpoint/new_checkpoint.h"
#include "pipeline/executor.h"
#include "run/savable.h"

namespace trifold {

// The part of a run that a rank is about to begin; Updated: the update that it has just ended.
enum class RunPart { Load, Step, Updated, Evaluate, Save };

// Functions are called by the ranks' threads, several at a time.
class RunProbe {
 public:
  virtual ~RunProbe() = default;
  // Called on rank `rank`, which trains `state`. At Load there are no weights yet.
  virtual void reach(RunPart part, int rank, Savable& state) = 0;
  // Called when a save of rank `rank` has reached `phase`.
  virtual void reach(SavePhase phase, int rank) = 0;
  // The watch that sees every block this rank computes; null: none.
  virtual StepWatch* watch(int rank) = 0;
};

}  // namespace trifold
