// LayerType: the types in which layers compute.
#pragma once

#include "core/dtype.h"

namespace trifold {

// A plain DType is a LayerType without narrow factors.
struct LayerType {
  LayerType(DType type, bool narrow_factors = false)  // NOLINT(google-explicit-constructor): see above
      : dtype(type), narrow(narrow_factors) {}

  DType dtype;  // the type of weights, activations and their gradients
  bool narrow =
      false;  // factors that only products of linear layers read are written in 8 bits (ops/narrow.h)
};

}  // namespace trifold
