// The part of a configuration that decides the steps of training: batches, learning rate, optimizer and precision. As
// in config.h, field names are the option names with underscores.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/fields/choices.h"
#include "config/fields/values.h"
#include "core/dtype.h"

namespace trifold {

struct BatchConfig {
  int64_t micro_batch_size = 0;              // required
  std::optional<int64_t> global_batch_size;  // micro_batch_size * data-parallel size
  // Start, increment and samples of a global batch that grows up to global_batch_size; empty: it has one size
  // (config/fields/batch_sizes.h).
  std::vector<WholeNumber> rampup_batch_size;
  // Steps of the run. Required for pretrain unless train_epochs is given; resolve_length then computes it.
  int64_t train_iters = 0;
  std::optional<int64_t> train_epochs;  // passes over the training data; each pass has every sample once
  // Not an option: the samples in all passes, derived from the data. The last global batch may be smaller.
  std::optional<int64_t> pass_samples;
  // The length in samples instead of steps; resolve computes train_iters from it and resets it.
  std::optional<int64_t> train_samples;
  std::optional<int64_t> exit_interval;         // stop after the first step divisible by this
  std::optional<double> exit_duration_in_mins;  // stop after the first step that ends later than this
};

struct LrConfig {
  double lr = 0;  // required for pretrain
  double min_lr = 0;
  LrDecayStyle lr_decay_style = LrDecayStyle::Linear;
  double lr_decay_power = 0.5;            // exponent of Polynomial
  int64_t lr_decay_start = 0;             // Parabola's; 0: no decay
  std::optional<int64_t> lr_decay_iters;  // train_iters; for Parabola the length of its fall
  int64_t lr_warmup_iters = 0;
  std::optional<double> lr_warmup_fraction;  // as a fraction of lr_decay_iters; excludes lr_warmup_iters
  double lr_warmup_init = 0;
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::Exponential;
  std::optional<int64_t> lr_wsd_decay_iters;
  // Lengths in samples instead of steps. resolve computes the fields above from them and resets them, unless the batch
  // grows: then they stay, because steps have different numbers of samples.
  std::optional<int64_t> lr_warmup_samples, lr_decay_samples, lr_wsd_decay_samples;
};

struct OptimizerConfig {
  OptimizerKind optimizer = OptimizerKind::Adam;
  double weight_decay = 0.01;  // skipped for biases and one-dimensional tensors
  // A weight decay that changes during the run (optim/weight_decay.h), instead of weight_decay.
  WeightDecayStyle weight_decay_incr_style = WeightDecayStyle::Constant;
  std::optional<double> start_weight_decay, end_weight_decay;
  double clip_grad = 1.0;     // 0: no clipping
  double adam_beta1 = 0.9;    // adam and lamb
  double adam_beta2 = 0.999;  // adam and lamb
  double adam_eps = 1e-8;     // adam and lamb
  double sgd_momentum = 0.9;  // sgd and lars
  double lars_eta = 0.001;
  double lars_eps = 0;
  double adagrad_eps = 1e-10;
  // muon (optim/muon.h); the defaults are Moonshot's, with which the rate and decay of AdamW serve
  double muon_momentum = 0.95;
  bool muon_no_nesterov = false;
  int64_t muon_num_ns_steps = 5;
  MuonScaleMode muon_scale_mode = MuonScaleMode::Spectral;
  double muon_extra_scale_factor = 0.2;
  // adam: the types in which the moments are stored
  MomentType exp_avg_dtype = MomentType::Fp32;
  MomentType exp_avg_sq_dtype = MomentType::Fp32;
  // Factors of the rate and of the decay by parameter (optim/param_factors.h); the last matching pattern decides.
  std::vector<ParamFactor> lr_mult = {}, wd_mult = {};
  std::optional<double> ema = {};  // decay of the exponential average of the weights; absent: no average
};

// The type of weights and activations: at most one of the flags is set; f32 if none is. With 16-bit types, gradients of
// parameters, master weights and the optimizer's state are f32 (core/dtype.h, accumulate_type).
struct PrecisionConfig {
  bool bf16 = false;
  bool fp16 = false;
  // Matrix products of linear layers with operands rounded to 8 bits (ops/cuda/fp8.h); with bf16, on CUDA devices, or
  // emulated (ops/narrow.h). An operand has one scale, or one for each block of 128 or 128 x 128 elements.
  bool fp8 = false;
  Fp8Recipe fp8_recipe = Fp8Recipe::Tensorwise;
  // f32 matrix products with operands rounded to TF32 (ops/cuda/gemm.h); on CUDA devices.
  bool tf32 = false;
  bool f64 = false;  // everything in double precision, to check the mathematics
  // Gradients are accumulated in f32 on every rank but sent over the data axis in bf16 (data_parallel/data_sums.h).
  bool grad_reduce_in_bf16 = false;
  // The loss is multiplied by a scale before the backward pass so that small gradients do not underflow in f16: a fixed
  // scale, or one adjusted to the gradients (optim/loss_scaler.h).
  std::optional<double> loss_scale;
  double initial_loss_scale = 4294967296.0;  // 2^32
  double min_loss_scale = 1.0;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;
};

// The type of weights and activations.
DType compute_type(const PrecisionConfig& config);
// Whether factors of products in 8 bits have scales of blocks (ops/narrow.h).
inline bool has_narrow_factors(const PrecisionConfig& config) {
  return config.fp8 && config.fp8_recipe == Fp8Recipe::Blockwise;
}
// The type in which gradients are sent over the data axis.
DType reduce_type(const PrecisionConfig& config);

}  // namespace trifold
