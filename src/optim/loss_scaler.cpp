#include "optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace trifold {

namespace {

constexpr double kGrowth = 2;
constexpr double kBackoff = 0.5;

}  // namespace

LossScaler::LossScaler(const PrecisionConfig& config)
    : dynamic_(config.fp16 && !config.loss_scale),
      least_(config.min_loss_scale),
      window_(config.loss_scale_window),
      hysteresis_(config.hysteresis),
      state_{dynamic_ ? config.initial_loss_scale : config.loss_scale.value_or(1.0), 0, config.hysteresis} {}

void LossScaler::update(bool overflow) {
  if (!dynamic_) return;
  if (overflow) {
    state_.steps_without_overflow = 0;
    if (--state_.overflows_left <= 0) state_.scale = std::max(state_.scale * kBackoff, least_);
  } else if (++state_.steps_without_overflow == window_) {
    state_.steps_without_overflow = 0;
    state_.overflows_left = hysteresis_;
    state_.scale *= kGrowth;
  }
}

void LossScaler::restore(const State& state) {
  if (!std::isfinite(state.scale) || state.scale <= 0 || state.steps_without_overflow < 0)
    bad_input("the checkpoint's loss scale {} after {} steps without an overflow is impossible", state.scale,
              state.steps_without_overflow);
  if (dynamic_) state_ = state;
}

}  // namespace trifold
