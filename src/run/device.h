// Which device a rank computes on.
#pragma once

#include <string_view>

#include "comm/communicator.h"
#include "comm/cuda_module.h"
#include "config/fields/config.h"

namespace trifold {

// The table of --device for this rank of `world`: the processor's, or that of a CUDA device, with --fp8,
// --tf32 and --no-deterministic-mode the one that they ask for. Ranks that are threads share the first
// device; processes of a node take one each.
const OpTable& ops_of(const MeshConfig& config, const Communicator& world,
                      const PrecisionConfig& precision = {});
const OpTable& ops_of(ComputeDevice device, const Communicator& world, const CudaTable& which = {});

// How products on this rank's CUDA device get their algorithms.
ProductTuning& products_of(const Communicator& world);

// How a stream that carries the work of `world`'s communicators runs: those of NCCL are asynchronous by
// themselves, the others' work needs a thread.
Stream::Mode comm_mode(const Communicator& world);

// The arithmetic that ranks as threads share.
const OpTable& ops_of_threads(const MeshConfig& config);

// The device of this rank among those of its node; `world` must know its nodes.
int device_index(const Communicator& world);

// Throws BadInput that says what is missing where --device cuda was asked for and cannot be had.
void check_device(const MeshConfig& config);

// For what cannot compute on a device yet; `what` names it: "trifold bench --what blocks".
void expect_no_device(const MeshConfig& config, std::string_view what);

}  // namespace trifold
