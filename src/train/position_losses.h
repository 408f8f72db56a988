// The mean loss at each position of the samples, which shows how much a model gains from the tokens before.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pipeline/executor.h"
#include "train/replica.h"

namespace trifold {

struct PositionLoss {
  double loss = 0;    // weighted sum of losses
  double weight = 0;  // sum of the weights of the labels at this position
};

// Collects the losses of labels while samples are computed: one object for each rank.
class PositionLosses final : public StepWatch {
 public:
  PositionLosses(Replica& replica, int64_t seq_length);

  // [position] The sums over all samples and ranks, to be called after the last sample. Collective.
  std::span<const PositionLoss> gather();

  void begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
             Stream& stream) override;
  void end(Stream& stream) override;
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override;

 private:
  Replica& replica_;
  const Batch* batch_ = nullptr;
  std::vector<PositionLoss> positions_;
};

// Lines "position,tokens,loss" with the mean of each position that has tokens.
std::string position_table(std::span<const PositionLoss> positions);

// Positions [begin, end) and the mean loss there.
struct PositionRun {
  int64_t begin = 0, end = 0;
  double loss = 0;
};
// The ranges [0, 1), [1, 2), [2, 4), [4, 8) and so on, without ranges that have no tokens.
std::vector<PositionRun> doubling_runs(std::span<const PositionLoss> positions);

}  // namespace trifold
