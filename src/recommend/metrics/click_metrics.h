// ClickMetrics computes exact metrics of click predictions over all samples of all ranks.
//
// For samples with label y in {0, 1}, logit z and p = sigmoid(z):
//
//   AUC                  (pairs of a clicked and an unclicked sample with z higher for the clicked one
//                        + half of the pairs with equal z) / all such pairs
//   log loss             mean of -y ln p - (1 - y) ln(1 - p), natural logarithm
//   normalised entropy   log loss / entropy of the share of clicks, -r ln r - (1 - r) ln(1 - r): 1 is a model
//                        that always predicts r. The base of the logarithm cancels (He et al., "Practical
//                        lessons from predicting clicks on ads at Facebook", ADKDD 2014)
//   accuracy             share of samples with (z > 0) == (y == 1)
//   calibration          sum of p / number of clicks; 1 is right on average
//
// If samples have weights, sums and means are weighted, and a pair counts the product of the weights of its two
// samples. For AUC, weights are rounded to 2^-28 of the power of two above the largest. `samples` and `clicks` still
// count samples.
//
// All metrics are bit-identical however samples are distributed over ranks and batches: pairs are counted as integers
// over exactly sorted scores, and sums are computed without rounding (core/exact_sum.h). Ranks sort their own scores; a
// histogram of the leading bits divides all scores into one range per rank, and an all-to-all sends each score to the
// rank of its range, so no rank holds more than its share. Equal scores are sent as one row of counts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "core/exact_sum.h"
#include "core/tensor.h"

namespace trifold {

struct ClickScores {
  int64_t samples = 0;
  int64_t clicks = 0;
  std::optional<double> auc;                 // needs samples of both labels
  double log_loss = 0;                       // 0 without samples
  std::optional<double> normalised_entropy;  // needs samples of both labels
  double accuracy = 0;
  std::optional<double> calibration;  // needs a click
  std::optional<double> weight;       // sum over all samples, if they have weights
};

class ClickMetrics {
 public:
  // `weighted`: samples have weights. The same on every rank.
  explicit ClickMetrics(bool weighted = false) : weighted_(weighted) {}

  // Adds a batch: logits (f32 or f64; compared as f32), labels (f32, 0 or 1) and weights (f32), one of each per sample.
  // Samples of weight 0 are skipped; all others count by `sample_weights` (f32) if they have weights, else once.
  // Failure for a logit that is not finite, naming sample `first_sample` + its index, and for other labels. Keeps 8
  // bytes per sample, 12 with weights.
  void add(const Tensor& logits, const Tensor& labels, const Tensor& weights, int64_t first_sample = 0,
           const Tensor& sample_weights = {});

  // The scores of the samples that all ranks added since the last call, the same on every rank. Clears the samples.
  // Collective.
  ClickScores finish(Communicator& ranks, Stream& stream);

 private:
  // Sums over weights.
  struct Weights {
    ExactSum all, clicks, right;
  };
  template <class T>
  void add_all(const T* logits, const Tensor& labels, const Tensor& weights, int64_t first_sample,
               const float* sample_weights);
  std::vector<uint64_t> weighed_scores(Communicator& ranks, Stream& stream);

  bool weighted_;
  std::vector<uint64_t> scores_;       // sortable bits of a logit, followed by its label
  std::vector<float> sample_weights_;  // per score, if samples have weights
  Weights weights_;
  ExactSum loss_;
  ExactSum predicted_;
  int64_t clicks_ = 0;
  int64_t right_ = 0;
};

}  // namespace trifold
