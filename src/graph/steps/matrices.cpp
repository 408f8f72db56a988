#include "graph/steps/matrices.h"

#include <array>
#include <utility>

namespace trifold::graph {

Matrices Matrices::transposed() const {
  Matrices turned = *this;
  const auto last = static_cast<size_t>(box.rank - 1);
  std::swap(turned.view.strides[last], turned.view.strides[last - 1]);
  std::swap(turned.box.extents[last], turned.box.extents[last - 1]);
  return turned;
}

Matrices Matrices::at(int64_t index) const {
  Matrices part{tensor, {view.begin + index * view.strides[0], {}}, {box.rank - 1, {}}};
  for (size_t axis = 1; axis < static_cast<size_t>(box.rank); ++axis) {
    part.view.strides[axis - 1] = view.strides[axis];
    part.box.extents[axis - 1] = box.extents[axis];
  }
  return part;
}

Matrices in_order(Tensor tensor, const Box& box) { return {tensor, contiguous_view(box), box}; }

Matrices matrices(Frame& frame, const Operand& operand, DType dtype) {
  const StridedTensor given = frame.strided(operand, dtype);
  return {given.tensor, given.view, operand.view.box(frame.batch)};
}

namespace {

Matrices copied(const Frame& frame, const Matrices& from) {
  const Tensor copy = frame.temporary(from.tensor.dtype, {from.box.elements()});
  frame.run.ops.strided_copy(frame.run.stream, copy, contiguous_view(from.box), from.tensor, from.view,
                             from.box);
  return in_order(copy, from.box);
}

// Whether rows, or else columns, are contiguous.
bool is_matrix(const Matrices& given, bool& by_columns) {
  const auto last = static_cast<size_t>(given.box.rank - 1);
  const auto& strides = given.view.strides;
  by_columns = strides[last] != 1 && given.box.extents[last] != 1;
  const size_t within = by_columns ? last - 1 : last, across = by_columns ? last : last - 1;
  return (strides[within] == 1 || given.box.extents[within] == 1) &&
         (strides[across] >= given.box.extents[within] || given.box.extents[across] == 1);
}

MatrixBatch batch_of(const Matrices& given) {
  bool by_columns = false;
  is_matrix(given, by_columns);
  const auto last = static_cast<size_t>(given.box.rank - 1);
  const size_t across = by_columns ? last : last - 1, within = by_columns ? last - 1 : last;
  MatrixBatch batch;
  batch.begin = given.view.begin;
  batch.row = given.box.extents[across] == 1 ? given.box.extents[within] : given.view.strides[across];
  batch.transposed = by_columns;
  return batch;
}

// The axes of a batch of products with the strides of a, b and c.
struct BatchAxes {
  struct AxisStrides {
    int64_t extent, a, b, c;
  };
  std::array<AxisStrides, kMostAxes> axes;
  size_t count = 0;

  BatchAxes(const Matrices& a, const Matrices& b, const Matrices& c) {
    for (int axis = 0; axis < c.box.rank - 2; ++axis) {
      const auto i = static_cast<size_t>(axis);
      const AxisStrides next{c.box.extents[i], a.view.strides[i], b.view.strides[i], c.view.strides[i]};
      if (next.extent == 1) continue;
      AxisStrides* last = count > 0 ? &axes[count - 1] : nullptr;
      const auto follows = [&](int64_t outer, int64_t inner) { return outer == inner * next.extent; };
      if (last != nullptr && follows(last->a, next.a) && follows(last->b, next.b) && follows(last->c, next.c))
        *last = {last->extent * next.extent, next.a, next.b, next.c};
      else
        axes[count++] = next;
    }
  }
};

}  // namespace

void multiply(const Frame& frame, const Matrices& c, Matrices a, Matrices b, double alpha) {
  bool by_columns = false;
  if (!is_matrix(a, by_columns)) a = copied(frame, a);
  if (!is_matrix(b, by_columns)) b = copied(frame, b);
  BatchAxes axes(a, b, c);
  if (axes.count > 2) {
    a = copied(frame, a);
    b = copied(frame, b);
    axes = BatchAxes(a, b, c);
  }
  check(axes.count <= 2, "products over {} batch axes are not supported", axes.count);
  const auto last = static_cast<size_t>(a.box.rank - 1);
  BatchedProduct product;
  product.m = a.box.extents[last - 1];
  product.k = a.box.extents[last];
  product.n = b.box.extents[last];
  product.a = batch_of(a);
  product.b = batch_of(b);
  product.c = batch_of(c);
  if (axes.count > 0) {
    const auto& inner = axes.axes[axes.count - 1];
    product.inner = inner.extent;
    product.a.inner = inner.a, product.b.inner = inner.b, product.c.inner = inner.c;
  }
  if (axes.count > 1) {
    const auto& outer = axes.axes[0];
    product.outer = outer.extent;
    product.a.outer = outer.a, product.b.outer = outer.b, product.c.outer = outer.c;
  }
  product.alpha = alpha;
  frame.run.ops.batched_product(frame.run.stream, c.tensor, a.tensor, b.tensor, product);
}

}  // namespace trifold::graph
