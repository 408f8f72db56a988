#include "config/subjects/training.h"

#include "config/fields/batch_sizes.h"
#include "config/options/bounds.h"
#include "config/subjects/scaling/ramps.h"

namespace trifold {

void add_batch(OptionTable& table, BatchConfig& batch) {
  table.group("Batch");
  table.add("micro-batch-size", &batch.micro_batch_size, "Sequences per micro-batch.")
      .need()
      .range(1, kMaxSize)
      .of_execution();
  table.add("global-batch-size", &batch.global_batch_size, "Sequences per step over all ranks.")
      .range(1, kMaxSize)
      .absent("--micro-batch-size x data parallel size");
}

void add_exit(OptionTable& table, std::optional<int64_t>& interval, std::optional<double>& minutes) {
  table.add("exit-interval", &interval, "Save and exit after a step divisible by this.")
      .range(1, kMaxCount)
      .absent("train to the end")
      .of_execution();
  table
      .add("exit-duration-in-mins", &minutes,
           "Save and exit after the first step that ends more than this many minutes after the start.")
      .range(0.001, 525'600)
      .absent("no limit")
      .of_execution();
}

void add_length(OptionTable& table, BatchConfig& batch, uint64_t& seed) {
  table.group("Length of the run");
  table.add("train-iters", &batch.train_iters, "Steps to train.").need("train-epochs").range(1, kMaxCount);
  if (batch.train_epochs) table.change("train-iters").optional().range(0, kMaxCount);
  table
      .add("train-epochs", &batch.train_epochs,
           "Train for this many passes over the training data instead of --train-iters; each pass uses every "
           "sample exactly once, and its last global batch may be smaller.")
      .range(1, kMaxCount)
      .absent("set by --train-iters");
  add_exit(table, batch.exit_interval, batch.exit_duration_in_mins);
  table.add("seed", &seed, "Seed of initial weights, data order and dropout.");
}

void add_lr(OptionTable& table, LrConfig& lr) {
  table.group("Learning rate");
  table.add("lr", &lr.lr, "Learning rate after warm-up.").need().positive();
  table.add("min-lr", &lr.min_lr, "Learning rate after decay.")
      .at_least(0)
      .no_effect_with({"lr-decay-style", "constant"}, {}, "leave it out, or give another style")
      .compares(Relation::AtMost, "lr");
  table.add("lr-decay-style", &lr.lr_decay_style, "Shape of the decay after warm-up.")
      .needs(When("lr-wsd-decay-iters").or_when("lr-wsd-decay-samples"), "the steps of the final decay",
             "give one of them")
      .only_for("WSD");
  table
      .add("lr-decay-power", &lr.lr_decay_power,
           "polynomial: exponent of the remaining fraction of the decay.")
      .positive()
      .only_with({"lr-decay-style", "polynomial"});
  table
      .add("lr-decay-start", &lr.lr_decay_start,
           "parabola: step, counted from 1, at which the decay starts, with the square of the remaining "
           "fraction; 0: no decay.")
      .range(0, kMaxCount)
      .only_with({"lr-decay-style", "parabola"});
  table
      .add("lr-decay-iters", &lr.lr_decay_iters,
           "Step at which the decay ends; for parabola its number of steps.")
      .range(1, kMaxCount)
      .absent("--train-iters")
      .no_effect_with({"lr-decay-style", "constant"}, {}, "leave it out, or give another style")
      .unless("lr-warmup-fraction");
  table.add("lr-warmup-iters", &lr.lr_warmup_iters, "Steps of linear warm-up.").range(0, kMaxCount);
  table
      .add("lr-warmup-fraction", &lr.lr_warmup_fraction,
           "Length of the warm-up as a fraction of --lr-decay-iters, instead of --lr-warmup-iters.")
      .fraction()
      .absent("set by --lr-warmup-iters")
      .no_effect_with({"lr-decay-style", "parabola"}, {}, "give --lr-warmup-iters")
      .excludes({"lr-warmup-iters", AtLeast{1}}, {}, "give one of them");
  table.add("lr-warmup-init", &lr.lr_warmup_init, "Learning rate at the start of warm-up.")
      .at_least(0)
      .only_with(When("lr-warmup-iters", AtLeast{1})
                     .or_when("lr-warmup-fraction", kAboveZero)
                     .or_when("lr-warmup-samples", AtLeast{1}),
                 "which are the warm-up")
      .compares(Relation::AtMost, "lr");
  table.add("lr-wsd-decay-style", &lr.lr_wsd_decay_style, "Shape of the final decay of WSD.")
      .only_with({"lr-decay-style", "WSD"});
  table
      .add("lr-wsd-decay-iters", &lr.lr_wsd_decay_iters,
           "Length of the final decay of WSD in steps; required with WSD.")
      .range(1, kMaxCount)
      .absent("no WSD")
      .only_with({"lr-decay-style", "WSD"});
}

void add_lengths_in_samples(OptionTable& table, BatchConfig& batch, LrConfig& lr) {
  table.group("Length of the run");
  table
      .add("train-samples", &batch.train_samples,
           "Samples to train instead of --train-iters: as many whole steps as they fill.")
      .range(1, kMaxCount)
      .absent("set by --train-iters")
      .excludes("train-iters", {}, "give one of them")
      .excludes("train-epochs", {}, "give one of them");
  if (batch.train_samples) table.change("train-iters").optional().range(0, kMaxCount);
  table.group("Learning rate");
  table.add("lr-warmup-samples", &lr.lr_warmup_samples, "Length of the warm-up in samples instead of steps.")
      .range(0, kMaxCount)
      .absent("set by --lr-warmup-iters")
      .excludes({"lr-warmup-iters", AtLeast{1}}, {}, "give one of them")
      .excludes("lr-warmup-fraction", {}, "give one of them");
  table
      .add("lr-decay-samples", &lr.lr_decay_samples,
           "Samples after which the decay ends, instead of --lr-decay-iters.")
      .range(1, kMaxCount)
      .absent("set by --lr-decay-iters")
      .excludes("lr-decay-iters", {}, "give one of them")
      .no_effect_with({"lr-decay-style", "constant"}, {}, "leave it out, or give another style")
      .unless("lr-warmup-fraction");
  table
      .add("lr-wsd-decay-samples", &lr.lr_wsd_decay_samples,
           "Length of the final decay of WSD in samples instead of steps.")
      .range(1, kMaxCount)
      .absent("set by --lr-wsd-decay-iters")
      .excludes("lr-wsd-decay-iters", {}, "give one of them")
      .only_with({"lr-decay-style", "WSD"});
}

namespace {

void add_muon(OptionTable& table, OptimizerConfig& optimizer) {
  table.add("muon-momentum", &optimizer.muon_momentum, "muon: decay rate of the momentum of matrices.")
      .fraction()
      .only_with({"optimizer", "muon"});
  table
      .add("muon-no-nesterov", &optimizer.muon_no_nesterov,
           "muon: take the momentum itself for the direction, without Nesterov's look-ahead.")
      .only_with({"optimizer", "muon"});
  table
      .add("muon-num-ns-steps", &optimizer.muon_num_ns_steps,
           "muon: iterations of Newton and Schulz that make a direction orthogonal.")
      .range(1, 100)
      .also("muon-ns-steps")
      .only_with({"optimizer", "muon"});
  table
      .add(
          "muon-scale-mode", &optimizer.muon_scale_mode,
          "muon: factor of the direction of a matrix of r rows and c columns: sqrt(max(r, c)), sqrt(r / c), or "
          "sqrt(max(1, r / c)).")
      .only_with({"optimizer", "muon"});
  table
      .add(
          "muon-extra-scale-factor", &optimizer.muon_extra_scale_factor,
          "muon: another factor of the direction. With 0.2 and spectral an update is as large as one of adam, whose "
          "--lr and --weight-decay then serve.")
      .positive()
      .only_with({"optimizer", "muon"});
}

void add_moments(OptionTable& table, OptimizerConfig& optimizer) {
  const auto add = [&](const char* name, MomentType* field, const char* help) {
    table.add(name, field, help)
        .only_with({"optimizer", "adam"})
        .excludes("f64", "because f64 is for numerical checks, which rounding would defeat", "leave it out")
        .only_for("bf16|fp8");
  };
  add("exp-avg-dtype", &optimizer.exp_avg_dtype,
      "adam: type in which the first moment is stored; bf16 and fp8 (2 bits of mantissa) are rounded at random, so the "
      "mean is exact.");
  add("exp-avg-sq-dtype", &optimizer.exp_avg_sq_dtype,
      "adam: type in which the second moment is stored, as --exp-avg-dtype.");
}

void add_factors(OptionTable& table, OptimizerConfig& optimizer) {
  table
      .add(
          "lr-mult", &optimizer.lr_mult,
          "Factors of the learning rate by parameter: patterns of names with * for any characters, ? for one, and "
          "[01] for one of several, such as '*.bias=2'. The last pattern that matches decides.")
      .takes("PATTERN=FACTOR ...");
  table
      .add("wd-mult", &optimizer.wd_mult,
           "Factors of --weight-decay by parameter, as --lr-mult; parameters without decay stay without.")
      .takes("PATTERN=FACTOR ...")
      .only_with(When("weight-decay", kAboveZero).or_when("weight-decay-incr-style", "linear|cosine"),
                 "because there is no weight decay");
  table
      .add("ema", &optimizer.ema,
           "Keep an exponential average of the weights, with this decay per step; evaluate, generate, serve "
           "and convert take it with --load-ema.")
      .fraction()
      .absent("no average")
      .excludes("no-save-optim", "because the average is saved with the optimizer state",
                "leave one of them out");
}

}  // namespace

void add_optimizer(OptionTable& table, OptimizerConfig& optimizer) {
  table.group("Optimizer");
  table
      .add(
          "optimizer", &optimizer.optimizer,
          "Update rule; adam decouples weight decay (AdamW). muon makes the momentum of every matrix orthogonal; "
          "embeddings, the output layer, norms and biases keep adam.")
      .needs(
          {"weight-decay", kAboveZero},
          "because parameters without decay have no trust ratio, so that it would be adam under another name",
          "give --weight-decay, or --optimizer adam")
      .only_for("lamb")
      .needs(
          {"weight-decay", kAboveZero},
          "because parameters without decay have no local rate, so that it would be sgd under another name",
          "give --weight-decay, or --optimizer sgd")
      .only_for("lars");
  table
      .add("weight-decay", &optimizer.weight_decay,
           "Weight decay; not applied to biases and other one-dimensional tensors.")
      .at_least(0);
  table.add("clip-grad", &optimizer.clip_grad, "Clip gradients to this global norm; 0: no clipping.")
      .at_least(0);
  table.add("adam-beta1", &optimizer.adam_beta1, "adam, lamb, muon: decay rate of the first moment.")
      .fraction()
      .only_with({"optimizer", "adam|lamb|muon"});
  table.add("adam-beta2", &optimizer.adam_beta2, "adam, lamb, muon: decay rate of the second moment.")
      .fraction()
      .only_with({"optimizer", "adam|lamb|muon"});
  table.add("adam-eps", &optimizer.adam_eps, "adam, lamb, muon: added to the root of the second moment.")
      .positive()
      .only_with({"optimizer", "adam|lamb|muon"});
  table.add("sgd-momentum", &optimizer.sgd_momentum, "sgd, lars: momentum; 0: none.")
      .fraction()
      .only_with({"optimizer", "sgd|lars"});
  table
      .add("lars-eta", &optimizer.lars_eta,
           "lars: a tensor's rate is --lr times this times the norm of its weights over the norm of its "
           "gradient plus --weight-decay times the norm of its weights; --lr alone for biases and other "
           "one-dimensional tensors.")
      .positive()
      .only_with({"optimizer", "lars"});
  table.add("lars-eps", &optimizer.lars_eps, "lars: added to the divisor of a tensor's rate.")
      .at_least(0)
      .only_with({"optimizer", "lars"});
  table.add("adagrad-eps", &optimizer.adagrad_eps, "adagrad: added to the root of the sum of squares.")
      .positive()
      .only_with({"optimizer", "adagrad"});
  add_muon(table, optimizer);
  add_moments(table, optimizer);
  add_factors(table, optimizer);
}

namespace {

void check_warmup(const LrConfig& lr, int64_t decay, Problems& problems) {
  if (!problems.sound({"lr-warmup-iters", "lr-decay-iters", "train-iters"}) || lr.lr_warmup_iters < decay)
    return;
  problems.about("lr-warmup-iters", "lr-decay-iters", "train-iters")
      .wrong("--lr-warmup-iters {} is not below --lr-decay-iters {}{}", lr.lr_warmup_iters, decay,
             lr.lr_decay_iters ? "" : " (taken from --train-iters)")
      .right("give at most {} or more steps of decay", decay - 1);
}

void check_wsd(const LrConfig& lr, int64_t decay, Problems& problems) {
  if (lr.lr_decay_style == LrDecayStyle::Wsd && lr.lr_wsd_decay_iters.value_or(0) > decay &&
      problems.sound({"lr-decay-iters", "train-iters"}))
    problems.about("lr-wsd-decay-iters", "lr-decay-iters")
        .wrong("--lr-wsd-decay-iters {} is more than --lr-decay-iters {}", *lr.lr_wsd_decay_iters, decay)
        .right("give at most {}", decay);
}

// Checks of parabolic decay, which has a separate start.
void check_parabola(const LrConfig& lr, Problems& problems) {
  if ((lr.lr_decay_start > 0) != (lr.lr_decay_iters.value_or(0) > 0))
    problems.about("lr-decay-start", "lr-decay-iters")
        .wrong("--lr-decay-start and --lr-decay-iters have an effect only together")
        .right("give both, or neither");
  if (lr.lr_decay_start > 0 && lr.lr_decay_start < lr.lr_warmup_iters)
    problems.about("lr-decay-start", "lr-warmup-iters")
        .wrong("--lr-decay-start {} is inside the warm-up of {} steps", lr.lr_decay_start, lr.lr_warmup_iters)
        .right("let the decay begin after it");
}

}  // namespace

void check_lr(const LrConfig& lr, int64_t train_iters, Problems& problems) {
  if (lr.lr_decay_style == LrDecayStyle::Parabola) return check_parabola(lr, problems);
  if (lr.lr_decay_iters == 0) {  // allowed for recommenders: a parabola without decay
    if (problems.sound({"lr-decay-iters"}))
      problems.about("lr-decay-iters")
          .wrong("--lr-decay-iters 0 leaves no step for the decay")
          .right("give at least 1, or leave it out");
    return;
  }
  if (train_iters == 0 && !lr.lr_decay_iters) return;  // checked again once the length of the run is known
  const int64_t decay = lr.lr_decay_iters.value_or(train_iters);
  check_warmup(lr, decay, problems);
  check_wsd(lr, decay, problems);
}

namespace {

// Calls body(option, samples, option of the same length in steps) for each length that is given in samples.
template <class Batch, class Lr, class Body>
void each_length_in_samples(Batch& batch, Lr& lr, const Body& body) {
  if (batch.train_samples) body("train-samples", *batch.train_samples, "train-iters");
  if (lr.lr_warmup_samples) body("lr-warmup-samples", *lr.lr_warmup_samples, "lr-warmup-iters");
  if (lr.lr_decay_samples) body("lr-decay-samples", *lr.lr_decay_samples, "lr-decay-iters");
  if (lr.lr_wsd_decay_samples) body("lr-wsd-decay-samples", *lr.lr_wsd_decay_samples, "lr-wsd-decay-iters");
}

}  // namespace

bool gives_samples(const BatchConfig& batch, const LrConfig& lr) {
  return batch.train_samples || lr.lr_warmup_samples || lr.lr_decay_samples || lr.lr_wsd_decay_samples;
}

void take_samples_as_steps(BatchConfig& batch, LrConfig& lr, int64_t global_batch) {
  if (const std::optional<BatchRamp> ramp = ramp_of(batch)) {
    if (batch.train_samples)
      batch.train_iters = BatchSizes(ramp, global_batch).whole_steps(*batch.train_samples);
    batch.train_samples.reset();
    return;  // the rates stay in samples
  }
  if (batch.train_samples) batch.train_iters = *batch.train_samples / global_batch;
  if (lr.lr_warmup_samples) lr.lr_warmup_iters = *lr.lr_warmup_samples / global_batch;
  if (lr.lr_decay_samples) lr.lr_decay_iters = *lr.lr_decay_samples / global_batch;
  if (lr.lr_wsd_decay_samples) lr.lr_wsd_decay_iters = *lr.lr_wsd_decay_samples / global_batch;
  batch.train_samples.reset();
  lr.lr_warmup_samples.reset();
  lr.lr_decay_samples.reset();
  lr.lr_wsd_decay_samples.reset();
}

void check_samples(const BatchConfig& batch, const LrConfig& lr, int64_t global_batch, Problems& problems) {
  if (!batch.rampup_batch_size.empty()) return check_samples_of_ramp(batch, lr, global_batch, problems);
  each_length_in_samples(batch, lr, [&](const char* option, int64_t samples, const char* in_steps) {
    if (!problems.sound({option})) return;
    if (global_batch == 0) {
      problems.about(option, "global-batch-size")
          .wrong("--{} {} needs --global-batch-size, the samples of a step", option, samples)
          .right("give both, or --{}", in_steps);
    } else if (samples > 0 && samples < global_batch && std::string_view(option) == "lr-warmup-samples" &&
               lr.lr_warmup_init > 0) {
      problems.about(option, "global-batch-size", "lr-warmup-init")
          .wrong("--lr-warmup-init {} has no effect with --{} {}, which is less than one step of {} samples",
                 lr.lr_warmup_init, option, samples, global_batch)
          .right("leave it out, or give at least {} samples", global_batch);
    } else if (samples > 0 && samples < global_batch && std::string_view(option) != "lr-warmup-samples") {
      problems.about(option, "global-batch-size")
          .wrong("--{} {} is less than one step of {} samples (--global-batch-size)", option, samples,
                 global_batch)
          .right("give at least {}", global_batch);
    } else {
      problems.add({.options = {option},
                    .wrong = fmt::format("--{} {} is --{} {} with {} samples a step{}", option, samples,
                                         in_steps, samples / global_batch, global_batch,
                                         samples % global_batch == 0 ? "" : ", rounded down"),
                    .right = "",
                    .severity = Severity::Note});
    }
  });
}

void check_length(const BatchConfig& batch, Problems& problems) {
  if (batch.train_epochs && batch.train_iters > 0 && !batch.pass_samples)
    problems.about("train-iters", "train-epochs")
        .wrong("--train-iters {} and --train-epochs {} exclude each other", batch.train_iters,
               *batch.train_epochs)
        .right("give one of them");
}

}  // namespace trifold
