// Trainer::Window makes the updates inside an asynchronous plan. Every stage updates separately, as soon as its
// gradients of a global batch are complete, into a new version of its weights.
#pragma once

#include <span>
#include <vector>

#include "core/exact_sum.h"
#include "train/trainer.h"

namespace trifold {

class Trainer::Window {
 public:
  // For the trainer's current plan; `trainer` must outlive this object.
  explicit Window(Trainer& trainer);

  // Call before the plan is run.
  void begin();
  // Adds the tokens of a micro-batch to the mean's denominator. Every stage counts them itself, so that none waits for
  // the last stage.
  void count_tokens(int micro, const Batch& batch);
  // Updates the stage for the next global batch; skipped if no token counts. Collective over the data axis, with LAMB
  // and LARS over the tensor axis too.
  void step(const Action& action);
  // Call after the plan: the newest weights become the start of the next plan. Returns the gradient norm of each global
  // batch, valid until the next call.
  std::span<const double> finish();

 private:
  Trainer& trainer_;
  std::vector<double> token_weights_;  // [global batch] tokens of the micro-batches read on this rank
  std::vector<double> factors_;
  std::vector<ExactSum> squares_;
  int steps_ = 0;
  int skipped_ = 0;  // steps of steps_ without an update
};

}  // namespace trifold
