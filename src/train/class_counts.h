// The labels that a model predicts in an evaluation, counted by its cross entropies (nn/class_reports.h): one object for
// each rank.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/executor.h"
#include "run/metrics.h"
#include "train/replica.h"

namespace trifold {

class ClassCounts {
 public:
  // Also counts labels among the `top_k` likeliest classes.
  ClassCounts(Replica& replica, int64_t top_k);

  // Whether the model has cross entropies that count.
  bool any() const { return !shares_.empty(); }
  // Sets what the blocks read.
  void write(BatchValues& values) const;
  // Adds the counters of a micro-batch, which has been computed.
  void add(Tensor counters);
  // Sums over all ranks, after the last micro-batch. Collective.
  void gather();
  const std::vector<ClassShare>& shares() const { return shares_; }

 private:
  Replica& replica_;
  int64_t top_k_;
  std::vector<CounterId> counters_;
  std::vector<ClassShare> shares_;
};

}  // namespace trifold
