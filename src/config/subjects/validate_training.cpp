#include "config/subjects/validate_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "config/fields/number.h"
#include "config/options/problems.h"

namespace trifold {

namespace {

// Options that only some optimizers use, and these optimizers.
struct OptimizerOption {
  std::string_view name;
  double OptimizerConfig::*value;
  std::vector<OptimizerKind> users;
};
const std::vector<OptimizerOption>& optimizer_options() {
  using enum OptimizerKind;
  static const std::vector<OptimizerOption> kOptions = {
      {"adam-beta1", &OptimizerConfig::adam_beta1, {Adam, Lamb}},
      {"adam-beta2", &OptimizerConfig::adam_beta2, {Adam, Lamb}},
      {"adam-eps", &OptimizerConfig::adam_eps, {Adam, Lamb}},
      {"sgd-momentum", &OptimizerConfig::sgd_momentum, {Sgd}},
      {"adagrad-eps", &OptimizerConfig::adagrad_eps, {Adagrad}}};
  return kOptions;
}

void check_warmup(const LrConfig& lr, int64_t decay, Problems& problems) {
  if (lr.lr_warmup_fraction && lr.lr_warmup_iters > 0)
    problems.about("lr-warmup-fraction", "lr-warmup-iters")
        .wrong("--lr-warmup-fraction {} and --lr-warmup-iters {} exclude each other", *lr.lr_warmup_fraction,
               lr.lr_warmup_iters)
        .right("give one of them");
  if (!problems.sound({"lr-warmup-iters", "lr-decay-iters", "train-iters"}) || lr.lr_warmup_iters < decay)
    return;
  problems.about("lr-warmup-iters", "lr-decay-iters", "train-iters")
      .wrong("--lr-warmup-iters {} is not below --lr-decay-iters {}{}", lr.lr_warmup_iters, decay,
             lr.lr_decay_iters ? "" : " (taken from --train-iters)")
      .right("give at most {} or more steps of decay", decay - 1);
}

void check_wsd(const LrConfig& lr, int64_t decay, Problems& problems) {
  const bool wsd = lr.lr_decay_style == LrDecayStyle::Wsd;
  if (wsd && !lr.lr_wsd_decay_iters)
    problems.about("lr-decay-style", "lr-wsd-decay-iters")
        .wrong("--lr-decay-style WSD needs --lr-wsd-decay-iters, the steps of the final decay")
        .right("give a number from 1 to {}", decay);
  if (!wsd && lr.lr_wsd_decay_iters)
    problems.about("lr-wsd-decay-iters", "lr-decay-style")
        .wrong("--lr-wsd-decay-iters {} has no effect", *lr.lr_wsd_decay_iters)
        .right("it needs --lr-decay-style WSD");
  if (!wsd && lr.lr_wsd_decay_style != LrConfig().lr_wsd_decay_style)
    problems.about("lr-wsd-decay-style", "lr-decay-style")
        .wrong("--lr-wsd-decay-style has no effect")
        .right("it needs --lr-decay-style WSD");
  if (wsd && lr.lr_wsd_decay_iters.value_or(0) > decay && problems.sound({"lr-decay-iters", "train-iters"}))
    problems.about("lr-wsd-decay-iters", "lr-decay-iters")
        .wrong("--lr-wsd-decay-iters {} is more than --lr-decay-iters {}", *lr.lr_wsd_decay_iters, decay)
        .right("give at most {}", decay);
}

// Checks of parabolic decay, which has a start of its own.
void check_parabola(const LrConfig& lr, Problems& problems) {
  if ((lr.lr_decay_start > 0) != (lr.lr_decay_iters.value_or(0) > 0))
    problems.about("lr-decay-start", "lr-decay-iters")
        .wrong("--lr-decay-start and --lr-decay-iters have an effect only together")
        .right("give both, or neither");
  if (lr.lr_decay_start > 0 && lr.lr_decay_start < lr.lr_warmup_iters)
    problems.about("lr-decay-start", "lr-warmup-iters")
        .wrong("--lr-decay-start {} is inside the warm-up of {} steps", lr.lr_decay_start, lr.lr_warmup_iters)
        .right("let the decay begin after it");
  if (lr.lr_warmup_fraction)
    problems.about("lr-warmup-fraction", "lr-decay-style", "lr-warmup-iters")
        .wrong("--lr-warmup-fraction {} has no effect with --lr-decay-style parabola",
               format_double(*lr.lr_warmup_fraction))
        .right("give --lr-warmup-iters");
  check_wsd(lr, 0, problems);
}

}  // namespace

void check_lr(const LrConfig& lr, int64_t train_iters, Problems& problems) {
  if (problems.sound({"lr", "min-lr"}) && lr.min_lr > lr.lr)
    problems.about("min-lr", "lr")
        .wrong("--min-lr {} is more than --lr {}", format_double(lr.min_lr), format_double(lr.lr))
        .right("give at most {}", format_double(lr.lr));
  if (problems.sound({"lr", "lr-warmup-init"}) && lr.lr_warmup_init > lr.lr)
    problems.about("lr-warmup-init", "lr")
        .wrong("--lr-warmup-init {} is more than --lr {}", format_double(lr.lr_warmup_init),
               format_double(lr.lr))
        .right("give at most {}", format_double(lr.lr));
  if (lr.lr_decay_style == LrDecayStyle::Constant && lr.min_lr > 0)
    problems.about("min-lr", "lr-decay-style")
        .wrong("--min-lr {} has no effect with --lr-decay-style constant", format_double(lr.min_lr))
        .right("leave it out, or give another style");
  // A warm-up given as a fraction needs lr_decay_iters in every style.
  if (lr.lr_decay_style == LrDecayStyle::Constant && lr.lr_decay_iters && !lr.lr_warmup_fraction)
    problems.about("lr-decay-iters", "lr-decay-style")
        .wrong("--lr-decay-iters {} has no effect with --lr-decay-style constant", *lr.lr_decay_iters)
        .right("leave it out, or give another style");
  if (lr.lr_warmup_init > 0 && lr.lr_warmup_iters == 0 && lr.lr_warmup_fraction.value_or(0) == 0)
    problems.about("lr-warmup-init", "lr-warmup-iters", "lr-warmup-fraction")
        .wrong("--lr-warmup-init {} has no effect without a warm-up", format_double(lr.lr_warmup_init))
        .right("give --lr-warmup-iters or --lr-warmup-fraction");
  if (lr.lr_decay_style != LrDecayStyle::Polynomial && lr.lr_decay_power != LrConfig().lr_decay_power)
    problems.about("lr-decay-power", "lr-decay-style")
        .wrong("--lr-decay-power {} has no effect", format_double(lr.lr_decay_power))
        .right("it needs --lr-decay-style polynomial");
  if (lr.lr_decay_style == LrDecayStyle::Parabola) return check_parabola(lr, problems);
  if (lr.lr_decay_start > 0)
    problems.about("lr-decay-start", "lr-decay-style")
        .wrong("--lr-decay-start {} has no effect", lr.lr_decay_start)
        .right("it needs --lr-decay-style parabola");
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

void check_optimizer(const OptimizerConfig& optimizer, Problems& problems) {
  if (!problems.sound({"optimizer"})) return;
  for (const OptimizerOption& option : optimizer_options()) {
    const std::string name(option.name);
    const bool given = optimizer.*option.value != OptimizerConfig().*option.value;
    if (!given || !problems.sound({name.c_str()})) continue;
    if (const auto problem = unused_by_optimizer(name, optimizer)) problems.add(*problem);
  }
  if (optimizer.optimizer == OptimizerKind::Lamb && optimizer.weight_decay == 0)
    problems.about("optimizer", "weight-decay")
        .wrong(
            "--optimizer lamb needs --weight-decay above 0, because parameters without decay have no trust "
            "ratio, so that it would be adam under another name")
        .right("give --weight-decay, or --optimizer adam");
}

void check_overlap(const LogConfig& log, const MeshConfig& mesh, Problems& problems) {
  if (log.check_overlap > 0 && mesh.ranks == 1 && mesh.device != ComputeDevice::Cuda)
    problems.about("check-overlap", "ranks", "device")
        .wrong("--check-overlap {} has no effect with one rank on a CPU, where nothing overlaps",
               log.check_overlap)
        .right("leave it out, or give several --ranks");
}

void check_length(const BatchConfig& batch, Problems& problems) {
  if (batch.train_epochs && batch.train_iters > 0 && !batch.train_samples)
    problems.about("train-iters", "train-epochs")
        .wrong("--train-iters {} and --train-epochs {} exclude each other", batch.train_iters,
               *batch.train_epochs)
        .right("give one of them");
}

std::optional<Problem> unused_by_optimizer(const std::string& option, const OptimizerConfig& optimizer) {
  for (const auto& [name, value, users] : optimizer_options()) {
    if (name != option) continue;
    if (std::find(users.begin(), users.end(), optimizer.optimizer) != users.end()) return std::nullopt;
    std::vector<std::string_view> names;
    for (const OptimizerKind user : users) names.push_back(name_of(user));
    return Problem{
        {option, "optimizer"},
        fmt::format("--{} has no effect with --optimizer {}", option, name_of(optimizer.optimizer)),
        fmt::format("leave it out, or give --optimizer {}", fmt::join(names, " or "))};
  }
  return std::nullopt;
}

}  // namespace trifold
