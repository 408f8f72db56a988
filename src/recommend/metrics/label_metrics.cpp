#include "recommend/metrics/label_metrics.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace trifold {

std::optional<double> mean_auc(const std::vector<LabelScores>& labels) {
  double sum = 0;
  for (const LabelScores& label : labels) {
    if (!label.scores.auc) return std::nullopt;
    sum += *label.scores.auc;
  }
  return labels.size() == 1 ? labels[0].scores.auc : sum / static_cast<double>(labels.size());
}

Tensor HostColumn::of(const Tensor& matrix, int64_t columns, int64_t column) {
  if (columns == 1) return matrix.flat();
  const int64_t rows = matrix.elements() / columns;
  const size_t size = size_of(matrix.dtype);
  const size_t bytes = static_cast<size_t>(rows) * size;
  if (copy_.bytes() < bytes) copy_ = Buffer(bytes);
  const auto* from = static_cast<const std::byte*>(matrix.data) + static_cast<size_t>(column) * size;
  auto* to = copy_.data();
  for (int64_t r = 0; r < rows; ++r, from += static_cast<size_t>(columns) * size, to += size)
    std::memcpy(to, from, size);
  return copy_.tensor(matrix.dtype, {rows});
}

LabelColumns LabelReader::of(const Recommender::Scored& scored, int64_t labels, int64_t label) {
  return {logits_.of(scored.logits, labels, label), labels_.of(scored.batch->labels, labels, label),
          weights_.of(scored.batch->weights, labels, label)};
}

LabelMetrics::LabelMetrics(const ClickSchema& schema)
    : names_(schema.labels),
      metrics_(static_cast<size_t>(schema.label_count()), ClickMetrics(schema.sample_weights)) {}

void LabelMetrics::add(const Recommender::Scored& scored) {
  for (size_t l = 0; l < metrics_.size(); ++l) {
    const LabelColumns columns = reader_.of(scored, std::ssize(metrics_), static_cast<int64_t>(l));
    metrics_[l].add(columns.logits, columns.labels, columns.weights, scored.batch->first_sample,
                    scored.batch->sample_weights);
  }
}

std::vector<LabelScores> LabelMetrics::finish(Communicator& ranks, Stream& stream) {
  std::vector<LabelScores> scores;
  for (size_t l = 0; l < metrics_.size(); ++l)
    scores.push_back({names_.empty() ? std::string() : names_[l], metrics_[l].finish(ranks, stream)});
  return scores;
}

}  // namespace trifold
