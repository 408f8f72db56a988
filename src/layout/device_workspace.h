// The device memory that a rank's operations take beside their tensors.
#pragma once

#include <cstddef>

#include "config/fields/config.h"

namespace trifold {

// Bytes on each rank; 0 on the processor. What cuBLASLt, factors of 8 bits, cuDNN's attention and the
// gradients of embeddings take, of which a stream of computation holds the largest (ops/cuda/workspace.h).
// `config` must be resolved.
size_t device_workspace(const PretrainConfig& config);

}  // namespace trifold
