// Trainer::Window: the updates inside an asynchronous plan. Every stage makes its own, as soon as its
// gradients of a global batch are complete, on a new version of its weights.
#pragma once

#include <span>
#include <vector>

#include "core/exact_sum.h"
#include "train/trainer.h"

namespace trifold {

class Trainer::Window {
 public:
  // Of the plan that the trainer has now; `trainer` must outlive it.
  explicit Window(Trainer& trainer);

  // Before the plan is run.
  void begin();
  // Every stage must know the mean's denominator without waiting for the last one, so it counts for itself.
  void count_tokens(int micro, const Batch& batch);
  // The update of the next global batch. Collective over the data axis, with LAMB over the tensor axis too.
  void step(const Action& action);
  // After the plan: the newest weights become the ones the next starts from. Returns the gradients' norms, of
  // each global batch, until the next call.
  std::span<const double> finish();

 private:
  Trainer& trainer_;
  std::vector<double> token_weights_;  // of each global batch, of the micro-batches read here
  std::vector<double> factors_;
  std::vector<ExactSum> squares_;
  int steps_ = 0;
};

}  // namespace trifold
