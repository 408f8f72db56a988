// Seconds of one micro-batch in each kind of block of a language model, on one rank: the common input of the simulator
// and of the closed form (step_time.h). The work of a block is recorded by walking its layers (models/model_walk.h),
// adjusted to another program where `Software` describes one, and priced with a device's figures.
#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include "config/fields/config.h"
#include "core/memo.h"
#include "layout/run_spec.h"
#include "models/model_walk.h"
#include "ops/counting.h"
#include "plan/forecast/hardware.h"
#include "plan/forecast/software.h"
#include "plan/forecast/work_cost.h"

namespace trifold {

// Seconds of one micro-batch by part: forward, gradient of the input (with recomputation), gradient of the weights. If
// backward is one call, `weight` is the time of its weight-gradient products and `input` the rest.
struct PartSeconds {
  double forward = 0;
  double input = 0;
  double weight = 0;

  double backward() const { return input + weight; }
  double all() const { return forward + input + weight; }
};

// Elements of weights on one rank. Experts are counted separately because the ranks that hold the same experts
// and sum their gradients are not the ranks that hold the same dense weights.
struct HeldWeights {
  double dense = 0;
  double experts = 0;
  double all() const { return dense + experts; }
};

// `compute` excludes collectives. `tensor` and `context` are the parts of the collectives over these axes that do not
// overlap with computation; `context_hidden` is the part over the context axis that does.
struct BlockCost {
  PartSeconds compute;
  PartSeconds tensor;
  PartSeconds context, context_hidden;
  // The part of `tensor` that the other half of a pair can hide: exchanges of experts' rows in a single round, less the
  // time by which they slow down the overlapping computation.
  PartSeconds rows = {};
  HeldWeights weights = {};  // held: elements, or as many as take the bytes of quantized ones
  HeldWeights trained = {};  // weights that have gradients
  PartSeconds all() const;
  BlockCost times(double factor) const;
  BlockCost forward_only() const;  // if no backward reads its activations
};

// `layers` has an entry for each kind of layer (config/fields/layer_kinds.h); `head` is the whole head, of whose weights
// `tied` elements belong to the embedding too.
struct BlockCosts {
  BlockCost embedding, head;
  std::vector<BlockCost> layers;
  double tied = 0;
  double tied_trained = 0;  // tied, if they are trained
  // The weights of a head on the rank of the embedding, and the trained ones.
  HeldWeights head_at_embedding() const { return {head.weights.dense - tied, head.weights.experts}; }
  HeldWeights trained_at_embedding() const {
    return {head.trained.dense - tied_trained, head.trained.experts};
  }
};

// A cache of the costs of one model's blocks on any layout. Each block is walked once for all layouts that agree on it.
// Thread-safe.
class CostsOfModel {
 public:
  // `load`: rows of the busiest of the ranks that share experts, relative to the mean.
  CostsOfModel(Hardware hardware, const Software& software, double load = 1)
      : hardware_(std::move(hardware)), software_(software), load_(load) {}

  // `run` must be resolved except for options that do not affect blocks. `split`: backward is I and W.
  const BlockCosts& of(const RunSpec& run, bool split);

 private:
  // Numbers of tensor, context, expert and expert tensor ranks and of parts of the head; exchange and dispatch;
  // micro-batch, sequence parallelism, recomputation.
  using Key = std::tuple<int, int, int, int, int, ContextExchange, TokenDispatcher, int64_t, bool,
                         RecomputeGranularity>;
  // Costs with backward as one call and split into I and W: one walk gives both.
  struct BothCosts {
    BlockCosts whole, split;
  };

  Hardware hardware_;
  Software software_;
  double load_;
  Memo<Key, BothCosts> costs_;
};

}  // namespace trifold
