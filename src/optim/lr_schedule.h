// The learning rate of every step, as Megatron-LM defines it: warm-up from lr_warmup_init to lr, then a decay
// to min_lr.
//
// It is a pure function of the configuration and the step, so there is no scheduler state to save and a
// resumed run cannot disagree with an uninterrupted one.
//
// Steps count from 0. The rate of step k is the one for the n = k * global_batch_size samples consumed *before* it (of a
// batch that grows, for the samples that its steps had), so with warm-up the first step runs at lr_warmup_init exactly (0 unless set: that step only
// fills the moments of Adam), step lr_warmup_iters is the first to run at lr, and min_lr is reached at step
// lr_decay_iters, one after the last step of a run with the default decay. With w = warm-up, d = decay and
// a = WSD decay, all in samples, and r = (n - w) / (d - w), the first line that applies gives the rate:
//
//   n <= w and w > 0     lr_warmup_init + (lr - lr_warmup_init) * n / w
//   Constant             lr
//   n > d                min_lr
//   InverseSquareRoot    max(min_lr, lr * sqrt(max(w, 1) / max(n, 1)))
//   otherwise            min_lr + (lr - min_lr) * f, where f is
//     Linear               1 - r
//     Cosine               (1 + cos(pi r)) / 2
//     Polynomial           (1 - r)^lr_decay_power; not in Megatron-LM: with 0.5 as in NVIDIA's BERT with LAMB
//     Wsd                  1 as long as n <= d - a; then, with r = (n - (d - a)) / a, by lr_wsd_decay_style
//                            Exponential  2 * 0.5^r - 1
//                            Linear       1 - r
//                            Cosine       (1 + cos(pi r)) / 2
//                            MinusSqrt    1 - sqrt(r)
//
// Parabola is the schedule of MLPerf's recommenders: linear warm-up, a plateau, a parabola down to almost
// zero. It counts steps from 1, s = k + 1. With W = lr_warmup_iters, d = lr_decay_start (0: no decay) and N =
// lr_decay_iters, the first line that applies gives the rate:
//
//   s < W                lr_warmup_init + (lr - lr_warmup_init) * s / W
//   d = 0 or s < d       lr
//   otherwise            lr * ((N - (s - d)) / N)^2, until it reaches the larger of min_lr and 1e-7; from
//                        then on that value
//
// The plateau is lr itself, as in NVIDIA's DLRM and HugeCTR; facebookresearch/dlrm holds the last value of
// its warm-up, lr * (W - 1) / W.
//
// InverseSquareRoot does not end at min_lr: it jumps there after d if it has not fallen that far. It is also
// the only style that depends on the unit: it counts samples, so without warm-up the rate falls faster for a
// larger batch.
#pragma once

#include <cstdint>
#include <optional>

#include "config/fields/config.h"

namespace trifold {

class LrSchedule {
 public:
  // Derives the values that `config` leaves open: lr_decay_iters is train_iters, and lr_warmup_fraction is a
  // fraction of the decay. Lengths that `config` has in samples (a batch that grows) are taken as they are. Throws Error(BadInput), naming the option and valid values, if `config` does not
  // give a schedule.
  LrSchedule(const LrConfig& config, int64_t global_batch_size, int64_t train_iters);

  // The rate of step `step`, counted from 0; may be beyond train_iters. All steps have global_batch_size samples.
  double at(int64_t step) const;
  // The rate after `samples` samples.
  double after(int64_t samples) const;

 private:
  // A length in samples.
  double length(const std::optional<int64_t>& samples, int64_t steps) const;
  double after_samples(double samples) const;
  double decay_factor(double samples) const;
  double parabola_at(int64_t step) const;

  LrConfig config_;
  double batch_;      // samples per step
  double warmup_;     // w
  double decay_;      // d
  double wsd_decay_;  // a; 0 unless the style is Wsd
};

// LrSchedule(config, global_batch_size, train_iters).at(step).
double learning_rate(const LrConfig& config, int64_t global_batch_size, int64_t train_iters, int64_t step);

}  // namespace trifold
