#include "optim/update_rule.h"

#include <array>
#include <cmath>

#include "core/error.h"
#include "optim/muon.h"

namespace trifold {
namespace {

void check_state(const UpdateRule& rule, const Slice& slice) {
  check(slice.state.size() == rule.state_names().size(),
        "a slice has {} tensors of state, but its update rule has {}", slice.state.size(),
        rule.state_names().size());
}

DType moment_type(MomentType type, DType wide) {
  return type == MomentType::Bf16 ? DType::BF16 : type == MomentType::Fp8 ? DType::U8 : wide;
}

class AdamWUpdate final : public UpdateRule {
 public:
  explicit AdamWUpdate(const OptimizerConfig& config) : config_(config) {}

  std::span<const std::string_view> state_names() const override {
    static constexpr std::array<std::string_view, 2> kNames = {"adam_m", "adam_v"};
    return kNames;
  }
  DType stored_type(size_t index, DType wide) const override {
    return moment_type(index == 0 ? config_.exp_avg_dtype : config_.exp_avg_sq_dtype, wide);
  }
  SmallFloat stored_format(size_t index) const override {
    return index == 0 ? SmallFloat::Signed : SmallFloat::Positive;
  }
  void update(const Slice& slice, const StepValues& values, const OpTable& ops,
              Stream& stream) const override {
    check_state(*this, slice);
    ops.adamw(stream, slice.master, slice.weight, slice.state[0], slice.state[1], slice.grad,
              rule(slice.weight_decay, values, slice.numbers));
  }
  RuleNumbers numbers(double weight_decay, const StepValues& values) const override {
    return numbers_of(rule(weight_decay, values));
  }

 private:
  AdamW rule(double weight_decay, const StepValues& values, Tensor numbers = {}) const {
    return {values.lr,    config_.adam_beta1, config_.adam_beta2, config_.adam_eps,
            weight_decay, values.step,        values.grad_scale,  numbers};
  }

  OptimizerConfig config_;
};

class LambUpdate final : public UpdateRule {
 public:
  explicit LambUpdate(const OptimizerConfig& config) : config_(config) {}

  std::span<const std::string_view> state_names() const override {
    static constexpr std::array<std::string_view, 2> kNames = {"lamb_m", "lamb_v"};
    return kNames;
  }
  bool needs_norms() const override { return true; }
  void measure(const Slice& slice, const StepValues& values, const SliceSquares& squares, const OpTable& ops,
               Stream& stream) const override {
    check_state(*this, slice);
    ops.lamb_moments(stream, squares.weight, squares.direction, slice.state[0], slice.state[1], slice.master,
                     slice.grad, rule(slice.weight_decay, values, slice.numbers));
  }
  void update(const Slice& slice, const StepValues& values, const OpTable& ops,
              Stream& stream) const override {
    check_state(*this, slice);
    ops.lamb(stream, slice.master, slice.weight, slice.state[0], slice.state[1],
             rule(slice.weight_decay, values, slice.numbers));
  }
  double trust_ratio(double weight_squares, double direction_squares, double weight_decay,
                     const StepValues&) const override {
    if (weight_decay == 0 || weight_squares == 0 || direction_squares == 0) return 1;
    return std::sqrt(weight_squares) / std::sqrt(direction_squares);
  }
  RuleNumbers numbers(double weight_decay, const StepValues& values) const override {
    return numbers_of(rule(weight_decay, values));
  }

 private:
  Lamb rule(double weight_decay, const StepValues& values, Tensor numbers = {}) const {
    return {values.lr,   config_.adam_beta1, config_.adam_beta2, config_.adam_eps, weight_decay,
            values.step, values.grad_scale,  values.trust_ratio, numbers};
  }

  OptimizerConfig config_;
};

// LARS is sgd with the tensor's rate inside the momentum, so it is the update of sgd with the rate 1 and the tensor's
// rate as a factor of the gradient and of the decay.
class LarsUpdate final : public UpdateRule {
 public:
  explicit LarsUpdate(const OptimizerConfig& config) : config_(config) {}

