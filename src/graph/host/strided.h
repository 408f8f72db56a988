// Reading and writing parts of arrays by strides: what views, broadcasting and joins are made of.
//
// A stride is the distance, in elements, between neighbours of a dim; 0 repeats an element. Dims that lie in memory one
// after the other are walked as one, so that most walks are few long runs.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/host/array.h"

namespace trifold::graph {

using Dims = std::vector<int64_t>;

Dims row_major_strides(std::span<const int64_t> dims);
// The shape of an operation on arrays of these shapes: extents of 1 are repeated. BadInput if they do not fit.
Dims broadcast_dims(std::span<const int64_t> a, std::span<const int64_t> b);
// The strides that read an array of shape `from` as one of shape `to`. BadInput if `from` cannot be repeated to `to`.
Dims broadcast_strides(std::span<const int64_t> from, std::span<const int64_t> to);
// A dim that may be counted from the end, from 0 on. BadInput if an array of `rank` dims has no such dim; an array
// without dims may be treated as one of one dim.
size_t wrapped_dim(int64_t dim, size_t rank);

// The walk over an index space: dims without extents of 1, and those merged that all strides permit to merge.
template <size_t N>
struct Walk {
  Dims dims;
  std::array<Dims, N> strides;

  Walk(std::span<const int64_t> all_dims, const std::array<Dims, N>& all_strides) {
    for (size_t d = 0; d < all_dims.size(); ++d) {
      if (all_dims[d] == 1) continue;
      bool merges = !dims.empty();
      for (size_t k = 0; k < N && merges; ++k) merges = strides[k].back() == all_strides[k][d] * all_dims[d];
      if (merges)
        dims.back() *= all_dims[d];
      else
        dims.push_back(all_dims[d]);
      for (size_t k = 0; k < N; ++k) {
        if (merges)
          strides[k].back() = all_strides[k][d];
        else
          strides[k].push_back(all_strides[k][d]);
      }
    }
  }
};

// Calls body(at, count, step) for each run along the last dim of the walk, in row-major order: `at[k]` is the offset of
// the run's first element in array k, `step[k]` the stride within the run.
template <size_t N, class Body>
void each_run(std::span<const int64_t> dims, const std::array<Dims, N>& strides, Body&& body) {
  const Walk<N> walk(dims, strides);
  std::array<int64_t, N> at{}, step{};
  for (const int64_t extent : dims)
    if (extent == 0) return;
  if (walk.dims.empty()) return body(at, int64_t{1}, step);
  const size_t last = walk.dims.size() - 1;
  for (size_t k = 0; k < N; ++k) step[k] = walk.strides[k][last];
  Dims index(last);
  while (true) {
    body(at, walk.dims[last], step);
    size_t d = last;
    while (d > 0) {
      --d;
      for (size_t k = 0; k < N; ++k) at[k] += walk.strides[k][d];
      if (++index[d] < walk.dims[d]) break;
      for (size_t k = 0; k < N; ++k) at[k] -= walk.strides[k][d] * walk.dims[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (last == 0) return;
  }
}

// Copies elements of one type between two places of these dims; offsets are in elements.
void copy_strided(const Dims& dims, Array& to, int64_t to_offset, const Dims& to_strides, const Array& from,
                  int64_t from_offset, const Dims& from_strides);

// A new array of these dims, read from `from` by strides.
Array gathered(const Array& from, const Dims& dims, int64_t offset, const Dims& strides);
Array broadcast_to(const Array& from, const Dims& dims);
// Dim d of the result is dim order[d] of `from`.
Array permuted(const Array& from, const std::vector<size_t>& order);
// `count` indices of a dim, from `start` on, each `step` after the one before; all must exist.
Array sliced(const Array& from, size_t dim, int64_t start, int64_t count, int64_t step = 1);
// Arrays of one type and shape, except for `dim`. BadInput if their shapes differ; empty arrays of one dim are left
// out, as in PyTorch.
Array concatenated(std::vector<const Array*> parts, size_t dim);

}  // namespace trifold::graph
