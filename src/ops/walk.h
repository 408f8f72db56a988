// Walks: boxes of strided views (ops/strided.h) in the form that kernels take (StridedWalk), for the launchers of all
// back ends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/kernels.h"
#include "ops/strided.h"

namespace trifold::cpu {

static_assert(kWalkAxes == kMostAxes);

// The axes of a box that a walk keeps.
using AxisChoice = std::array<bool, kMostAxes>;
constexpr AxisChoice kAllAxes{true, true, true, true, true, true};

// Whether the order of the walk is that of the box, or free: then axes along which tensor 0 has larger strides come
// first, so that its elements follow each other in memory.
enum class WalkOrder : uint8_t { Box, Free };

// The walk over the chosen axes of the box. Axes of extent 1 are left out and neighbours joined if every tensor allows
// it.
StridedWalk<1> walk_of(const Box& box, const AxisChoice& axes, WalkOrder order, const StridedView& view);
StridedWalk<2> walk_of(const Box& box, const AxisChoice& axes, WalkOrder order, const StridedView& first,
                       const StridedView& second);

// The number of elements of a walk.
template <int Tensors>
int64_t elements_of(const StridedWalk<Tensors>& walk) {
  int64_t count = 1;
  for (int axis = 0; axis < walk.rank; ++axis) count *= walk.extents[axis];
  return count;
}

// A walk over a part of a box, whose first elements are `begin` elements after the first elements of the box.
struct WalkPart {
  StridedWalk<2> walk;
  std::array<int64_t, 2> begin{};
};
// Parts that together are the box; some may be empty.
struct WalkParts {
  std::array<WalkPart, 3> parts;
  std::size_t count = 0;
  const WalkPart* begin() const { return parts.data(); }
  const WalkPart* end() const { return parts.data() + count; }
};
// The walks of a copy on a CPU. Neighbours in y may be far apart in x, while neighbours along another axis are close:
// then all elements of a few cache lines are copied, square by square, before others are read.
WalkParts copy_walks(const Box& box, const StridedView& to, const StridedView& from);

// The two walks of strided_sum: the first over the elements of y, with the strides of y and x; the second over the terms
// of a sum, with the strides of x.
struct SumWalks {
  StridedWalk<2> kept;
  StridedWalk<1> summed;
};
SumWalks sum_walks(const Box& box, const StridedView& to, const StridedView& from);

}  // namespace trifold::cpu
