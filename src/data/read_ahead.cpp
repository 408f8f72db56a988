#include "data/read_ahead.h"

#include <algorithm>

#include "core/error.h"

namespace trifold {

namespace {

Batch shapes_of(const DataSource& source, int64_t samples) {
  Batch batch = batch_without_memory(samples, source.seq_length(), source.later_labels());
  if (source.separates_documents()) batch.document_begin = batch.positions;
  if (const int64_t bytes = source.array_bytes(samples); bytes > 0)
    batch.arrays = {nullptr, DType::U8, {bytes}};
  return batch;
}

}  // namespace

BatchBuffer::BatchBuffer(int64_t samples, int64_t seq_length)
    : BatchBuffer(batch_without_memory(samples, seq_length)) {}

BatchBuffer::BatchBuffer(const DataSource& source, int64_t samples)
    : BatchBuffer(shapes_of(source, samples)) {}

BatchBuffer::BatchBuffer(const Batch& shapes) : batch_(shapes) {
  // Arrays of a model are read as vectors; all other tensors are aligned enough one after the other.
  constexpr size_t kArrayAlignment = 64;
  std::vector<size_t> begins;
  size_t bytes = 0;
  for (const Tensor* tensor : batch_.tensors()) {
    if (tensor == &batch_.arrays) bytes = (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
    begins.push_back(bytes);
    if (tensor->rank() > 0) bytes += tensor->bytes();
  }
  memory_ = Buffer(bytes);
  auto begin = begins.begin();
  for (Tensor* tensor : batch_.tensors()) {
    if (tensor->rank() > 0) tensor->data = memory_.data() + *begin;
    ++begin;
  }
  std::fill(memory_.data(), memory_.data() + bytes, std::byte{0});
}

namespace {

std::vector<BatchBuffer> make_slots(const DataSource& source, const ReadOrder& order, int count) {
  check(order.micro_batch_size >= 1 && order.count >= 0,
        "read-ahead of {} batches of {} samples: at least 0 batches of at least 1 sample are needed",
        order.count, order.micro_batch_size);
  std::vector<BatchBuffer> slots;
  slots.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) slots.emplace_back(source, order.micro_batch_size);
  return slots;
}

}  // namespace

ReadAhead::ReadAhead(const DataSource& source, const ReadOrder& order, int held, int ahead)
    : source_(source),
      order_(order),
      slots_(make_slots(source, order, held + ahead)),
      cut_(slots_.size()),
      reader_(
          order.count, held, ahead, [this](int64_t index) { read(index); },
          [this](int64_t index) { return fmt::format("samples from {} on", first_sample(index)); }) {}

int64_t ReadAhead::first_sample(int64_t index) const {
  const auto step = static_cast<int64_t>(order_.permutation.size());
  const int64_t micro =
      step == 0 ? index : index / step * step + order_.permutation[static_cast<size_t>(index % step)];
  return order_.first_sample + micro * order_.stride;
}

void ReadAhead::read(int64_t index) {
  Batch& whole = slots_[slot(index)].batch();
  read_padded(source_, whole, first_sample(index), order_.end);
  Batch& part = cut_[slot(index)];
  part = whole;
  if (order_.rows.rows() > 0) cut_rows(part, order_.rows);
}

const Batch& ReadAhead::get(std::chrono::milliseconds timeout) { return cut_[slot(reader_.get(timeout))]; }

}  // namespace trifold
