// NcclCommunicator: tensors of CUDA devices through NCCL, one device for each rank.
//
// It is made over a communicator of the host (MPI, or threads of one process with a device each), which
// carries NCCL's identifier, everything on streams of the host, barriers, and the news of an abort. NCCL does
// not compare the ranks' calls; calls that differ end at the deadline.
//
// Two ranks' first message to each other, and a communicator's first collective, connect them: the host waits
// for the others meanwhile. So exchanges complete in any order among ranks that have met (comm/meet.h).
//
// Calls return when they are enqueued, and NCCL itself waits for ever. So a thread watches what is enqueued:
// what is not done `timeout` after it was enqueued, what NCCL reports as failed, or a rank that gave up and
// said so over the host's communicator, aborts the world: NCCL's kernels end, so that streams that wait for
// them wake, and the next call fails with the reason.
#pragma once

#include <chrono>
#include <memory>

#include "comm/communicator.h"
#include "core/cuda/cuda_device.h"

namespace trifold::cuda {

// Collective over `host`, which must outlive the result and everything split from it.
std::unique_ptr<Communicator> connect_nccl(Communicator& host, CudaDevice& device,
                                           std::chrono::milliseconds timeout);

}  // namespace trifold::cuda
