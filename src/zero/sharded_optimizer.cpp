#include "zero/sharded_optimizer.h"

#include "zero/flat_layout.h"

namespace trifold {

ShardedOptimizer::ShardedOptimizer(const ParamList& params, const GradSink& grads, const OpTable& ops,
                                   const OptimizerConfig& config, DType dtype)
    : params_(params), grads_(grads), ops_(ops), config_(config) {
  // The other rules come with sharded states; until then they must not run as AdamW.
  if (config.optimizer != "adam")
    bad_input("--optimizer {} is not available yet: give --optimizer adam", config.optimizer);
  const FlatLayout layout(params);
  buffer_ = Buffer(2 * static_cast<size_t>(layout.elements()) * size_of(dtype));
  const Tensor both = buffer_.tensor(dtype, {2 * layout.elements()});
  first_ = layout.views(both.rows(0, layout.elements()));
  second_ = layout.views(both.rows(layout.elements(), 2 * layout.elements()));
}

void ShardedOptimizer::step(const ParamSource& weights, int64_t step, double lr, double grad_scale,
                            Stream& stream) {
  AdamW rule{lr, config_.adam_beta1, config_.adam_beta2, config_.adam_eps, 0, step, grad_scale};
  for (int i = 0; i < params_.size(); ++i) {
    const ParamSpec& spec = params_[{i}];
    if (!params_.stored({i})) continue;
    rule.weight_decay = spec.decay ? config_.weight_decay : 0;
    ops_.adamw(stream, weights.weight({i}), Tensor{}, first_moment({i}), second_moment({i}), grads_.grad({i}),
               rule);
  }
}

}  // namespace trifold
