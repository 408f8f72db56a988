#include "models/model.h"

namespace trifold {

double Model::train_flops_per_sample() const {
  double flops = 0;
  for (const Block& block : blocks) flops += 3 * block.flops;
  return flops;
}

}  // namespace trifold
