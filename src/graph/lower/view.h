// View: a value of a graph as a strided part of another value's memory, so that transposes, slices, splits and
// broadcasts need no memory of their own. The engine's tensors stay contiguous; operations with strides as arguments
// (ops/strided.h) read views, and lowering copies a view for all other operations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "ops/strided.h"

namespace trifold::graph {

// A number that grows linearly with the samples of a micro-batch.
struct Size {
  int64_t fixed = 0;
  int64_t per_sample = 0;

  int64_t at(int64_t batch) const { return fixed + per_sample * batch; }
  bool operator==(const Size&) const = default;
};

// Element i = (i0, i1, ...) of the value is element begin + the sum of i * stride of the memory. A stride of 0 repeats.
struct View {
  Size begin;
  std::vector<Size> dims, strides;

  bool operator==(const View&) const = default;
  int64_t elements(int64_t batch) const;
  Box box(int64_t batch) const;
  StridedView strided(int64_t batch) const;
  // Whether the elements are adjacent and in order.
  bool is_dense() const;
  // Whether no element of the memory occurs twice, repeated axes (of stride 0) aside.
  bool is_injective() const;
  // Whether every one of the first `count` elements of the memory occurs.
  bool covers(const Size& count) const;
};

// The elements of a value in order, from the beginning of its memory.
View dense_view(const std::vector<Extent>& dims);

// Output `output` of `node` as a view of the memory of its first argument, of which `input` is a view. Nothing if the
// operation is no view, or its output cannot be one, such as a reshape that merges transposed axes.
std::optional<View> view_of(const Graph& graph, const Node& node, size_t output, const View& input);

// The view repeated along axes in front and along axes with one element, as PyTorch broadcasts it, to the shape `to`.
View broadcast(const View& view, const std::vector<Size>& to);

}  // namespace trifold::graph
