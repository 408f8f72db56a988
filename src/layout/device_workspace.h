// The device memory that a rank's operations need besides their tensors.
#pragma once

#include <cstddef>

#include "layout/run_spec.h"

namespace trifold {

// Bytes on each rank; 0 on the CPU. Covers cuBLASLt, FP8 factors, cuDNN's attention and the gradients of
// embeddings; a compute stream holds the largest of them (ops/cuda/workspace.h).
size_t device_workspace(const RunSpec& run);

}  // namespace trifold
