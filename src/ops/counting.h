// Tables whose operations compute nothing and append a record of their work (flops, bytes) to the stream's log
// (core/work_log.h): for walks of a model on Dry streams. Shapes and types are checked as in every other table.
#pragma once

#include "ops/ops.h"

namespace trifold {

// Which of the operations that ops.h defines as a sequence of others are counted as one kernel.
enum class FusedOps : uint8_t {
  None,  // none, as on the CPU
  Rows,  // sequences of passes over rows; a product is fused with its bias only
  All    // all, as on devices
};

// A table with static lifetime.
const OpTable& counting_ops(FusedOps fused);

}  // namespace trifold
