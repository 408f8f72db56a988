// FiniteCheck: where the first number of a step that is infinite or NaN comes from. A step whose loss or
// gradients are not finite is computed once more, from the same weights and samples and so with the same
// bits, while this looks at everything that layers show: weights, outputs, gradients of activations, and the
// gradients of parameters behind every block.
//
// "First" is meant in the direction in which data flows: the blocks forward, then backward. Nothing before
// the first place is bad, so the cause is there, on whatever rank and whenever it was computed. Of one place
// in the model the first sample counts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data_parallel/gradient_buffer.h"
#include "pipeline/executor.h"
#include "train/replica.h"

namespace trifold {

class FiniteCheck final : public StepWatch {
 public:
  // Passes everything on to `inner`, if there is one, before it looks. References must outlive the object.
  FiniteCheck(Replica& replica, const GradientBuffer& grads, StepWatch* inner);

  void begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
             Stream& stream) override;
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override;
  void end(Stream& stream) override;
  void after(const Action& action) override;

  // After the step: the gradients as they were summed over the ranks.
  void look_at_sums(Stream& stream);
  // What the ranks found, in a sentence or two without a full stop; the same on every rank. Collective over
  // the world.
  std::string verdict();

 private:
  // A number that is not finite and where it was met. Travels between ranks as it is.
  struct Finding {
    static constexpr size_t kTextBytes = 192;

    int64_t place = 0;  // in the flow of data; later is larger
    int64_t first_sample = 0;
    int64_t samples = 0;
    int64_t rank = 0;
    int64_t found = 0;  // whether there is one
    int64_t micro = 0;
    char text[kTextBytes] = {};  // "element 3 of the output of block.1.norm1, [32, 64], is -inf"

    bool before(const Finding& other) const;
  };

  void look(std::string_view what, Tensor tensor, Stream& stream);
  std::string describe(const Finding& finding) const;

  Replica& replica_;
  const GradientBuffer& grads_;
  StepWatch* inner_;
  std::vector<bool> bad_gradients_;  // by parameter: reported once, by the micro-batch that made it bad
  Action action_{};
  int block_ = 0;
  const Batch* batch_ = nullptr;  // null outside of a block
  int64_t place_ = 0;
  Finding first_;
};

// "nan", "inf" or "-inf": a NaN's sign means nothing. Other numbers as they are.
std::string not_finite_text(double value);
// Index of the first element that is infinite or NaN. The tensor must be complete, and
// the host's.
std::optional<int64_t> first_not_finite(Tensor tensor);
// Throws an Error that names the first of the gradients summed here that is not finite, if there is one;
// `where` begins its text. For asynchronous schedules, whose steps cannot be repeated.
void check_sums_finite(Replica& replica, const GradientBuffer& grads, const std::string& where);

}  // namespace trifold
