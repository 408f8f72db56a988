// What CUDA's runtime returns, as Errors.
#pragma once

#include <cuda_runtime_api.h>

#include "core/error.h"

namespace trifold::cuda {

// Throws unless `status` is success; `what` says what was tried ("allocating 4096 bytes on cuda:0"). CUDA
// then clears the error: it is reported here, not by the next caller that asks whether a launch was refused.
template <class... Args>
void check_cuda(cudaError_t status, fmt::format_string<Args...> what, Args&&... args) {
  if (status == cudaSuccess) [[likely]]
    return;
  static_cast<void>(cudaGetLastError());
  fail("CUDA failed while {}: {} ({})", fmt::format(what, std::forward<Args>(args)...),
       cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace trifold::cuda
