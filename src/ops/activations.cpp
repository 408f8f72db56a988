#include "ops/activations.h"

#include "core/error.h"

namespace trifold {

namespace {

const ActivationEntries& entries_of(ActivationKind kind) {
  for (const ActivationEntries& entry : kActivations)
    if (entry.kind == kind) return entry;
  fail("activation {} has no operations", static_cast<int>(kind));
}

}  // namespace

Gating gating_of(const ActivationForm& form) {
  if (form.gating) return *form.gating;
  if (form.kind == ActivationKind::Swiglu) return {};
  return {form.kind == ActivationKind::Geglu ? Gating::Kind::Gelu : Gating::Kind::GeluErf};
}

size_t formula_of(const ActivationForm& form) {
  return form.gated() ? static_cast<size_t>(gating_of(form).kind) : entries_of(form.kind).formula;
}

void activate(const OpTable& ops, Stream& stream, const Forms& y, Tensor x, const ActivationForm& form) {
  if (form.gated()) return ops.gated(stream, y, x, gating_of(form));
  (ops.*entries_of(form.kind).forward)(stream, y, x);
}

void activate_backward(const OpTable& ops, Stream& stream, const Forms& dx, Tensor dy, Tensor x,
                       const ActivationForm& form) {
  if (form.gated()) return ops.gated_backward(stream, dx, dy, x, gating_of(form));
  (ops.*entries_of(form.kind).backward)(stream, dx, dy, x);
}

}  // namespace trifold
