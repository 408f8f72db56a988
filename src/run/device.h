// The device on which a rank computes.
#pragma once

#include <string_view>

#include "comm/communicator.h"
#include "comm/cuda_module.h"
#include "config/fields/config.h"

namespace trifold {

// The operation table of --device for this rank of `world`, for the processor or a CUDA device, in the variant that
// --fp8, --tf32 and --no-deterministic-mode select. Ranks that are threads share the first device; processes of a node
// take one each.
const OpTable& ops_of(const MeshConfig& config, const Communicator& world,
                      const PrecisionConfig& precision = {});
const OpTable& ops_of(ComputeDevice device, const Communicator& world, const CudaTable& which = {});

// The tuning of matrix products on this rank's CUDA device.
ProductTuning& products_of(const Communicator& world);

// The mode of a stream for `world`'s communicators: communicators that only enqueue are asynchronous, others need a thread.
Stream::Mode comm_mode(const Communicator& world);

// The operation table that thread ranks share.
const OpTable& ops_of_threads(const MeshConfig& config);

// The index of this rank's device on its node; `world` must know its nodes.
int device_index(const Communicator& world);

// Throws BadInput that says what is missing if --device cuda is given but not available.
void check_device(const MeshConfig& config);

}  // namespace trifold
