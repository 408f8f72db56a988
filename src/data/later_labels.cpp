#include "data/later_labels.h"

namespace trifold {

LaterLabels::LaterLabels(const DataSource& source, int count) : source_(source), count_(count) {
  check(count >= 1 && count <= kMostLaterLabels, "{} later labels: from 1 to {} are possible", count,
        kMostLaterLabels);
}

void LaterLabels::read(Batch& batch, int64_t first_sample) const {
  source_.read(batch, first_sample);
  const int64_t length = batch.seq_length();
  const auto* labels = batch.labels.as<int32_t>();
  const auto* weights = batch.loss_weight.as<float>();
  const int32_t* begins = batch.document_begin.data != nullptr ? batch.document_begin.as<int32_t>() : nullptr;
  for (int later = 1; later <= count_; ++later) {
    auto* const their_labels = batch.later_labels[static_cast<size_t>(later) - 1].as<int32_t>();
    auto* const their_weights = batch.later_weights[static_cast<size_t>(later) - 1].as<float>();
    for (int64_t row = 0; row < batch.samples() * length; ++row) {
      const int64_t from = row + later;
      const bool exists = row % length + later < length;
      const bool counts = exists && (begins == nullptr || begins[from] == begins[row]);
      their_labels[row] = exists ? labels[from] : 0;
      their_weights[row] = counts ? weights[from] : 0.0F;
    }
  }
}

}  // namespace trifold
