// CopyIn: memory that the host writes and operations read, for what comes anew with each batch. On the host
// it is one block; with a device it is a pinned block and its twin there, and one copy brings over all that
// was written.
#pragma once

#include "ops/ops.h"

namespace trifold {

class CopyIn {
 public:
  // Room for tensors of `bytes` in all, each rounded up as `room` does. `ops` must outlive this.
  CopyIn(const OpTable& ops, size_t bytes);
  // Of memory that operations read; with a device as many are pinned on the host.
  size_t bytes() const { return ops_.device == nullptr ? host_.bytes() : device_.bytes(); }
  // What a tensor takes of it.
  static size_t room(DType dtype, int64_t elements);

  // Gives up all tensors. With a device: the copy of them has left the host's memory.
  void restart() { used_ = 0; }
  // A tensor for the host to write, of unspecified content. Throws where there is no room.
  Tensor take(DType dtype, const Shape& shape);
  // The same tensor where operations read it, behind the copy.
  Tensor there(Tensor taken) const;
  // Enqueues the copy of all tensors that were taken; nothing to do on the host. Whoever reads the device's
  // side of an earlier copy must come before it on `stream`.
  void copy(Stream& stream) const;

 private:
  const OpTable& ops_;
  Buffer host_, device_;  // the second one with a device only
  size_t used_ = 0;
};

}  // namespace trifold
