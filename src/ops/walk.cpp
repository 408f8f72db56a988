#include "ops/walk.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <utility>

namespace trifold::cpu {

namespace {

template <int Tensors>
using Views = std::array<const StridedView*, Tensors>;

// Whether axis `inner` continues axis `outer` in every tensor, so that both are one axis.
template <int Tensors>
bool continues(const StridedWalk<Tensors>& walk, int outer, const std::array<int64_t, Tensors>& inner,
               int64_t extent) {
  for (int t = 0; t < Tensors; ++t)
    if (walk.strides[t][outer] != extent * inner[static_cast<size_t>(t)]) return false;
  return true;
}

// Sorts axes by the sizes of their strides, largest first, and keeps the order of equal ones. Does not allocate memory, as
// std::stable_sort may.
void sort_by_stride(std::span<size_t> axes, const AxisNumbers& strides) {
  for (size_t end = 1; end < axes.size(); ++end)
    for (size_t i = end; i > 0 && std::abs(strides[axes[i - 1]]) < std::abs(strides[axes[i]]); --i)
      std::swap(axes[i - 1], axes[i]);
}

template <int Tensors>
StridedWalk<Tensors> join(const Box& box, const AxisChoice& axes, WalkOrder order,
                          const Views<Tensors>& views) {
  std::array<size_t, kMostAxes> kept{};
  size_t count = 0;
  for (size_t axis = 0; axis < static_cast<size_t>(box.rank); ++axis)
    if (axes[axis] && box.extents[axis] != 1) kept[count++] = axis;
  if (order == WalkOrder::Free) sort_by_stride(std::span(kept).first(count), views[0]->strides);

  StridedWalk<Tensors> walk{};
  for (size_t i = 0; i < count; ++i) {
    std::array<int64_t, Tensors> strides{};
    for (size_t t = 0; t < Tensors; ++t) strides[t] = views[t]->strides[kept[i]];
    const int64_t extent = box.extents[kept[i]];
    const int outer = walk.rank - 1;
    const bool joined = outer >= 0 && continues<Tensors>(walk, outer, strides, extent);
    const int at = joined ? outer : walk.rank++;
    walk.extents[at] = joined ? walk.extents[at] * extent : extent;
    for (size_t t = 0; t < Tensors; ++t) walk.strides[t][at] = strides[t];
  }
  if (walk.rank == 0) {
    walk.rank = 1;
    walk.extents[0] = 1;
  }
  return walk;
}

}  // namespace

StridedWalk<1> walk_of(const Box& box, const AxisChoice& axes, WalkOrder order, const StridedView& view) {
  return join<1>(box, axes, order, {&view});
}

StridedWalk<2> walk_of(const Box& box, const AxisChoice& axes, WalkOrder order, const StridedView& first,
                       const StridedView& second) {
  return join<2>(box, axes, order, {&first, &second});
}

namespace {

constexpr int64_t kSquare = 16;  // elements of a side: a cache line of f32

// The part of a walk with `extent` indices along an axis, from index `first` on.
WalkPart part_of(const WalkPart& whole, int axis, int64_t first, int64_t extent) {
  WalkPart part = whole;
  part.walk.extents[axis] = extent;
  for (size_t t = 0; t < 2; ++t) part.begin[t] += first * part.walk.strides[t][axis];
  return part;
}

// The walk square by square along `axis` and the last axis, whose extents are multiples of kSquare.
StridedWalk<2> in_squares(const StridedWalk<2>& walk, int axis) {
  StridedWalk<2> squares = walk;
  const int last = walk.rank - 1;
  squares.rank = walk.rank + 2;
  const auto split = [&](int from, int inner) {
    squares.extents[from] = walk.extents[from] / kSquare;
    squares.extents[inner] = kSquare;
    for (int t = 0; t < 2; ++t) {
      squares.strides[t][from] = walk.strides[t][from] * kSquare;
      squares.strides[t][inner] = walk.strides[t][from];
    }
  };
  split(axis, last + 1);
  split(last, last + 2);
  return squares;
}

}  // namespace

WalkParts copy_walks(const Box& box, const StridedView& to, const StridedView& from) {
  const WalkPart whole{walk_of(box, kAllAxes, WalkOrder::Free, to, from)};
  const StridedWalk<2>& walk = whole.walk;
  const int last = walk.rank - 1;
  int near = last;  // the axis along which elements of x are closest
  for (int axis = 0; axis <= last; ++axis)
    if (std::abs(walk.strides[1][axis]) < std::abs(walk.strides[1][near])) near = axis;
  const int64_t rows = walk.extents[near] / kSquare * kSquare;
  const int64_t columns = walk.extents[last] / kSquare * kSquare;
  if (near == last || walk.rank + 2 > kWalkAxes || rows == 0 || columns == 0) return {{whole}, 1};
  WalkPart squares = part_of(part_of(whole, near, 0, rows), last, 0, columns);
  squares.walk = in_squares(squares.walk, near);
  return {{squares, part_of(whole, near, rows, walk.extents[near] - rows),
           part_of(part_of(whole, near, 0, rows), last, columns, walk.extents[last] - columns)},
          3};
}

SumWalks sum_walks(const Box& box, const StridedView& to, const StridedView& from) {
  AxisChoice kept{}, summed{};
  for (size_t axis = 0; axis < kMostAxes; ++axis) {
    kept[axis] = to.strides[axis] != 0;
    summed[axis] = !kept[axis];
  }
  // Neighbours of x are read one after the other.
  const StridedWalk<2> by_x = walk_of(box, kept, WalkOrder::Free, from, to);
  SumWalks walks{by_x, walk_of(box, summed, WalkOrder::Free, from)};
  std::copy(by_x.strides[1], by_x.strides[1] + kWalkAxes, walks.kept.strides[0]);
  std::copy(by_x.strides[0], by_x.strides[0] + kWalkAxes, walks.kept.strides[1]);
  return walks;
}

}  // namespace trifold::cpu
