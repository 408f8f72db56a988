// over_runs: the loop over a box of strided views.
#pragma once

#include "core/hd.h"
#include "ops/kernels.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// The distance of element `index` of the walk from element 0, in one of the tensors.
template <int Tensors>
[[gnu::always_inline]] HD inline int64_t distance_of(const StridedWalk<Tensors>& walk, int tensor,
                                                     int64_t index) {
  int64_t distance = 0;
  for (int axis = walk.rank - 1; axis > 0; --axis) {
    const int64_t above = index / walk.extents[axis];
    distance += (index - above * walk.extents[axis]) * walk.strides[tensor][axis];
    index = above;
  }
  return distance + index * walk.strides[tensor][0];
}

// Calls body(first, at, n) for the runs along the last axis that make up indices [begin, end): `first` is the first
// index of the run minus `begin`, `at` its distance from element 0 in each tensor, and n its length.
template <int Tensors, class Body>
[[gnu::always_inline]] inline void over_runs(const StridedWalk<Tensors>& walk, int64_t begin, int64_t end,
                                             Body body) {
  if (begin >= end) return;  // an extent may be 0
  const int last = walk.rank - 1;
  int64_t index[kWalkAxes];
  int64_t at[Tensors];
  int64_t rest = begin;
  for (int axis = last; axis >= 0; --axis) {
    index[axis] = axis > 0 ? rest % walk.extents[axis] : rest;
    rest = axis > 0 ? rest / walk.extents[axis] : 0;
  }
  for (int t = 0; t < Tensors; ++t) {
    at[t] = 0;
    for (int axis = 0; axis <= last; ++axis) at[t] += index[axis] * walk.strides[t][axis];
  }
  for (int64_t i = begin; i < end;) {
    const int64_t left = walk.extents[last] - index[last];
    const int64_t n = left < end - i ? left : end - i;
    body(i - begin, at, n);
    i += n;
    index[last] += n;
    for (int t = 0; t < Tensors; ++t) at[t] += n * walk.strides[t][last];
    for (int axis = last; axis > 0 && index[axis] == walk.extents[axis]; --axis) {
      index[axis] = 0;
      ++index[axis - 1];
      for (int t = 0; t < Tensors; ++t)
        at[t] += walk.strides[t][axis - 1] - walk.extents[axis] * walk.strides[t][axis];
    }
  }
}

}  // namespace
}  // namespace trifold::cpu
