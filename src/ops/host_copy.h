// HostCopy: a copy of a tensor in host memory, for infrequent uses (checks, checkpoints, samples).
#pragma once

#include "ops/ops.h"

namespace trifold {

class HostCopy {
 public:
  // Waits until `stream` has computed the tensor. `tensor` must be on the device of `ops`; on the host it is
  // used in place, and must outlive this object.
  HostCopy(const OpTable& ops, Stream& stream, Tensor tensor);

  const Tensor& tensor() const { return tensor_; }

 private:
  Buffer memory_;
  Tensor tensor_;
};

}  // namespace trifold
