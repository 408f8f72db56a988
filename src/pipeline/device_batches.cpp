#include "pipeline/device_batches.h"

#include <cstring>

namespace trifold {

namespace {

constexpr size_t kAlignment = 256;

size_t room(const Tensor& tensor) { return (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceBatches::DeviceBatches(const OpTable& ops, Stream& compute, int64_t in_use)
    : ops_(ops),
      compute_(compute),
      places_(static_cast<size_t>(in_use) + 1),
      copies_(Stream::Mode::Inline, compute.pool(), ops.device) {}

Batch DeviceBatches::take(const Batch& batch, int64_t number) {
  Place& at = place(number);
  Batch copy = batch;
  size_t bytes = 0;
  for (const Tensor* tensor : copy.tensors()) bytes += room(*tensor);
  Stream host = compute_.host();
  host.wait(at.copied);  // the copy before has left the host's memory
  if (at.device.bytes() < bytes) {
    host.wait(at.used);
    at.host = Buffer::shared(bytes, ops_.device);
    at.device = Buffer(bytes, ops_.device);
  }
  size_t begin = 0;
  for (Tensor* tensor : copy.tensors()) {
    if (tensor->data == nullptr) continue;
    std::memcpy(at.host.data() + begin, tensor->data, tensor->bytes());
    tensor->data = at.device.data() + begin;
    begin += room(*tensor);
  }
  copies_.wait(at.used);
  const Shape all{static_cast<int64_t>(begin)};
  ops_.copy(copies_, at.device.tensor(DType::U8, all), at.host.tensor(DType::U8, all));
  at.copied = copies_.record();
  compute_.wait(at.copied);
  return copy;
}

void DeviceBatches::release(int64_t number) { place(number).used = compute_.record(); }

}  // namespace trifold
