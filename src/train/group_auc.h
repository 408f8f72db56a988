// GroupAuc: how well predictions rank the samples of each group, such as a user's, exactly.
//
//   GAUC   the mean of the groups' AUC (train/click_metrics.h), each weighted by its number of samples, over
//          the groups that have clicked and unclicked samples (Zhou et al., "Deep interest network for
//          click-through rate prediction", KDD 2018)
//
// The result is the same to the last bit however the samples are divided among ranks and batches: every group
// is brought to one rank, its pairs are counted in whole numbers, and the mean is made without rounding
// (core/exact_sum.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "core/tensor.h"

namespace trifold {

struct GroupScores {
  std::optional<double> gauc;  // needs a group with samples of both labels
  int64_t groups = 0;          // with samples of both labels
  int64_t samples = 0;         // in these groups
};

class GroupAuc {
 public:
  // Takes in a batch, as ClickMetrics::add does; the group of a sample is the first id of its bag, of which
  // `lengths` (i32, of each sample) and `ids` (i32, one bag after the other) hold all. Samples with an empty
  // bag belong to no group and are skipped. Keeps 8 bytes a sample.
  void add(const Tensor& logits, const Tensor& labels, const Tensor& weights, const Tensor& lengths,
           const Tensor& ids);

  // The scores of what all ranks took in since the last call, the same on every rank. Collective; forgets the
  // samples.
  GroupScores finish(Communicator& ranks, Stream& stream);

 private:
  std::vector<int64_t> samples_;  // from the highest bit: group, bits of the logit in its order, label
};

}  // namespace trifold
