#include "pipeline/device_batches.h"

#include <cstddef>
#include <cstring>

namespace trifold {

namespace {

constexpr size_t kAlignment = 256;

size_t round_up(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

DeviceBatches::DeviceBatches(const OpTable& ops, Stream& compute, int64_t in_use)
    : ops_(ops),
      compute_(compute),
      places_(static_cast<size_t>(in_use) + 1),
      copies_(Stream::Mode::Inline, compute.pool(), ops.device) {}

Batch DeviceBatches::take(const Batch& batch, int64_t number, double loss_scale) {
  Place& at = place(number);
  Batch copy = batch;
  size_t bytes = sizeof(Numbers);
  for (const Tensor* tensor : copy.tensors())
    if (tensor->data != nullptr) bytes += round_up(tensor->bytes());
  Stream host = compute_.host();
  host.wait(at.copied);  // the previous copy has been read from host memory
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
    begin += round_up(tensor->bytes());
  }
  Numbers numbers{batch.first_sample, {loss_scale}};
  for (size_t i = 0; i < batch.values.size(); ++i) {
    numbers.loss_factors[1 + i] = loss_scale * batch.values[i];
    numbers.loss_factors[1 + kMostBatchValues + i] = batch.values[i];
  }
  std::memcpy(at.host.data() + begin, &numbers, sizeof numbers);
  std::byte* there = at.device.data() + begin;
  copy.sample = {there + offsetof(Numbers, first_sample), DType::I64, {1}};
  copy.loss_factors = {there + offsetof(Numbers, loss_factors), DType::F64, {kLossFactors}};
  begin += sizeof numbers;
  copies_.wait(at.used);
  const Shape all{static_cast<int64_t>(begin)};
  ops_.copy(copies_, at.device.tensor(DType::U8, all), at.host.tensor(DType::U8, all));
  at.copied = copies_.record();
  compute_.wait(at.copied);
  return copy;
}

void DeviceBatches::release(int64_t number) { place(number).used = compute_.record(); }

}  // namespace trifold
