#include "optim/weight_decay.h"

#include <cmath>
#include <numbers>

namespace trifold {

bool weight_decay_changes(const OptimizerConfig& config) {
  return config.weight_decay_incr_style != WeightDecayStyle::Constant;
}

double weight_decay_after(const OptimizerConfig& config, int64_t samples, int64_t all) {
  if (!weight_decay_changes(config)) return config.weight_decay;
  const double start = config.start_weight_decay.value_or(config.weight_decay);
  const double end = config.end_weight_decay.value_or(config.weight_decay);
  if (samples > all) return end;
  const double r = all == 0 ? 1 : static_cast<double>(samples) / static_cast<double>(all);
  const double share = config.weight_decay_incr_style == WeightDecayStyle::Linear
                           ? r
                           : 0.5 * (std::cos(std::numbers::pi * (1 - r)) + 1);
  return start + share * (end - start);
}

}  // namespace trifold
