// GradNorm: the global gradient norm, which counts every element of the model once. Squares are summed in chunks of
// kGrain elements of a parameter, and the chunks' sums are added without rounding (core/exact_sum.h), so the norm has
// the same bits for every cut into stages and slices.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "data_parallel/gradient_buffer.h"
#include "data_parallel/shared_sums.h"

namespace trifold {

// The segments of a unit that are summed on this rank and counted by it, so that all ranks together count every element
// of the model once; none in a unit of copies.
std::vector<FlatLayout::Segment> counted_segments(const FlatLayout& layout, const FlatLayout::Unit& unit,
                                                  const GradientBuffer& grads, const Mesh& mesh);

class GradNorm {
 public:
  // The norm over all parameters, or over the parameters of one block of the model. References must outlive the object.
  GradNorm(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh, const OpTable& ops,
           std::optional<int> block = {});

  // Adds the squares of the gradients that this rank counts, which must be reduced. Waits for the result.
  void add_squares(ExactSum& squares, Stream& stream);
  // The square roots of `squares` summed over all ranks, valid until the next call. Collective over the mesh's world.
  std::span<double> norms(std::span<ExactSum> squares, Stream& stream);

 private:
  const GradientBuffer& grads_;
  const Mesh& mesh_;
  std::vector<FlatLayout::Segment> counted_;
  ChunkedSquares chunks_;
  SharedSums sums_;
};

// The factor that scales a gradient of norm `norm` down to `limit` (Megatron-LM's rule: limit / (norm + 1e-6)); 1 if
// the norm is below the limit or the limit is 0.
double clip_factor(double norm, double limit);

}  // namespace trifold
