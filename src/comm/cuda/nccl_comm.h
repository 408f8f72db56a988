// NcclCommunicator: exchanges tensors of CUDA devices through NCCL, with one device per rank.
//
// It is built on a communicator of the host (MPI, or threads of one process with a device each), which
// carries NCCL's identifier, calls on streams of the host, barriers, and aborts. NCCL does not compare the
// ranks' calls; mismatched calls end in a time-out.
//
// The first message between two ranks, and the first collective of a communicator, block the host until the ranks are
// connected. So exchanges may complete in any order only among ranks that are already connected (comm/meet.h).
//
// Calls return once they are enqueued, and NCCL waits without limit. A thread therefore watches enqueued calls and
// aborts the world if a call is not done within `timeout`, if NCCL reports a failure, or if another rank aborts (over
// the host's communicator). NCCL's kernels then end, streams that wait for them wake, and the next call fails with the
// reason.
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
