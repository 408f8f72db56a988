// Turns the status codes of CUDA's runtime into Errors.
#pragma once

#include <cuda_runtime_api.h>

#include "core/error.h"

namespace trifold::cuda {

// Throws unless `status` is success; `what` names the attempt ("allocating 4096 bytes on cuda:0"). Also
// clears CUDA's error state, so that the error is not reported a second time by the next check of a launch.
template <class... Args>
void check_cuda(cudaError_t status, fmt::format_string<Args...> what, Args&&... args) {
  if (status == cudaSuccess) [[likely]]
    return;
  static_cast<void>(cudaGetLastError());
  fail("CUDA failed while {}: {} ({})", fmt::format(what, std::forward<Args>(args)...),
       cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace trifold::cuda
