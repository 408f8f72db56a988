// LabelMetrics computes the metrics (recommend/metrics/click_metrics.h) of each label of a recommender's predictions,
// which are columns of tensors. Samples that lack a label do not count in its metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "recommend/metrics/click_metrics.h"
#include "recommend/recommender.h"

namespace trifold {

struct LabelScores {
  std::string label;  // empty if samples have a single label
  ClickScores scores;
};

// The mean of the labels' AUCs, for uses that need a single metric; nullopt if some AUC is not defined.
std::optional<double> mean_auc(const std::vector<LabelScores>& labels);

// Returns a column of a host matrix [B, L] as a tensor [B] of the same type. It is a copy, valid until the next call,
// or the matrix itself if that has one column.
class HostColumn {
 public:
  Tensor of(const Tensor& matrix, int64_t columns, int64_t column);

 private:
  Buffer copy_;
};

// Logits, labels and weights of one label in a batch of predictions, on the host.
struct LabelColumns {
  Tensor logits, labels, weights;  // [B]
};
class LabelReader {
 public:
  LabelColumns of(const Recommender::Scored& scored, int64_t labels, int64_t label);

 private:
  HostColumn logits_, labels_, weights_;
};

class LabelMetrics {
 public:
  // `schema` gives the labels, and whether samples have weights.
  explicit LabelMetrics(const ClickSchema& schema);

  // As ClickMetrics::add and finish, for every label.
  void add(const Recommender::Scored& scored);
  std::vector<LabelScores> finish(Communicator& ranks, Stream& stream);

 private:
  std::vector<std::string> names_;
  std::vector<ClickMetrics> metrics_;
  LabelReader reader_;
};

}  // namespace trifold
