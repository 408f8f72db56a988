#include "ops/update_rules.h"

#include <cmath>
#include <cstring>

#include "ops/launch_support.h"

namespace trifold {
namespace cpu {

namespace {

// The part that AdamW and LAMB share: the moments, with the bias corrections of the step.
template <class Rule>
MomentRule moment_rule(const char* op, const Rule& rule) {
  check(rule.step >= 1, "{}: the first step is 1, not {}", op, rule.step);
  return {.grad_scale = rule.grad_scale,
          .beta1 = rule.beta1,
          .one_minus_beta1 = 1 - rule.beta1,
          .beta2 = rule.beta2,
          .one_minus_beta2 = 1 - rule.beta2,
          .root_scale = 1 / std::sqrt(1 - std::pow(rule.beta2, static_cast<double>(rule.step))),
          .eps = rule.eps};
}

double first_correction(double beta1, int64_t step) { return 1 - std::pow(beta1, static_cast<double>(step)); }

}  // namespace

RowAction action_of(SparseKind kind) {
  switch (kind) {
    case SparseKind::Sgd:
      return RowAction::Sgd;
    case SparseKind::Adagrad:
      return RowAction::Adagrad;
    case SparseKind::RowwiseAdagrad:
      return RowAction::RowwiseAdagrad;
    case SparseKind::Adam:
      return RowAction::Adam;
    case SparseKind::Ftrl:
      return RowAction::Ftrl;
  }
  fail("there is no sparse optimizer number {}", static_cast<int>(kind));
}

AdamWRule fold(const char* op, const AdamW& rule) {
  return {.moments = moment_rule(op, rule),
          .decay = 1 - rule.lr * rule.weight_decay,
          .step_size = rule.lr / first_correction(rule.beta1, rule.step)};
}

LambRule fold(const char* op, const Lamb& rule) {
  return {.moments = moment_rule(op, rule),
          .first_scale = 1 / first_correction(rule.beta1, rule.step),
          .weight_decay = rule.weight_decay,
          .step_size = rule.lr * rule.trust_ratio};
}

SgdRule fold(const char*, const Sgd& rule) {
  return {rule.grad_scale, rule.weight_decay, rule.momentum, rule.lr};
}

AdagradRule fold(const char*, const Adagrad& rule) {
  return {rule.grad_scale, rule.weight_decay, rule.eps, rule.lr};
}

RowRule fold(const char* op, const SparseRule& rule) {
  check(rule.step >= 1, "{}: the first step is 1, not {}", op, rule.step);
  const auto step = static_cast<double>(rule.step);
  return {.moments = {.grad_scale = rule.grad_scale,
                      .beta1 = rule.beta1,
                      .one_minus_beta1 = 1 - rule.beta1,
                      .beta2 = rule.beta2,
                      .one_minus_beta2 = 1 - rule.beta2,
                      .root_scale = 1 / std::sqrt(1 - std::pow(rule.beta2, step)),
                      .eps = rule.eps},
          .lr = rule.lr,
          .step_size = rule.lr / (1 - std::pow(rule.beta1, step)),
          .decay = rule.kind == SparseKind::Ftrl ? 1 : 1 - rule.lr * rule.weight_decay,
          .ftrl = {1 / rule.alpha, rule.beta, rule.l1, rule.l2}};
}

}  // namespace cpu

namespace {

template <class Rule>
RuleNumbers folded(const Rule& rule) {
  const auto fold = cpu::fold("numbers_of", rule);
  static_assert(sizeof fold <= sizeof(RuleNumbers));
  RuleNumbers numbers{};
  std::memcpy(numbers.data(), &fold, sizeof fold);
  return numbers;
}

}  // namespace

RuleNumbers numbers_of(const AdamW& rule) { return folded(rule); }
RuleNumbers numbers_of(const Lamb& rule) { return folded(rule); }
RuleNumbers numbers_of(const Sgd& rule) { return folded(rule); }
RuleNumbers numbers_of(const Adagrad& rule) { return folded(rule); }
RuleNumbers numbers_of(const SparseRule& rule) { return folded(rule); }

}  // namespace trifold
