// FiniteCheck: where the first number of a transformer's step that is infinite or NaN comes from. A step
// whose loss or gradients are not finite is computed once more, from the same weights and samples and so with
// the same bits, while this shows a FiniteSearch everything that layers show: weights, outputs, gradients of
// activations, and the gradients of parameters behind every block. Places are the blocks forward, then
// backward.
#pragma once

#include <string>
#include <vector>

#include "data_parallel/gradient_buffer.h"
#include "pipeline/executor.h"
#include "train/finite_search.h"
#include "train/replica.h"

namespace trifold {

class FiniteCheck final : public StepWatch {
 public:
  // `inner` is called before this check, for every event. References must outlive the object.
  FiniteCheck(Replica& replica, const GradientBuffer& grads, StepWatch* inner);

  void begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
             Stream& stream) override;
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override;
  void end(Stream& stream) override;

  // After the step: the gradients as they were summed over the ranks.
  void look_at_sums(Stream& stream);
  // FiniteSearch::verdict. Collective over the world.
  std::string verdict() { return search_.verdict(replica_.compute()); }

 private:
  Replica& replica_;
  const GradientBuffer& grads_;
  FiniteSearch search_;
  std::vector<bool> bad_gradients_;  // by parameter: reported once, by the micro-batch that made it bad
  Action action_{};
  int block_ = 0;
};

// Throws an Error that names the first of the gradients summed here that is not finite, if there is one;
// `where` begins its text. For asynchronous schedules, whose steps cannot be repeated.
void check_sums_finite(Replica& replica, const GradientBuffer& grads, const std::string& where);

}  // namespace trifold
