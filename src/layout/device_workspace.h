// The device memory that a rank's operations need in addition to their tensors.
#pragma once

#include <cstddef>

#include "layout/run_spec.h"

namespace trifold {

// Bytes of workspace on each rank; 0 on the CPU. A compute stream holds the largest workspace of cuBLASLt, FP8 factors,
// cuDNN's attention and the gradients of embeddings (ops/cuda/workspace.h).
size_t device_workspace(const RunSpec& run);

}  // namespace trifold
