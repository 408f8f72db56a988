// enqueue: puts a launch of the CUDA OpTable's entries on a stream.
#pragma once

#include <utility>

#include "core/stream.h"

struct CUstream_st;

namespace trifold::cuda {

// A cudaStream_t, without CUDA's headers.
using CudaStream = CUstream_st*;

// Calls launch(CudaStream), immediately or on the stream's thread, with the stream's device current, and
// throws an Error that names `op` if CUDA rejected the launch. Does nothing on a Dry stream. On a host
// stream (tests of emulated kernels) the CudaStream is null.
template <class Launch>
void enqueue(Stream& stream, const char* op, Launch launch) {
  stream.enqueue([queue = stream.queue(), op, launch = std::move(launch)]() mutable {
    launch(queue != nullptr ? static_cast<CudaStream>(queue->native()) : nullptr);
    if (queue != nullptr) queue->check_launch(op);
  });
}

}  // namespace trifold::cuda
