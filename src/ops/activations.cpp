#include "ops/activations.h"

#include "core/error.h"

namespace trifold {

ActivationOps activation_ops(ActivationKind kind) {
  for (const ActivationEntries& entry : kActivations)
    if (entry.kind == kind) return {entry.forward, entry.backward};
  check(kind == ActivationKind::Swiglu, "activation {} has no operations", static_cast<int>(kind));
  // It takes two halves of each row, so it is no formula of the list.
  return {&OpTable::swiglu, &OpTable::swiglu_backward};
}

}  // namespace trifold
