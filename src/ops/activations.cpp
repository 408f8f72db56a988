#include "ops/activations.h"

#include "core/error.h"

namespace trifold {

ActivationOps activation_ops(ActivationKind kind) {
  for (const ActivationEntries& entry : kActivations)
    if (entry.kind == kind) return {entry.forward, entry.backward};
  check(kind == ActivationKind::Swiglu, "activation {} has no operations", static_cast<int>(kind));
  return {&OpTable::swiglu, &OpTable::swiglu_backward};  // of two halves, so not in the list
}

}  // namespace trifold
