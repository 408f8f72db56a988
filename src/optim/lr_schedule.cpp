#include "optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace trifold {

namespace {

// Throws unless each value of `config`, taken alone, is in its range.
void check_ranges(const LrConfig& config, int64_t global_batch_size, int64_t train_iters) {
  if (global_batch_size < 1) bad_input("--global-batch-size is {}; it must be at least 1", global_batch_size);
  if (train_iters < 0) bad_input("--train-iters is {}; it must not be negative", train_iters);
  // Written so that a NaN fails too.
  if (!(config.lr >= 0) || !std::isfinite(config.lr))
    bad_input("--lr is {}; it must not be negative", config.lr);
  if (!(config.min_lr >= 0 && config.min_lr <= config.lr))
    bad_input("--min-lr is {}; it must be between 0 and --lr, which is {}", config.min_lr, config.lr);
  if (!(config.lr_warmup_init >= 0 && config.lr_warmup_init <= config.lr))
    bad_input("--lr-warmup-init is {}; it must be between 0 and --lr, which is {}", config.lr_warmup_init,
              config.lr);
  if (config.lr_warmup_iters < 0)
    bad_input("--lr-warmup-iters is {}; it must not be negative", config.lr_warmup_iters);
  if (config.lr_warmup_fraction && !(*config.lr_warmup_fraction >= 0 && *config.lr_warmup_fraction < 1))
    bad_input("--lr-warmup-fraction is {}; it must be at least 0 and less than 1",
              *config.lr_warmup_fraction);
  if (config.lr_warmup_fraction && config.lr_warmup_iters != 0)
    bad_input("--lr-warmup-fraction and --lr-warmup-iters exclude each other: give one of them");
}

double cosine_factor(double r) { return 0.5 * (1.0 + std::cos(std::numbers::pi * r)); }

double wsd_factor(WsdDecayStyle style, double r) {
  switch (style) {
    case WsdDecayStyle::Exponential:
      return 2.0 * std::pow(0.5, r) - 1.0;
    case WsdDecayStyle::Linear:
      return 1.0 - r;
    case WsdDecayStyle::Cosine:
      return cosine_factor(r);
    case WsdDecayStyle::MinusSqrt:
      return 1.0 - std::sqrt(r);
  }
  fail("unknown WSD decay style {}", static_cast<int>(style));
}

}  // namespace

LrSchedule::LrSchedule(const LrConfig& config, int64_t global_batch_size, int64_t train_iters)
    : config_(config) {
  check_ranges(config, global_batch_size, train_iters);
  const int64_t decay_iters = config.lr_decay_iters.value_or(train_iters);
  batch_ = static_cast<double>(global_batch_size);
  decay_ = length(config.lr_decay_samples, decay_iters);
  warmup_ = config.lr_warmup_fraction ? *config.lr_warmup_fraction * decay_
                                      : length(config.lr_warmup_samples, config.lr_warmup_iters);
  wsd_decay_ = 0;
  // Nothing to check: these styles have no decay, or accept any value.
  if (config.lr_decay_style == LrDecayStyle::Constant || config.lr_decay_style == LrDecayStyle::Parabola)
    return;

  if (decay_ < 1) bad_input("--lr-decay-iters is {}; it must be at least 1", decay_iters);
  if (warmup_ >= decay_)
    bad_input("--lr-warmup-iters is {} and --lr-decay-iters {}: the warm-up must end before the decay does",
              config.lr_warmup_iters, decay_iters);
  if (config.lr_decay_style != LrDecayStyle::Wsd) return;

  if (!config.lr_wsd_decay_iters && !config.lr_wsd_decay_samples)
    bad_input("--lr-decay-style WSD needs --lr-wsd-decay-iters: the number of steps of its final decay");
  wsd_decay_ = length(config.lr_wsd_decay_samples, config.lr_wsd_decay_iters.value_or(0));
  if (wsd_decay_ < 0 || wsd_decay_ > decay_ - warmup_)
    bad_input(
        "--lr-wsd-decay-iters is {}; it must be between 0 and {}, "
        "the steps of --lr-decay-iters after warm-up",
        wsd_decay_ / batch_, (decay_ - warmup_) / batch_);
}

double LrSchedule::length(const std::optional<int64_t>& samples, int64_t steps) const {
  return samples ? static_cast<double>(*samples) : static_cast<double>(steps) * batch_;
}

double LrSchedule::decay_factor(double samples) const {
  const double r = (samples - warmup_) / (decay_ - warmup_);
  if (config_.lr_decay_style == LrDecayStyle::Linear) return 1.0 - r;
  if (config_.lr_decay_style == LrDecayStyle::Cosine) return cosine_factor(r);
  if (config_.lr_decay_style == LrDecayStyle::Polynomial) return std::pow(1.0 - r, config_.lr_decay_power);
  const double wsd_begin = decay_ - wsd_decay_;
  return samples <= wsd_begin ? 1.0
                              : wsd_factor(config_.lr_wsd_decay_style, (samples - wsd_begin) / wsd_decay_);
}

double LrSchedule::parabola_at(int64_t step) const {
  const double lr = config_.lr, init = config_.lr_warmup_init;
  if (step < config_.lr_warmup_iters)
    return init + (lr - init) * static_cast<double>(step) / static_cast<double>(config_.lr_warmup_iters);
  const int64_t start = config_.lr_decay_start, steps = config_.lr_decay_iters.value_or(0);
  if (start == 0 || step < start) return lr;
  const double share =
      static_cast<double>(std::max<int64_t>(0, steps - (step - start))) / static_cast<double>(steps);
  return std::min(lr, std::max({1e-7, config_.min_lr, lr * share * share}));
}

double LrSchedule::at(int64_t step) const {
  check(step >= 0, "the learning rate of step {} was asked for; steps count from 0", step);
  if (config_.lr_decay_style == LrDecayStyle::Parabola) return parabola_at(step + 1);
  return after_samples(static_cast<double>(step) * batch_);
}

double LrSchedule::after(int64_t samples) const {
  check(config_.lr_decay_style != LrDecayStyle::Parabola, "a parabola counts steps, not samples");
  return after_samples(static_cast<double>(samples));
}

double LrSchedule::after_samples(double samples) const {
  if (warmup_ > 0 && samples <= warmup_)
    return config_.lr_warmup_init + (config_.lr - config_.lr_warmup_init) * samples / warmup_;
  if (config_.lr_decay_style == LrDecayStyle::Constant) return config_.lr;
  if (samples > decay_) return config_.min_lr;
  if (config_.lr_decay_style == LrDecayStyle::InverseSquareRoot)
    return std::max(config_.min_lr, config_.lr * std::sqrt(std::max(warmup_, 1.0) / std::max(samples, 1.0)));
  return config_.min_lr + (config_.lr - config_.min_lr) * decay_factor(samples);
}

double learning_rate(const LrConfig& config, int64_t global_batch_size, int64_t train_iters, int64_t step) {
  return LrSchedule(config, global_batch_size, train_iters).at(step);
}

}  // namespace trifold
