// BlockNorms: the gradient norm of every block of the model, each element counted once. Their squares add up to that of
// the global norm (data_parallel/grad_norm.h), and have the same bits for every cut into stages and slices.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "data_parallel/grad_norm.h"

namespace trifold {

class BlockNorms {
 public:
  // References must outlive the object.
  BlockNorms(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh, const OpTable& ops);

  // [block of the model] The norms of the reduced gradients, valid until the next call. A weight with two uses counts
  // in the block of the first one. Collective over the mesh's world.
  std::span<double> measure(Stream& stream);

 private:
  std::vector<std::unique_ptr<GradNorm>> blocks_;
  std::vector<ExactSum> squares_;
};

}  // namespace trifold
