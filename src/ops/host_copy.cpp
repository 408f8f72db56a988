#include "ops/host_copy.h"

#include "core/flight/recorded_copy.h"

namespace trifold {

HostCopy::HostCopy(const OpTable& ops, Stream& stream, Tensor tensor) : tensor_(tensor) {
  if (ops.device != nullptr) {
    memory_ = Buffer(tensor.bytes());
    tensor_.data = memory_.data();
    const RecordedCopy recorded("to host", tensor.bytes(), stream);
    ops.copy(stream, tensor_, tensor);
    stream.synchronize();
    return;
  }
  stream.synchronize();
}

}  // namespace trifold
