// LossScaler: the factor of the loss that keeps small gradients above the smallest f16 value (Micikevicius et al.,
// "Mixed precision training", arXiv 1710.03740), adjusted during training by the rules and defaults of Megatron-LM.
//
// The caller multiplies the loss by scale(), divides the gradients by it in f32, and after every step calls `update`
// with whether a gradient of any rank was infinite or NaN; such a step must not change the weights. Each overflow uses
// up one unit of hysteresis; the overflow that uses up the last unit, and each later one, halve the scale. A window of
// steps without an overflow doubles it and restores the hysteresis. A pure state machine: ranks with the same inputs
// have the same scale.
#pragma once

#include <cstdint>

#include "config/fields/config.h"

namespace trifold {

class LossScaler {
 public:
  // The state that a checkpoint stores.
  struct State {
    double scale = 1;
    int64_t steps_without_overflow = 0;  // since the last overflow or change
    int64_t overflows_left = 0;          // until the scale falls; below 1: every overflow lowers it

    bool operator==(const State&) const = default;
  };

  // Without --fp16, or with a --loss-scale, the scale is fixed; the default is then 1.
  explicit LossScaler(const PrecisionConfig& config);

  double scale() const { return state_.scale; }
  // Whether `update` can change the scale: an overflow is then part of the search for a scale, not a failure.
  bool dynamic() const { return dynamic_; }
  // Whether the scale cannot fall any further, so that another overflow is caused by the model.
  bool at_least_scale() const { return !dynamic_ || state_.scale <= least_; }
  void update(bool overflow);

  const State& state() const { return state_; }
  // Restores the state of a checkpoint. A fixed scale keeps the value of the configuration. Throws BadInput
  // for an impossible state.
  void restore(const State& state);

 private:
  bool dynamic_;
  double least_;
  int64_t window_, hysteresis_;
  State state_;
};

}  // namespace trifold
