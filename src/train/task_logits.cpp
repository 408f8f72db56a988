#include "train/task_logits.h"

#include <algorithm>

#include "models/bert_tasks.h"
#include "ops/host_copy.h"

namespace trifold {

int64_t logits_of_sample(const ModelConfig& model) {
  return model.bert_head == HeadKind::Classes ? static_cast<int64_t>(model.class_names.size())
                                              : 2 * model.seq_length;
}

TaskLogits::TaskLogits(Replica& replica, const ModelConfig& model, int64_t samples)
    : replica_(replica),
      width_(logits_of_sample(model)),
      seq_length_(model.seq_length),
      samples_(samples),
      logits_(static_cast<size_t>(samples * width_), 0.0) {}

void TaskLogits::begin(const Action&, int, const Batch& batch, const ParamSource&, Stream&) {
  batch_ = &batch;
}
void TaskLogits::end(Stream&) { batch_ = nullptr; }
void TaskLogits::after(const Action&) {}

// Each logit is kept by one rank, the first of the tensor and context ranks that have it; with sequence parallelism
// class logits are kept by the rank with the sample's first row.
void TaskLogits::see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) {
  if (replica_.mesh().coord(Axis::Cp) != 0) return;
  const bool first_rank = replica_.mesh().coord(Axis::Tp) == 0;
  const ShownResult shown{layer, what};
  if (shown == kClassLogits) {
    const int parts = replica_.model().row_parts;
    if (parts == 1 && !first_rank) return;
    const int64_t length = batch_->seq_length();  // positions on this rank
    const int64_t rows = batch_->samples() * length / parts;
    const int part = parts == 1 ? 0 : replica_.mesh().coord(Axis::Tp);
    keep(tensor, batch_->first_sample + samples_of_rows(length, part * rows, rows).first, 0, stream);
  } else if (first_rank) {
    if (shown == kAnswerBegin) keep(tensor, batch_->first_sample, 0, stream);
    if (shown == kAnswerEnd) keep(tensor, batch_->first_sample, seq_length_, stream);
  }
}

void TaskLogits::keep(Tensor tensor, int64_t first, int64_t at, Stream& stream) {
  const HostCopy copy(replica_.ops(), stream, tensor);
  const int64_t columns = tensor.last_dim();
  const int64_t rows = std::clamp<int64_t>(samples_ - first, 0, tensor.row_count());  // the rest is padding
  dispatch_float(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t row = 0; row < rows; ++row)
      std::transform(copy.tensor().as<T>() + row * columns, copy.tensor().as<T>() + (row + 1) * columns,
                     logits_.begin() + (first + row) * width_ + at,
                     [](T value) { return static_cast<double>(value); });
  });
}

const std::vector<double>& TaskLogits::gather() {
  Stream host = replica_.compute().host();
  replica_.world().all_reduce({logits_.data(), DType::F64, {samples_ * width_}}, Reduce::Sum, host);
  return logits_;
}

}  // namespace trifold
