// LossScaler: the factor of the loss that keeps small gradients above the smallest f16 number (Micikevicius
// et al., "Mixed precision training", arXiv 1710.03740), found while training, with the rules and defaults of
// Megatron-LM.
//
// The caller multiplies the loss by scale(), divides the gradients by it in f32, and passes to `update` after
// every step whether any gradient of any rank was infinite or NaN; such a step must not change the weights.
// Each overflow uses up one unit of hysteresis; once it is used up, that overflow and each later one halve
// the scale. A window of steps without an overflow doubles it and restores the hysteresis. A pure state
// machine: ranks with the same inputs have the same scale.
#pragma once

#include <cstdint>

#include "config/fields/config.h"

namespace trifold {

class LossScaler {
 public:
  // What a checkpoint keeps.
  struct State {
    double scale = 1;
    int64_t steps_without_overflow = 0;  // since the last overflow or change
    int64_t overflows_left = 0;          // until the scale falls; below 1 while it falls at each

    bool operator==(const State&) const = default;
  };

  // Without --fp16, or with a --loss-scale, the scale never changes; it is 1 where none is given.
  explicit LossScaler(const PrecisionConfig& config);

  double scale() const { return state_.scale; }
  // Whether `update` can change the scale: then an overflow is part of the search and no failure.
  bool dynamic() const { return dynamic_; }
  // At the smallest scale a further overflow is the model's, not the scale's.
  bool at_least_scale() const { return !dynamic_ || state_.scale <= least_; }
  void update(bool overflow);

  const State& state() const { return state_; }
  // Restores the state of a checkpoint. A fixed scale stays that of the configuration. Throws BadInput for an
  // impossible state.
  void restore(const State& state);

 private:
  bool dynamic_;
  double least_;
  int64_t window_, hysteresis_;
  State state_;
};

}  // namespace trifold
