// The CUDA table on the CPU: its real entries, with the kernels emulated. For tests.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// Tensors are in host memory, and streams have no device. Products and attention, for which the real table
// uses libraries, are the plain kernels.
const OpTable& emulated_ops();

// Selects which thread of a block runs first between two barriers (emulation.cuh): results must not depend on
// it.
void set_thread_order(int order);

}  // namespace trifold::cuda
