// AbsentTrainers: what the absent ranks of a transformer's run contribute to the training of one rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/absent_comm.h"
#include "layout/run_spec.h"
#include "rehearse/call_prices.h"
#include "zero/param_store.h"

namespace trifold {

// - The ranks of the last stage report the tokens of the global batch and the loss of random weights; a rank of another
//   stage would otherwise see a step without tokens, and skip its update.
// - Ranks that share experts announce rows as `expert_load` says: this rank's experts get that many times the mean of
//   each rank's rows, evenly, and other ranks' experts equal parts of the rest.
// - Copies of weights that another rank updates stay as they are.
class AbsentTrainers final : public AbsentPeers {
 public:
  // `run` must be the run's, with the batch of its first step; `coords` are this rank's. `machine`: absent, calls have no
  // price.
  AbsentTrainers(const RunSpec& run, const MeshCoords& coords, const std::optional<PlannedMachine>& machine,
                 double expert_load);
  // The weights of the rank, which must outlive the last call.
  void set_weights(const ParamStore& weights) { weights_ = &weights; }

  double seconds(const Work& call) const override { return prices_ ? prices_->seconds(call) : 0; }
  bool sum(unsigned group, int ranks, Tensor numbers) const override;
  Tensor gathered(unsigned group, int ranks, const Tensor& mine) const override;
  bool keeps(const Tensor& out) const override { return weights_ != nullptr && weights_->holds(out.data); }
  bool zeros(const Tensor& out) const override { return weights_ != nullptr && weights_->gathers(out.data); }

 private:
  void announce_rows(const RunSpec& run, const MeshCoords& coords, double load);

  std::optional<CallPrices> prices_;
  double tokens_;      // tokens of a global batch
  double first_loss_;  // loss of a token with random weights
  int data_ranks_;
  bool cut_vocabulary_;  // whether this rank has only a part of the vocabulary
  std::vector<int32_t>
      rows_;  // [ranks that share experts, experts + 1] where each expert's rows begin; empty: none share
  int64_t announced_ = 0;  // experts + 1
  const ParamStore* weights_ = nullptr;
};

}  // namespace trifold
