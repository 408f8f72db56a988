// The CUDA table on the processor: its entries as they are, their kernels under the emulation. For tests.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// Its tensors are the host's, its streams have no device. Products and attention, which the real table takes
// from libraries, are the plain kernels.
const OpTable& emulated_ops();

// Which thread of a block runs first between two barriers (emulation.cuh): results must not depend on it.
void set_thread_order(int order);

}  // namespace trifold::cuda
