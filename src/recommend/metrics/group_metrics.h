// GroupMetrics computes exact ranking metrics within groups of samples, for example all samples of a user.
//
//   GAUC           the mean of the groups' AUC (recommend/metrics/click_metrics.h), weighted by their numbers of
//                  samples, over the groups that have clicked and unclicked samples (Zhou et al., "Deep interest
//                  network for click-through rate prediction", KDD 2018)
//   NDCG@k the mean, over the groups that have a click, of DCG@k / that of the best order, where DCG@k = sum of y /
//                  log2(1 + place) over places 1 ... k by descending score (Järvelin & Kekäläinen, "Cumulated
//                  gain-based evaluation of IR techniques", TOIS 2002)
//   hit rate@k     the share of these groups that have a click in the first k places
//
// Samples with equal scores are unordered: NDCG@k and hit rate@k are means over all their possible orders (McSherry &
// Najork, "Computing information retrieval performance measures efficiently in the presence of tied scores", ECIR
// 2008). A group of fewer than k samples counts with all of them.
//
// The results are bit-identical however samples are distributed over ranks and batches: every group is gathered on one
// rank, its samples are counted as integers, and means are computed without rounding (core/exact_sum.h).
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/tensor.h"

namespace trifold {

// Metrics of the first k places.
struct TopScores {
  int64_t k = 0;
  std::optional<double> ndcg;      // needs a group with a click
  std::optional<double> hit_rate;  // needs a group with a click
};

struct GroupScores {
  std::optional<double> gauc;  // needs a group with samples of both labels
  int64_t groups = 0;          // groups with samples of both labels
  int64_t samples = 0;         // in these groups
  int64_t clicked_groups = 0;  // groups with a click
  std::vector<TopScores> top;  // one for each requested k, in that order
};

class GroupMetrics {
 public:
  struct Sample {
    uint64_t group;
    uint64_t score;  // bits of the logit in its order, then the label
    auto operator<=>(const Sample&) const = default;
  };

  // `places`: the k of NDCG@k and hit rate@k, each 1 or more; may be empty.
  explicit GroupMetrics(std::vector<int64_t> places = {}) : places_(std::move(places)) {}

  // Adds a batch, as ClickMetrics::add does, with a group for each sample. Samples of kNoGroup are skipped. Keeps 16
  // bytes per sample.
  static constexpr uint64_t kNoGroup = 0;
  void add(const Tensor& logits, const Tensor& labels, const Tensor& weights,
           std::span<const uint64_t> groups);

  // The scores of the samples that all ranks added since the last call, the same on every rank. Clears the samples.
  // Collective.
  GroupScores finish(Communicator& ranks, Stream& stream);

 private:
  std::vector<int64_t> places_;
  std::vector<Sample> samples_;
};

}  // namespace trifold
