// BatchSizes: the samples of each global batch of a run. They are constant, or grow as in Megatron-LM's
// --rampup-batch-size START INCREMENT SAMPLES: from START up to the full size by INCREMENT, in equal parts of the first
// SAMPLES samples of the run. The size of a batch is a pure function of the samples consumed before it, and so of the
// number of steps before it; a resumed run and every mesh have the same sizes.
//
// With n = (full - START) / INCREMENT increments, the batch after c samples has
//
//   START + floor(c n / SAMPLES) INCREMENT    if c < SAMPLES
//   full                                      from then on
//
// samples. A step may consume more than an increment's part of the samples; then sizes are left out.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "config/fields/training_config.h"

namespace trifold {

struct BatchRamp {
  int64_t start = 0;
  int64_t increment = 0;
  int64_t samples = 0;
};

// The three numbers of --rampup-batch-size; nothing if they are not given, or are not three.
std::optional<BatchRamp> ramp_of(const BatchConfig& batch);

// A number of steps with batches of one size.
struct StepsOfSize {
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

  int64_t size = 1;
  int64_t steps = kEndless;
};

class BatchSizes {
 public:
  // All batches have `full` samples.
  explicit BatchSizes(int64_t full = 1) : full_(full) {}
  // With a ramp, if there is one. `ramp` must be valid: START is below `full`, and INCREMENT divides the difference.
  BatchSizes(const std::optional<BatchRamp>& ramp, int64_t full) : full_(full), ramp_(ramp) {}

  bool grows() const { return ramp_.has_value(); }
  int64_t full() const { return full_; }
  // The size of the batch after `consumed` samples, and the number of steps from there until the size changes.
  StepsOfSize at(int64_t consumed) const;
  // The samples that the `steps` steps after `consumed` samples consume.
  int64_t samples_of(int64_t steps, int64_t consumed = 0) const;
  // The number of steps after `consumed` samples that end with at most `samples` samples consumed.
  int64_t whole_steps(int64_t samples, int64_t consumed = 0) const;
  // As above, and one more if that leaves samples: the last batch of whole passes may be smaller.
  int64_t steps_to(int64_t samples, int64_t consumed = 0) const;
  // The sizes of the `steps` steps after `consumed` samples, in order. Without a number: of a run without an end.
  std::vector<StepsOfSize> sizes_of(int64_t steps = StepsOfSize::kEndless, int64_t consumed = 0) const;

 private:
  int64_t increments() const { return (full_ - ramp_->start) / ramp_->increment; }
  // The first number of consumed samples from which on there are `count` increments.
  int64_t samples_before(int64_t count) const;

  int64_t full_;
  std::optional<BatchRamp> ramp_;
};

}  // namespace trifold
