#include "data_parallel/block_norms.h"

#include <algorithm>

namespace trifold {

BlockNorms::BlockNorms(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh,
                       const OpTable& ops) {
  int count = 0;
  for (const ParamSpec& spec : layout.params().specs()) count = std::max(count, spec.block + 1);
  for (int block = 0; block < count; ++block)
    blocks_.push_back(std::make_unique<GradNorm>(layout, grads, mesh, ops, block));
  squares_.resize(blocks_.size());
}

std::span<double> BlockNorms::measure(Stream& stream) {
  std::fill(squares_.begin(), squares_.end(), ExactSum());
  for (size_t i = 0; i < blocks_.size(); ++i) blocks_[i]->add_squares(squares_[i], stream);
  return blocks_.front()->norms(squares_, stream);
}

}  // namespace trifold
