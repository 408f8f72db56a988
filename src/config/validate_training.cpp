#include "config/validate_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "config/number.h"
#include "config/problems.h"
#include "config/validate.h"

namespace trifold {

namespace {

// Options that have nothing to say to some optimizers, and the optimizers that use them.
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
    problems.add("--lr-warmup-fraction {} and --lr-warmup-iters {} exclude each other: give one of them",
                 *lr.lr_warmup_fraction, lr.lr_warmup_iters);
  if (!problems.sound({"lr-warmup-iters", "lr-decay-iters", "train-iters"}) || lr.lr_warmup_iters < decay)
    return;
  problems.add(
      "--lr-warmup-iters {} is not below --lr-decay-iters {}{}: give at most {} or more steps of decay",
      lr.lr_warmup_iters, decay, lr.lr_decay_iters ? "" : " (taken from --train-iters)", decay - 1);
}

void check_wsd(const LrConfig& lr, int64_t decay, Problems& problems) {
  const bool wsd = lr.lr_decay_style == LrDecayStyle::Wsd;
  if (wsd && !lr.lr_wsd_decay_iters)
    problems.add(
        "--lr-decay-style WSD needs --lr-wsd-decay-iters: the steps of the fall at the end, from 1 to {}",
        decay);
  if (!wsd && lr.lr_wsd_decay_iters)
    problems.add("--lr-wsd-decay-iters {} has no effect: it needs --lr-decay-style WSD",
                 *lr.lr_wsd_decay_iters);
  if (!wsd && lr.lr_wsd_decay_style != LrConfig().lr_wsd_decay_style)
    problems.add("--lr-wsd-decay-style has no effect: it needs --lr-decay-style WSD");
  if (wsd && lr.lr_wsd_decay_iters.value_or(0) > decay && problems.sound({"lr-decay-iters", "train-iters"}))
    problems.add("--lr-wsd-decay-iters {} is more than --lr-decay-iters {}: give at most {}",
                 *lr.lr_wsd_decay_iters, decay, decay);
}

// Of a parabola, whose fall has a beginning of its own.
void check_parabola(const LrConfig& lr, Problems& problems) {
  if ((lr.lr_decay_start > 0) != (lr.lr_decay_iters.value_or(0) > 0))
    problems.add("--lr-decay-start and --lr-decay-iters are given together");
  if (lr.lr_decay_start > 0 && lr.lr_decay_start < lr.lr_warmup_iters)
    problems.add("--lr-decay-start {} is inside the warm-up of {} steps", lr.lr_decay_start,
                 lr.lr_warmup_iters);
  if (lr.lr_warmup_fraction)
    problems.add(
        "--lr-warmup-fraction {} has no effect with --lr-decay-style parabola: give --lr-warmup-iters",
        format_double(*lr.lr_warmup_fraction));
  check_wsd(lr, 0, problems);
}

}  // namespace

void check_lr(const LrConfig& lr, int64_t train_iters, Problems& problems) {
  if (problems.sound({"lr", "min-lr"}) && lr.min_lr > lr.lr)
    problems.add("--min-lr {0} is more than --lr {1}: give at most {1}", format_double(lr.min_lr),
                 format_double(lr.lr));
  if (problems.sound({"lr", "lr-warmup-init"}) && lr.lr_warmup_init > lr.lr)
    problems.add("--lr-warmup-init {0} is more than --lr {1}: give at most {1}",
                 format_double(lr.lr_warmup_init), format_double(lr.lr));
  if (lr.lr_decay_style == LrDecayStyle::Constant && lr.min_lr > 0)
    problems.add(
        "--min-lr {} has no effect with --lr-decay-style constant: leave it out, or give another style",
        format_double(lr.min_lr));
  // A warm-up that is a fraction of them reads them whatever the style.
  if (lr.lr_decay_style == LrDecayStyle::Constant && lr.lr_decay_iters && !lr.lr_warmup_fraction)
    problems.add(
        "--lr-decay-iters {} has no effect with --lr-decay-style constant: leave it out, or give another "
        "style",
        *lr.lr_decay_iters);
  if (lr.lr_warmup_init > 0 && lr.lr_warmup_iters == 0 && lr.lr_warmup_fraction.value_or(0) == 0)
    problems.add(
        "--lr-warmup-init {} has no effect without a warm-up: give --lr-warmup-iters or --lr-warmup-fraction",
        format_double(lr.lr_warmup_init));
  if (lr.lr_decay_style != LrDecayStyle::Polynomial && lr.lr_decay_power != LrConfig().lr_decay_power)
    problems.add("--lr-decay-power {} has no effect: it needs --lr-decay-style polynomial",
                 format_double(lr.lr_decay_power));
  if (lr.lr_decay_style == LrDecayStyle::Parabola) return check_parabola(lr, problems);
  if (lr.lr_decay_start > 0)
    problems.add("--lr-decay-start {} has no effect: it needs --lr-decay-style parabola", lr.lr_decay_start);
  if (lr.lr_decay_iters == 0) {  // which recommenders may give, for a parabola without a fall
    if (problems.sound({"lr-decay-iters"}))
      problems.add("--lr-decay-iters 0 leaves no step for the decay: give at least 1, or leave it out");
    return;
  }
  if (train_iters == 0 && !lr.lr_decay_iters) return;  // looked at again when the length of the run is known
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
    if (const auto problem = unused_by_optimizer(name, optimizer)) problems.add("{}", *problem);
  }
  if (optimizer.optimizer == OptimizerKind::Lamb && optimizer.weight_decay == 0)
    problems.add(
        "--optimizer lamb needs --weight-decay above 0: parameters without decay have no trust ratio, so it "
        "would be adam under another name");
}

void check_overlap(const LogConfig& log, const MeshConfig& mesh, Problems& problems) {
  if (log.check_overlap > 0 && mesh.ranks == 1 && mesh.device != ComputeDevice::Cuda)
    problems.add(
        "--check-overlap {} has no effect on one rank of a processor, where nothing overlaps: leave it out, "
        "or "
        "give several --ranks",
        log.check_overlap);
}

void check_length(const BatchConfig& batch, Problems& problems) {
  if (batch.train_epochs && batch.train_iters > 0 && !batch.train_samples)
    problems.add("--train-iters {} and --train-epochs {} exclude each other: give one of them",
                 batch.train_iters, *batch.train_epochs);
}

std::optional<std::string> unused_by_optimizer(const std::string& option, const OptimizerConfig& optimizer) {
  for (const auto& [name, value, users] : optimizer_options()) {
    if (name != option) continue;
    if (std::find(users.begin(), users.end(), optimizer.optimizer) != users.end()) return std::nullopt;
    std::vector<std::string_view> names;
    for (const OptimizerKind user : users) names.push_back(name_of(user));
    return fmt::format("--{} has no effect with --optimizer {}: leave it out, or give --optimizer {}", option,
                       name_of(optimizer.optimizer), fmt::join(names, " or "));
  }
  return std::nullopt;
}

}  // namespace trifold
