#include "ops/copy_in.h"

#include "core/flight/recorded_copy.h"

namespace trifold {

namespace {

constexpr size_t kAlignment = 256;  // the alignment of device memory

}  // namespace

CopyIn::CopyIn(const OpTable& ops, size_t bytes)
    : ops_(ops), host_(ops.device == nullptr ? Buffer(bytes) : Buffer::shared(bytes, ops.device)) {
  if (ops.device != nullptr) device_ = Buffer(bytes, ops.device);
}

size_t CopyIn::room(DType dtype, int64_t elements) {
  const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Tensor CopyIn::take(DType dtype, const Shape& shape) {
  const size_t bytes = room(dtype, shape.elements());
  check(bytes <= host_.bytes() - used_, "{} {} do not fit the {} of {} bytes that are left", name_of(dtype),
        to_string(shape), host_.bytes() - used_, host_.bytes());
  const Tensor taken{host_.data() + used_, dtype, shape};
  used_ += bytes;
  return taken;
}

Tensor CopyIn::operand(Tensor taken) const {
  if (ops_.device != nullptr)
    taken.data = device_.data() + (static_cast<std::byte*>(taken.data) - host_.data());
  return taken;
}

void CopyIn::copy(Stream& stream) const {
  if (ops_.device == nullptr || used_ == 0) return;
  const RecordedCopy recorded("batch to device", used_, stream);
  const Shape all{static_cast<int64_t>(used_)};
  ops_.copy(stream, device_.tensor(DType::U8, all), host_.tensor(DType::U8, all));
}

}  // namespace trifold
