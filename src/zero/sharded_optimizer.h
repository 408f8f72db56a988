// ShardedOptimizer: moments and update of the slices this rank owns; with ZeRO stage 0 that is everything it
// holds. Weights are their own master copy (f32 or f64).
#pragma once

#include <span>
#include <vector>

#include "config/config.h"
#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

class ShardedOptimizer {
 public:
  // References must outlive the optimizer. Moments start at zero.
  ShardedOptimizer(const ParamList& params, const GradSink& grads, const OpTable& ops,
                   const OptimizerConfig& config, DType dtype);

  // One AdamW update of `weights`, in place. `step` counts updates from 1; the gradient is multiplied by
  // `grad_scale` first.
  void step(const ParamSource& weights, int64_t step, double lr, double grad_scale, Stream& stream);

  // First and second moment of a parameter, shaped like it: for checkpoints.
  Tensor first_moment(ParamId id) const { return first_[static_cast<size_t>(id.index)]; }
  Tensor second_moment(ParamId id) const { return second_[static_cast<size_t>(id.index)]; }
  size_t bytes() const { return buffer_.bytes(); }

 private:
  const ParamList& params_;
  const GradSink& grads_;
  const OpTable& ops_;
  OptimizerConfig config_;
  Buffer buffer_;
  std::vector<Tensor> first_, second_;
};

}  // namespace trifold
