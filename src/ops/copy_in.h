// CopyIn: memory that the host writes and operations read, for data that is new in each batch. On the host it
// is one block; with a device it is a pinned block and a counterpart on the device, and a single copy
// transfers everything written.
#pragma once

#include "ops/ops.h"

namespace trifold {

class CopyIn {
 public:
  // Room for tensors of `bytes` in total, each rounded up as by `room`. `ops` must outlive this object.
  CopyIn(const OpTable& ops, size_t bytes);
  // Bytes of memory that operations read; with a device, as many are pinned on the host.
  size_t bytes() const { return ops_.device == nullptr ? host_.bytes() : device_.bytes(); }
  // The bytes that a tensor occupies.
  static size_t room(DType dtype, int64_t elements);

  // Discards all tensors. With a device, their copy must have been read from host memory.
  void restart() { used_ = 0; }
  // A tensor for the host to write, of unspecified content. Throws if there is no room.
  Tensor take(DType dtype, const Shape& shape);
  // The counterpart of the tensor that operations read, valid after the copy.
  Tensor there(Tensor taken) const;
  // Enqueues the copy of all tensors that were taken; no effect on the host. Readers of the device's side of
  // an earlier copy must precede it on `stream`.
  void copy(Stream& stream) const;

 private:
  const OpTable& ops_;
  Buffer host_, device_;  // device_ only with a device
  size_t used_ = 0;
};

}  // namespace trifold
