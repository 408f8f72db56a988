// CopyIn: memory that the host writes and operations read, for the data of a batch. On the host it is one block; with
// a device it is a pinned block and a block of device memory, and one transfer copies all tensors. Owns its memory.
#pragma once

#include "ops/ops.h"

namespace trifold {

class CopyIn {
 public:
  // Room for tensors of `bytes` in total, each rounded up as by `room`. `ops` must outlive this object.
  CopyIn(const OpTable& ops, size_t bytes);
  // Bytes of the memory that operations read; with a device, an equal amount is pinned on the host.
  size_t bytes() const { return ops_.device == nullptr ? host_.bytes() : device_.bytes(); }
  // The bytes that a tensor occupies.
  static size_t room(DType dtype, int64_t elements);

  // Discards all tensors. With a device, their transfer from host memory must have finished.
  void restart() { used_ = 0; }
  // A tensor for the host to write, of unspecified content. Throws if there is no room.
  Tensor take(DType dtype, const Shape& shape);
  // The tensor in device memory that copy() writes from `taken`; on the host, `taken` itself.
  Tensor operand(Tensor taken) const;
  // Enqueues the transfer of all tensors that were taken; on the host it does nothing. Readers of an earlier transfer's
  // device tensors must be earlier on `stream`.
  void copy(Stream& stream) const;

 private:
  const OpTable& ops_;
  Buffer host_, device_;  // device_ only with a device
  size_t used_ = 0;
};

}  // namespace trifold
