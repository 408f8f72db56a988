// Tensors that an operation takes beside its own, in f32, until the stream is past it.
#pragma once

#include <deque>
#include <memory>
#include <span>

#include "ops/ops.h"

namespace trifold::test {

class Temporaries {
 public:
  Tensor take(const Shape& shape) {
    buffers_->emplace_back(static_cast<size_t>(shape.elements()) * sizeof(float));
    return buffers_->back().tensor(DType::F32, shape);
  }
  // A copy of `tensor`, of f32 or 16 bits, behind which `change` is called with its numbers.
  template <class Change>
  Tensor changed(Stream& stream, Tensor tensor, const Change& change) {
    const Tensor wide = take(tensor.shape);
    if (tensor.dtype == DType::F32)
      cpu_ops().copy(stream, wide, tensor);
    else
      cpu_ops().convert(stream, wide, tensor);
    stream.run([wide, change] { change(std::span(wide.as<float>(), static_cast<size_t>(wide.elements()))); });
    return wide;
  }
  // Behind the last use.
  void release(Stream& stream) const {
    stream.run([held = buffers_] {});
  }

 private:
  std::shared_ptr<std::deque<Buffer>> buffers_ = std::make_shared<std::deque<Buffer>>();
};

}  // namespace trifold::test
