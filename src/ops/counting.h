// Tables whose operations write down what they would do (core/work_log.h) and compute nothing: for walks of a model on
// Dry streams that have a log. Shapes and types are checked as in every other table.
#pragma once

#include "ops/ops.h"

namespace trifold {

// Which operations a back end computes in one kernel of its own, where ops.h defines them by several others.
enum class FusedOps : uint8_t {
  None,  // as processors: products, and passes before and after them
  Rows,  // several passes over rows, but nothing with a product other than its bias
  All    // as devices do
};

const OpTable& counting_ops(FusedOps fused);

}  // namespace trifold
