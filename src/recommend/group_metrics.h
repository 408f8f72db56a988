// GroupMetrics: how well predictions rank the samples of each group, such as a user's, exactly.
//
//   GAUC           the mean of the groups' AUC (recommend/click_metrics.h), each weighted by its number of samples,
//                  over the groups that have clicked and unclicked samples (Zhou et al., "Deep interest network
//                  for click-through rate prediction", KDD 2018)
//   NDCG@k         the mean, over the groups that have a click, of DCG@k / that of the best order, where
//                  DCG@k = sum of y / log2(1 + place) over places 1 ... k by descending score (Järvelin &
//                  Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002)
//   hit rate@k     the share of these groups that have a click in the first k places
//
// Samples with equal scores are in no order: NDCG@k and hit rate@k are the mean over all orders that they could
// have (McSherry & Najork, "Computing information retrieval performance measures efficiently in the presence of
// tied scores", ECIR 2008). A group of fewer than k samples counts with those it has.
//
// The results are the same to the last bit however the samples are divided among ranks and batches: every group
// is brought to one rank, its samples are counted in whole numbers, and the means are made without rounding
// (core/exact_sum.h).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/tensor.h"

namespace trifold {

// Of the first k places.
struct TopScores {
  int64_t k = 0;
  std::optional<double> ndcg;      // needs a group with a click
  std::optional<double> hit_rate;  // the same
};

struct GroupScores {
  std::optional<double> gauc;  // needs a group with samples of both labels
  int64_t groups = 0;          // with samples of both labels
  int64_t samples = 0;         // in these groups
  int64_t clicked_groups = 0;  // with a click
  std::vector<TopScores> top;  // one for each k asked for, in that order
};

class GroupMetrics {
 public:
  // `places`: the k of NDCG@k and hit rate@k, each 1 or more; may be empty.
  explicit GroupMetrics(std::vector<int64_t> places = {}) : places_(std::move(places)) {}

  // Takes in a batch, as ClickMetrics::add does; the group of a sample is the first id of its bag, of which
  // `lengths` (i32, of each sample) and `ids` (i32, one bag after the other) hold all. Samples with an empty
  // bag belong to no group and are skipped. Keeps 8 bytes a sample.
  void add(const Tensor& logits, const Tensor& labels, const Tensor& weights, const Tensor& lengths,
           const Tensor& ids);

  // The scores of what all ranks took in since the last call, the same on every rank. Collective; forgets the
  // samples.
  GroupScores finish(Communicator& ranks, Stream& stream);

 private:
  std::vector<int64_t> places_;
  std::vector<int64_t> samples_;  // from the highest bit: group, bits of the logit in its order, label
};

}  // namespace trifold
