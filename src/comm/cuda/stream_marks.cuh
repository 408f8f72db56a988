// StreamMarks: events in a device's streams, which pass once all earlier work is done. An interface, so that
// NcclWorld can be tested without a device.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "core/cuda/cuda_device.h"

namespace trifold::cuda {

class StreamMarks {
 public:
  virtual ~StreamMarks() = default;

  virtual std::string device_name() const = 0;
  // Makes the device the calling thread's current one.
  virtual void use() noexcept = 0;
  virtual cudaEvent_t make() = 0;
  virtual void record(cudaEvent_t mark, cudaStream_t stream) = 0;
  // Also true if the device failed; the stream reports the failure to the thread that waits for it.
  virtual bool passed(cudaEvent_t mark) noexcept = 0;
  virtual void destroy(cudaEvent_t mark) noexcept = 0;
};

// Marks made of CUDA events; `device` must outlive them.
std::unique_ptr<StreamMarks> cuda_marks(CudaDevice& device);

}  // namespace trifold::cuda
