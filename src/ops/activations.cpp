#include "ops/activations.h"

namespace trifold {

ActivationOps activation_ops(ActivationKind kind) {
  for (const ActivationEntries& entry : kActivations)
    if (entry.kind == kind) return {entry.forward, entry.backward};
  return {&OpTable::swiglu, &OpTable::swiglu_backward};  // two halves, so more than one formula
}

}  // namespace trifold
