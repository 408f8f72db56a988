// ParamNorm: the norm of all parameters of the model, each element counted once, with the same bits for every cut into
// stages and slices. Of 16-bit weights it is the norm of their masters.
#pragma once

#include "data_parallel/shared_sums.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

class ParamNorm {
 public:
  // References must outlive the object.
  ParamNorm(const FlatLayout& layout, const GradientBuffer& grads, const ShardedOptimizer& optimizer,
            const Mesh& mesh, const OpTable& ops);

  // The norm of the current weights. Waits for updates enqueued on `stream`. Collective over the mesh's world.
  double measure(Stream& stream);

 private:
  const ShardedOptimizer& optimizer_;
  const Mesh& mesh_;
  ChunkedSquares chunks_;
  SharedSums sums_;
};

}  // namespace trifold
