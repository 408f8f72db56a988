// Arguments, other than tensors, of the OpTable's operations on strided views: those to which graphs of users' models are
// lowered.
//
// A Tensor is contiguous. These operations take it as flat memory, in which a view says where the element of each index
// lies; so transposes, slices, broadcasts and flips are arguments and need no copies. All numbers are in elements.
#pragma once

#include <array>
#include <cstdint>

#include "ops/map_op.h"

namespace trifold {

constexpr int kMostAxes = 6;
using AxisNumbers = std::array<int64_t, kMostAxes>;

// An index space: indices i with 0 <= i[axis] < extents[axis] for each axis < rank. A rank of 0 has one index.
struct Box {
  int rank = 0;
  AxisNumbers extents{};
  // The number of indices. Throws an Error if the rank or an extent is invalid, or if there are too many.
  int64_t elements() const;
};

// The element of a tensor, taken flat, at index i: begin + the sum over the axes of i[axis] * strides[axis]. A stride may
// be 0 or negative; strides from the rank of the box on are not read. All elements must be inside the tensor.
struct StridedView {
  int64_t begin = 0;
  AxisNumbers strides{};
};

// The view of a tensor whose elements lie in the order of the box.
StridedView contiguous_view(const Box& box);

// Argument of OpTable::map: the function, its constants, and the view of each input.
struct Map {
  MapOp op = MapOp::Identity;
  double a = 0, b = 0;
  Box box;
  std::array<StridedView, 3> from;
};

// "Neg" of MapOp::Neg, and the number of inputs, 1 to 3. Throw an Error if there is no such function.
const char* name_of(MapOp op);
int inputs_of(MapOp op);

// The matrices of one operand of OpTable::batched_product: matrix (o, i) begins at element begin + o * outer + i * inner,
// its rows begin `row` elements apart, and each row is contiguous. A stride of 0 shares a matrix.
struct MatrixBatch {
  int64_t begin = 0, outer = 0, inner = 0, row = 0;
  bool transposed = false;  // op(x) is the transpose of the matrix in memory
};

// c = alpha op(a) op(b) + beta c for each of outer * inner matrices: op(a) [m, k]  op(b) [k, n]  c [m, n]. c is not
// transposed, and no two of its matrices overlap. With beta 0, c need not be initialised.
struct BatchedProduct {
  int64_t outer = 1, inner = 1;
  int64_t m = 0, n = 0, k = 0;
  MatrixBatch a, b, c;
  double alpha = 1, beta = 0;
};

}  // namespace trifold
