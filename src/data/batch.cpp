#include "data/batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace trifold {

Batch batch_without_memory(int64_t samples, int64_t seq_length, int later_labels) {
  check(later_labels >= 0 && later_labels <= kMostLaterLabels, "{} later labels: from 0 to {} are possible",
        later_labels, kMostLaterLabels);
  Batch batch;
  const Shape all{samples, seq_length};
  const Shape each{samples};
  batch.tokens = batch.labels = batch.positions = batch.padding =
      batch.token_types = {nullptr, DType::I32, all};
  batch.loss_weight = {nullptr, DType::F32, all};
  std::fill_n(batch.later_labels.begin(), later_labels, batch.labels);
  std::fill_n(batch.later_weights.begin(), later_labels, batch.loss_weight);
  batch.lengths = batch.pair_labels = batch.answer_begin = batch.answer_end = {nullptr, DType::I32, each};
  batch.pair_weight = {nullptr, DType::F32, each};
  batch.sample_values = {nullptr, DType::F64, each};
  return batch;
}

Batch first_samples(const Batch& whole, int64_t count) {
  check(whole.arrays.data == nullptr, "a batch with arrays of a model has no part of {} of its {} samples",
        count, whole.samples());
  Batch part = whole;
  for (Tensor* tensor : part.tensors())
    if (tensor->data != nullptr) *tensor = tensor->rows(0, count);
  return part;
}

// Rows only move towards the beginning, so none is overwritten before it has moved.
void cut_rows(Batch& batch, const SequenceRows& rows) {
  const Shape whole{batch.samples(), rows.length()};
  if (batch.tokens.shape != whole)  // not `check`, whose message arguments would be built for every batch
    fail("rows of sequences of {} positions cannot be cut from a batch of {}", rows.length(),
         to_string(batch.tokens.shape));
  if (rows.whole()) return;
  const Shape here{whole[0], rows.rows()};
  for (Tensor* tensor : batch.tensors()) {
    if (tensor == &batch.document_begin || tensor->shape != whole) continue;
    const size_t each = size_of(tensor->dtype);
    auto* memory = static_cast<std::byte*>(tensor->data);
    const auto at = [each](int64_t row) { return static_cast<size_t>(row) * each; };
    if (memory != nullptr)
      for (int64_t sample = 0; sample < whole[0]; ++sample)
        for (const RowRun& run : rows.runs())
          std::memmove(memory + at(sample * rows.rows() + run.row),
                       memory + at(sample * rows.length() + run.begin), at(run.count));
    tensor->shape = here;
  }
  batch.rows = rows;
}

namespace {

// Marks samples [from, b) as padding, and the others as samples of the data.
void mark(Batch& batch, int64_t from) {
  if (batch.padding.data == nullptr) return;
  auto* begin = batch.padding.as<int32_t>();
  std::fill(begin, begin + from * batch.seq_length(), 0);
  std::fill(begin + from * batch.seq_length(), begin + batch.padding.elements(), 1);
}

// Fills samples [from, b) with padding. The model computes them like any others; with a loss weight of 0 they add exact
// zeros to the loss and to every gradient.
void pad(Batch& batch, int64_t from) {
  const int64_t length = batch.seq_length();
  const int64_t begin = from * length;
  const int64_t end = batch.samples() * length;
  std::fill(batch.tokens.as<int32_t>() + begin, batch.tokens.as<int32_t>() + end, 0);
  std::fill(batch.labels.as<int32_t>() + begin, batch.labels.as<int32_t>() + end, 0);
  std::fill(batch.loss_weight.as<float>() + begin, batch.loss_weight.as<float>() + end, 0.0F);
  for (const Tensor& labels : batch.later_labels)
    if (labels.data != nullptr) std::fill(labels.as<int32_t>() + begin, labels.as<int32_t>() + end, 0);
  for (const Tensor& weights : batch.later_weights)
    if (weights.data != nullptr) std::fill(weights.as<float>() + begin, weights.as<float>() + end, 0.0F);
  for (int64_t row = begin; row < end; row += length)
    std::iota(batch.positions.as<int32_t>() + row, batch.positions.as<int32_t>() + row + length, 0);
  if (batch.document_begin.data != nullptr)
    std::fill(batch.document_begin.as<int32_t>() + begin, batch.document_begin.as<int32_t>() + end, 0);
  if (batch.sample_values.data != nullptr)
    std::fill(batch.sample_values.as<double>() + from, batch.sample_values.as<double>() + batch.samples(),
              0.0);
  if (batch.token_types.data == nullptr) return;
  std::fill(batch.token_types.as<int32_t>() + begin, batch.token_types.as<int32_t>() + end, 0);
  for (int64_t b = from; b < batch.samples(); ++b) {
    batch.lengths.as<int32_t>()[b] = 1;
    batch.pair_labels.as<int32_t>()[b] = 0;
    batch.answer_begin.as<int32_t>()[b] = batch.answer_end.as<int32_t>()[b] = 0;
    batch.pair_weight.as<float>()[b] = 0.0F;
  }
}

}  // namespace

void read_padded(const DataSource& source, Batch& batch, int64_t first_sample, int64_t end) {
  const int64_t real = std::clamp<int64_t>(end - first_sample, 0, batch.samples());
  mark(batch, real);
  if (real == batch.samples()) return source.read(batch, first_sample);
  if (batch.arrays.data != nullptr)
    bad_input(
        "{} of the {} samples from {} on do not exist, and batches of a model from a file cannot be filled up: the number "
        "of samples must be a multiple of the global batch size",
        batch.samples() - real, batch.samples(), first_sample);
  if (real > 0) {
    Batch part = first_samples(batch, real);
    source.read(part, first_sample);
  }
  batch.first_sample = first_sample;
  pad(batch, real);
}

}  // namespace trifold
