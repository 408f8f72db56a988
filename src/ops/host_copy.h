// HostCopy: a tensor where the host can read it, for what is looked at seldom (checks, checkpoints, samples).
#pragma once

#include "ops/ops.h"

namespace trifold {

class HostCopy {
 public:
  // Waits until `stream` is past what it holds. `tensor` lives where those of `ops` do; on the host it is
  // used as it is, and must outlive this.
  HostCopy(const OpTable& ops, Stream& stream, Tensor tensor);

  const Tensor& tensor() const { return tensor_; }

 private:
  Buffer memory_;
  Tensor tensor_;
};

}  // namespace trifold
