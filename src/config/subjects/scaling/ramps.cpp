#include "config/subjects/scaling/ramps.h"

#include <algorithm>
#include <vector>

#include "config/fields/batch_sizes.h"
#include "config/fields/pipeline_choice.h"
#include "config/options/bounds.h"

namespace trifold {

namespace {

constexpr const char* kRamp = "rampup-batch-size";
constexpr std::string_view kUnequalSteps = "because its steps have different numbers of samples";

}  // namespace

void add_batch_ramp(OptionTable& table, BatchConfig& batch) {
  table
      .add(
          "rampup-batch-size", &batch.rampup_batch_size,
          "Let the global batch grow from START sequences to --global-batch-size, by INCREMENT at a time, over the "
          "first SAMPLES samples of the run; rates then count samples, not steps.")
      .takes("START INCREMENT SAMPLES")
      .absent("all steps have --global-batch-size")
      .needs("global-batch-size", {}, "give the size up to which the batch grows")
      .excludes({"lr-warmup-iters", AtLeast{1}}, kUnequalSteps, "give --lr-warmup-samples instead")
      .excludes({"lr-decay-iters", AtLeast{1}}, kUnequalSteps, "give --lr-decay-samples instead")
      .excludes("lr-wsd-decay-iters", kUnequalSteps, "give --lr-wsd-decay-samples instead")
      .excludes({"lr-decay-style", "parabola"}, "which counts steps", "give another style")
      .excludes("auto-layout", "which chooses a layout for batches of one size",
                "find a layout with 'trifold plan --search' and give that")
      .excludes("search", "which compares layouts for batches of one size", "leave it out");
}

void add_weight_decay_ramp(OptionTable& table, OptimizerConfig& optimizer) {
  constexpr std::string_view kStyle = "weight-decay-incr-style";
  constexpr std::string_view kRamps = "linear|cosine";
  table
      .add(
          "weight-decay-incr-style", &optimizer.weight_decay_incr_style,
          "Course of the weight decay over the run: constant at --weight-decay, or from --start-weight-decay to "
          "--end-weight-decay in a line or along half a cosine.")
      .needs("start-weight-decay", {}, "give the first and the last value")
      .only_for(kRamps)
      .needs("end-weight-decay", {}, "give the first and the last value")
      .only_for(kRamps);
  table.add("start-weight-decay", &optimizer.start_weight_decay, "Weight decay of the first step.")
      .at_least(0)
      .takes("X")
      .absent("--weight-decay")
      .only_with(When(kStyle, kRamps));
  table.add("end-weight-decay", &optimizer.end_weight_decay, "Weight decay at the end of the run.")
      .at_least(0)
      .takes("X")
      .absent("--weight-decay")
      .only_with(When(kStyle, kRamps));
  table.change("weight-decay")
      .no_effect_with(When(kStyle, kRamps), "which has a start and an end of its own")
      .as_note();
}

void check_weight_decay(const OptimizerConfig& optimizer, Problems& problems) {
  const bool needs_decay =
      optimizer.optimizer == OptimizerKind::Lamb || optimizer.optimizer == OptimizerKind::Lars;
  if (!needs_decay || optimizer.weight_decay_incr_style == WeightDecayStyle::Constant) return;
  for (const auto& [name, value] : {std::pair("start-weight-decay", optimizer.start_weight_decay),
                                    std::pair("end-weight-decay", optimizer.end_weight_decay)})
    if (value && *value == 0)
      problems.about(name, "optimizer")
          .wrong(
              "--{} 0 is not possible with --optimizer {}, which gives parameters without decay no local rate",
              name, name_of(optimizer.optimizer))
          .right("give a number above 0, or --optimizer adam");
}

namespace {

// Whether the three values make a ramp.
bool check_numbers(const BatchConfig& batch, Problems& problems) {
  const std::optional<BatchRamp> ramp = ramp_of(batch);
  if (!ramp) {
    problems.about(kRamp)
        .wrong("--{} has {} number{}", kRamp, batch.rampup_batch_size.size(),
               batch.rampup_batch_size.size() == 1 ? "" : "s")
        .right("give three: START INCREMENT SAMPLES");
    return false;
  }
  const int64_t full = *batch.global_batch_size;
  if (ramp->start >= full) {
    problems.about(kRamp, "global-batch-size")
        .wrong("--{} starts with {}, which is not below --global-batch-size {}", kRamp, ramp->start, full)
        .right("give a smaller START");
    return false;
  }
  if ((full - ramp->start) % ramp->increment == 0) return true;
  problems.about(kRamp, "global-batch-size")
      .wrong(
          "--{}: the increment {} does not divide {}, the difference between --global-batch-size {} and {}",
          kRamp, ramp->increment, full - ramp->start, full, ramp->start)
      .right("{}", multiples_around(full - ramp->start, ramp->increment));
  return false;
}

}  // namespace

void check_batch_ramp(const PretrainConfig& config, int64_t data, Problems& problems) {
  const BatchConfig& batch = config.batch;
  if (batch.rampup_batch_size.empty() || !batch.global_batch_size ||
      !problems.sound({kRamp, "micro-batch-size", "global-batch-size"}) || !check_numbers(batch, problems))
    return;
  if (schedule_from_file(config.pipeline))
    problems.about(kRamp, "schedule")
        .wrong("--{} is not possible with --schedule {}, a plan for batches of one size", kRamp,
               config.pipeline.schedule->text())
        .right("give a schedule by its name");
  const int64_t unit = batch.micro_batch_size * data;
  std::vector<int64_t> all, odd;
  for (const StepsOfSize& some : BatchSizes(ramp_of(batch), *batch.global_batch_size).sizes_of())
    all.push_back(some.size);
  std::copy_if(all.begin(), all.end(), std::back_inserter(odd),
               [&](int64_t size) { return size % unit != 0; });
  constexpr size_t kMost = 8;  // sizes in the message
  const auto some = [](std::vector<int64_t> list) {
    const size_t count = list.size();
    if (count > kMost) list.resize(kMost);
    return fmt::format("{}{}", fmt::join(list, ", "),
                       count > kMost ? fmt::format(", ... ({} in all)", count) : "");
  };
  if (!odd.empty())
    problems.about(kRamp, "micro-batch-size", "data-parallel-size", "ranks")
        .wrong(
            "--{}: {} of the sizes {} {} not divisible by --micro-batch-size {} x data parallel size {} = {}",
            kRamp, some(odd), some(all), odd.size() == 1 ? "is" : "are", batch.micro_batch_size, data, unit)
        .right("give a START and an INCREMENT that are multiples of {}", unit);
}

void check_samples_of_ramp(const BatchConfig& batch, const LrConfig& lr, int64_t global_batch,
                           Problems& problems) {
  const std::optional<BatchRamp> ramp = ramp_of(batch);
  if (!ramp || global_batch == 0 || ramp->start >= global_batch ||
      (global_batch - ramp->start) % ramp->increment != 0)
    return;  // reported by check_batch_ramp
  const BatchSizes sizes(ramp, global_batch);
  if (batch.train_samples && problems.sound({"train-samples"})) {
    const int64_t steps = sizes.whole_steps(*batch.train_samples);
    if (steps == 0)
      problems.about("train-samples", kRamp)
          .wrong("--train-samples {} is less than the first step of {} samples (--{})", *batch.train_samples,
                 ramp->start, kRamp)
          .right("give at least {}", ramp->start);
    else
      problems.add({.options = {"train-samples"},
                    .wrong = fmt::format(
                        "--train-samples {} is --train-iters {} with batches of {} to {} samples",
                        *batch.train_samples, steps, ramp->start, sizes.at(sizes.samples_of(steps - 1)).size),
                    .right = "",
                    .severity = Severity::Note});
  }
  if (lr.lr_decay_style == LrDecayStyle::Constant) return;
  const int64_t run = batch.train_samples ? sizes.samples_of(sizes.whole_steps(*batch.train_samples))
                                          : sizes.samples_of(batch.train_iters);
  const int64_t decay = lr.lr_decay_samples.value_or(run);
  if (decay == 0) return;  // the length of the run is not known yet
  const int64_t warmup = lr.lr_warmup_samples.value_or(0);
  if (warmup >= decay)
    problems.about("lr-warmup-samples", "lr-decay-samples", "train-samples")
        .wrong("--lr-warmup-samples {} is not below the {} samples after which the decay ends", warmup, decay)
        .right("give at most {}, or a longer decay", decay - 1);
  else if (lr.lr_wsd_decay_samples.value_or(0) > decay - warmup)
    problems.about("lr-wsd-decay-samples", "lr-decay-samples")
        .wrong(
            "--lr-wsd-decay-samples {} is more than the {} samples between warm-up and the end of the decay",
            *lr.lr_wsd_decay_samples, decay - warmup)
        .right("give at most {}", decay - warmup);
}

}  // namespace trifold
