#include "pipeline/device_batches.h"

#include <cstddef>
#include <cstring>

#include "core/flight/recorded_copy.h"

namespace trifold {

namespace {

constexpr size_t kAlignment = 256;

size_t round_up(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceBatches::DeviceBatches(const OpTable& ops, Stream& compute, int64_t in_use)
    : ops_(ops),
      compute_(compute),
      buffers_(static_cast<size_t>(in_use) + 1),
      copies_(Stream::Mode::Inline, compute.pool(), ops.device) {}

Batch DeviceBatches::take(const Batch& batch, int64_t number, double loss_scale) {
  BatchBuffer& buffer = buffer_of(number);
  Batch copy = batch;
  size_t bytes = sizeof(Scalars);
  for (const Tensor* tensor : copy.tensors())
    if (tensor->data != nullptr) bytes += round_up(tensor->bytes());
  Stream host = compute_.host();
  host.wait(buffer.copied);  // until the previous batch has been copied from host memory
  if (buffer.device.bytes() < bytes) {
    host.wait(buffer.used);
    buffer.host = Buffer::shared(bytes, ops_.device);
    buffer.device = Buffer(bytes, ops_.device);
  }
  size_t begin = 0;
  for (Tensor* tensor : copy.tensors()) {
    if (tensor->data == nullptr) continue;
    std::memcpy(buffer.host.data() + begin, tensor->data, tensor->bytes());
    tensor->data = buffer.device.data() + begin;
    begin += round_up(tensor->bytes());
  }
  Scalars scalars{batch.first_sample, {loss_scale}};
  for (size_t i = 0; i < batch.values.size(); ++i) {
    scalars.loss_factors[1 + i] = loss_scale * batch.values[i];
    scalars.loss_factors[1 + kMostBatchValues + i] = batch.values[i];
  }
  std::memcpy(buffer.host.data() + begin, &scalars, sizeof scalars);
  std::byte* device_scalars = buffer.device.data() + begin;
  copy.sample = {device_scalars + offsetof(Scalars, first_sample), DType::I64, {1}};
  copy.loss_factors = {device_scalars + offsetof(Scalars, loss_factors), DType::F64, {kLossFactors}};
  begin += sizeof scalars;
  copies_.wait(buffer.used);
  const RecordedCopy recorded("batch to device", begin, copies_);
  const Shape all{static_cast<int64_t>(begin)};
  ops_.copy(copies_, buffer.device.tensor(DType::U8, all), buffer.host.tensor(DType::U8, all));
  buffer.copied = copies_.record();
  compute_.wait(buffer.copied);
  return copy;
}

void DeviceBatches::release(int64_t number) { buffer_of(number).used = compute_.record(); }

}  // namespace trifold
