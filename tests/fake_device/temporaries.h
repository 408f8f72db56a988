// Temporary f32 tensors of an operation, kept until the stream has passed it.
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
  // A copy of `tensor`, of f32 or 16 bits; `change` is then called with its numbers.
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
  // Call after the last use.
  void release(Stream& stream) const {
    stream.run([held = buffers_] {});
  }

 private:
  std::shared_ptr<std::deque<Buffer>> buffers_ = std::make_shared<std::deque<Buffer>>();
};

}  // namespace trifold::test
