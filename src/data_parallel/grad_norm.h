// Global gradient norm: every element of the model once, whatever the mesh. Squares are summed in chunks of
// kGrain elements of a parameter, and the chunks' sums are added without any rounding (core/exact_sum.h). So
// the norm has the same bits however blocks are placed on stages and gradients are sliced over data-parallel
// ranks.
#pragma once

#include <span>
#include <vector>

#include "core/exact_sum.h"
#include "data_parallel/gradient_buffer.h"

namespace trifold {

class GradNorm {
 public:
  // References must outlive the object.
  GradNorm(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh, const OpTable& ops);

  // Adds the squares of the gradients that this rank counts, which must be reduced already. Waits for them.
  void add_squares(ExactSum& squares, Stream& stream);
  // The norms of such sums over all ranks, until the next call. Collective over the mesh's world.
  std::span<double> norms(std::span<ExactSum> squares, Stream& stream);

 private:
  const GradientBuffer& grads_;
  const Mesh& mesh_;
  const OpTable& ops_;
  std::vector<FlatLayout::Segment> counted_;
  Buffer partials_;  // f64, one for each chunk
  Buffer sum_;       // of the partials, exact; the host reads it
  std::vector<int64_t> limbs_;
  std::vector<double> norms_;
};

// Factor that brings a gradient of norm `norm` down to `limit`; 1 when it is below or when limit is 0
// (Megatron-LM's rule: limit / (norm + 1e-6)).
double clip_factor(double norm, double limit);

}  // namespace trifold
