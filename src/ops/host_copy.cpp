#include "ops/host_copy.h"

namespace trifold {

HostCopy::HostCopy(const OpTable& ops, Stream& stream, Tensor tensor) : tensor_(tensor) {
  if (ops.device != nullptr) {
    memory_ = Buffer(tensor.bytes());
    tensor_.data = memory_.data();
    ops.copy(stream, tensor_, tensor);
  }
  stream.synchronize();
}

}  // namespace trifold