  std::span<const std::string_view> state_names() const override {
    static constexpr std::array<std::string_view, 1> kNames = {"lars_momentum"};
    if (config_.sgd_momentum == 0) return {};
    return kNames;
  }
  bool needs_norms() const override { return true; }
  void measure(const Slice& slice, const StepValues&, const SliceSquares& squares, const OpTable& ops,
               Stream& stream) const override {
    check_state(*this, slice);
    ops.chunk_squares(stream, squares.weight, slice.master);
    ops.chunk_squares(stream, squares.direction, slice.grad);
  }
  double trust_ratio(double weight_squares, double direction_squares, double weight_decay,
                     const StepValues& values) const override {
    const double weight = std::sqrt(weight_squares);
    const double gradient = std::abs(values.grad_scale) * std::sqrt(direction_squares);
    if (weight_decay == 0 || weight == 0 || gradient == 0) return 1;
    return config_.lars_eta * weight / (gradient + weight_decay * weight + config_.lars_eps);
  }
  void update(const Slice& slice, const StepValues& values, const OpTable& ops,
              Stream& stream) const override {
    check_state(*this, slice);
    const Tensor momentum = slice.state.empty() ? Tensor{} : slice.state[0];
    ops.sgd(stream, slice.master, slice.weight, momentum, slice.grad,
            rule(slice.weight_decay, values, slice.numbers));
  }
  RuleNumbers numbers(double weight_decay, const StepValues& values) const override {
    return numbers_of(rule(weight_decay, values));
  }

 private:
  Sgd rule(double weight_decay, const StepValues& values, Tensor numbers = {}) const {
    const double rate = values.lr * values.trust_ratio;
    return {1, config_.sgd_momentum, rate * weight_decay, rate * values.grad_scale, numbers};
  }

  OptimizerConfig config_;
};

class SgdUpdate final : public UpdateRule {
 public:
  explicit SgdUpdate(const OptimizerConfig& config) : momentum_(config.sgd_momentum) {}

  std::span<const std::string_view> state_names() const override {
    static constexpr std::array<std::string_view, 1> kNames = {"sgd_momentum"};
    if (momentum_ == 0) return {};
    return kNames;
  }
  void update(const Slice& slice, const StepValues& values, const OpTable& ops,
              Stream& stream) const override {
    check_state(*this, slice);
    const Tensor momentum = slice.state.empty() ? Tensor{} : slice.state[0];
    ops.sgd(stream, slice.master, slice.weight, momentum, slice.grad,
            rule(slice.weight_decay, values, slice.numbers));
  }
  RuleNumbers numbers(double weight_decay, const StepValues& values) const override {
    return numbers_of(rule(weight_decay, values));
  }

 private:
  Sgd rule(double weight_decay, const StepValues& values, Tensor numbers = {}) const {
    return {values.lr, momentum_, weight_decay, values.grad_scale, numbers};
  }

  double momentum_;
};

class AdagradUpdate final : public UpdateRule {
 public:
  explicit AdagradUpdate(const OptimizerConfig& config) : eps_(config.adagrad_eps) {}

  std::span<const std::string_view> state_names() const override {
    static constexpr std::array<std::string_view, 1> kNames = {"adagrad_sum"};
    return kNames;
  }
  void update(const Slice& slice, const StepValues& values, const OpTable& ops,
              Stream& stream) const override {
    check_state(*this, slice);
    ops.adagrad(stream, slice.master, slice.weight, slice.state[0], slice.grad,
                rule(slice.weight_decay, values, slice.numbers));
  }
  RuleNumbers numbers(double weight_decay, const StepValues& values) const override {
    return numbers_of(rule(weight_decay, values));
  }

 private:
  Adagrad rule(double weight_decay, const StepValues& values, Tensor numbers = {}) const {
    return {values.lr, eps_, weight_decay, values.grad_scale, numbers};
  }

  double eps_;
};

}  // namespace

void UpdateRule::measure(const Slice&, const StepValues&, const SliceSquares&, const OpTable&,
                         Stream&) const {
  fail("measure was called for an update rule that needs no norms");
}

double UpdateRule::trust_ratio(double, double, double, const StepValues&) const {
  fail("trust_ratio was called for an update rule that needs no norms");
}

void UpdateRule::direct(const Slice&, const StepValues&, const OpTable&, Stream&) const {
  fail("direct was called for an update rule that takes no matrices");
}

int64_t UpdateRule::newton_schulz_steps() const {
  fail("newton_schulz_steps was called for an update rule that takes no matrices");
}

double UpdateRule::direction_scale(int64_t, int64_t) const {
  fail("direction_scale was called for an update rule that takes no matrices");
}

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config) {
  if (config.optimizer == OptimizerKind::Adam) return std::make_unique<AdamWUpdate>(config);
  if (config.optimizer == OptimizerKind::Lamb) return std::make_unique<LambUpdate>(config);
  if (config.optimizer == OptimizerKind::Lars) return std::make_unique<LarsUpdate>(config);
  if (config.optimizer == OptimizerKind::Sgd) return std::make_unique<SgdUpdate>(config);
  if (config.optimizer == OptimizerKind::Adagrad) return std::make_unique<AdagradUpdate>(config);
  if (config.optimizer == OptimizerKind::Muon)
    return make_muon(config, std::make_unique<AdamWUpdate>(config));
  fail("--optimizer {} has no update rule", name_of(config.optimizer));
}

}  // namespace trifold
