// GradZeros: how many elements of the model have a gradient of zero, each counted once, without rows that
// are padding, whose number depends on the mesh. Of a gradient that is not finite, nothing is zero.
#pragma once

#include <cstdint>
#include <vector>

#include "data_parallel/gradient_buffer.h"

namespace trifold {

class GradZeros {
 public:
  // References must outlive the object. `dtype` is the gradients' type.
  GradZeros(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh, const OpTable& ops,
            DType dtype);

  // Counts in the reduced gradients. Collective over the mesh's world.
  int64_t count(Stream& stream);

 private:
  const GradientBuffer& grads_;
  const Mesh& mesh_;
  const OpTable& ops_;
  DType dtype_;
  std::vector<FlatLayout::Segment> counted_;  // not joined, and without padding, which is zero
  Buffer marks_;                              // 1 for a zero, else 0, in a part of a segment
  Buffer total_;                              // f64 [1], read by the host
};

}  // namespace trifold
