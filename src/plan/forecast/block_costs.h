// Seconds of one micro-batch in each kind of block of a language model, on one rank: the common input of the simulator
// and the closed form (step_time.h). What a block does is walked (models/model_walk.h); a device's figures price it, and
// what is known of another program rewrites it (`Software`).
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

// Seconds of a micro-batch's three parts: forward, gradient of the input (with recomputation), gradient of the weights.
// Of a backward in one call, the last is the part that is products of weight gradients.
struct PartSeconds {
  double forward = 0;
  double input = 0;
  double weight = 0;

  double backward() const { return input + weight; }
  double all() const { return forward + input + weight; }
};

// Weights on one rank. Those of experts are also held, and their gradients summed, by other ranks than the rest.
struct HeldWeights {
  double dense = 0;
  double experts = 0;
  double all() const { return dense + experts; }
};

// `compute` is without collectives; `tensor` and `context` are the parts of the collectives over these axes that do not
// overlap with computation, `context_hidden` the part of the latter that does.
struct BlockCost {
  PartSeconds compute;
  PartSeconds tensor;
  PartSeconds context, context_hidden;
  // The part of `tensor` that the other half of a pair can hide: rows of experts that travel once and in one round,
  // less the time by which they would slow down the computation next to them.
  PartSeconds rows = {};
  HeldWeights weights = {};
  PartSeconds all() const;
  BlockCost times(double factor) const;
};

// `plain_layer` is a layer without experts, where others have some; otherwise the same as `layer`. `head` has all of its
// parts.
struct BlockCosts {
  BlockCost embedding, layer, head, plain_layer;
};

// The costs of one model's blocks on any layout: blocks that layouts have in common are walked once. Thread-safe.
class CostsOfModel {
 public:
  // `load`: rows of the busiest rank of those that share experts, over the mean.
  CostsOfModel(Hardware hardware, const Software& software, double load = 1)
      : hardware_(std::move(hardware)), software_(software), load_(load) {}

  // `run` must be resolved except for options that do not affect blocks. `split`: backward is I and W.
  const BlockCosts& of(const RunSpec& run, bool split);

 private:
  // Tensor, context, expert and expert tensor ranks, parts of the head; exchange and dispatch; micro-batch, sequence
  // parallel, recomputation.
  using Key = std::tuple<int, int, int, int, int, ContextExchange, TokenDispatcher, int64_t, bool,
                         RecomputeGranularity>;
  // With a backward in one call, and split: a walk gives both.
  struct BothCosts {
    BlockCosts whole, split;
  };

  Hardware hardware_;
  Software software_;
  double load_;
  Memo<Key, BothCosts> costs_;
};

// The operations that a device computes in one kernel in a program, and its prices for single pieces of work, for which
// both must outlive the result.
FusedOps fused_ops(const Hardware& hardware, const Software& software, const RunSpec& run);
std::unique_ptr<WorkPrices> device_prices(const Hardware& hardware, const Software& software,
                                          const RunSpec& run);

}  // namespace trifold
