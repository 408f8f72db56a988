// The contract of operations on strided views, softmax and batched products.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "ops/contract.h"
#include "ops/expect.h"

namespace trifold::contract {

namespace {

std::string text_of(const AxisNumbers& numbers, int rank) {
  std::string text;
  for (int axis = 0; axis < rank; ++axis)
    text += fmt::format("{}{}", axis > 0 ? ", " : "", numbers[static_cast<size_t>(axis)]);
  return "[" + text + "]";
}

// Throws unless all elements of the view are inside the tensor.
void expect_inside(const char* op, const char* name, const Tensor& tensor, const StridedView& view,
                   const Box& box) {
  if (box.elements() == 0) return;
  int64_t lowest = view.begin;
  int64_t highest = view.begin;
  bool fits = true;
  for (size_t axis = 0; axis < static_cast<size_t>(box.rank); ++axis) {
    int64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(view.strides[axis], box.extents[axis] - 1, &reach);
    int64_t& end = reach < 0 ? lowest : highest;
    fits = fits && !__builtin_add_overflow(end, reach, &end);
  }
  if (fits && lowest >= 0 && highest < tensor.elements()) return;
  fail(
      "{}: the view of {} begins at element {} with strides {} over extents {}, so it reaches from element {} to "
      "{}, but {} {} has elements 0 to {}",
      op, name, view.begin, text_of(view.strides, box.rank), text_of(box.extents, box.rank),
      fits ? fmt::to_string(lowest) : "below 2^63", fits ? fmt::to_string(highest) : "above 2^63",
      name_of(tensor.dtype), to_string(tensor.shape), tensor.elements() - 1);
}

bool is_float(const Tensor& tensor) {
  return tensor.dtype == DType::F64 || tensor.dtype == DType::F32 || tensor.dtype == DType::BF16 ||
         tensor.dtype == DType::F16;
}
bool is_wide(const Tensor& tensor) { return tensor.dtype == DType::F64 || tensor.dtype == DType::F32; }

}  // namespace

void strided_copy(const Tensor& y, const StridedView& to, const Tensor& x, const StridedView& from,
                  const Box& box) {
  const bool same = y.dtype == x.dtype && (is_float(y) || y.dtype == DType::I32);
  const bool converts = is_float(y) && is_float(x) && (is_wide(y) || is_wide(x));
  check(same || converts,
        "strided_copy: {} -> {}: both must be i32, or both floating-point "
        "and either equal or one of them f32 or f64",
        name_of(x.dtype), name_of(y.dtype));
  expect_inside("strided_copy", "x", x, from, box);
  expect_inside("strided_copy", "y", y, to, box);
  for (size_t axis = 0; axis < static_cast<size_t>(box.rank); ++axis)
    check(
        to.strides[axis] != 0 || box.extents[axis] <= 1,
        "strided_copy: axis {} has stride 0 in y and extent {}, so {} elements of x would be written to one of "
        "y; the stride must not be 0",
        axis, box.extents[axis], box.extents[axis]);
}

void strided_sum(const Tensor& y, const StridedView& to, const Tensor& x, const StridedView& from,
                 const Box& box, double /*factor*/, bool /*accumulate*/) {
  expect_float("strided_sum", "x", x);
  check(y.dtype == x.dtype || y.dtype == accumulate_type(x.dtype) || y.dtype == DType::F64,
        "strided_sum: y is {}, but for x in {} it must be {}, {} or f64", name_of(y.dtype), name_of(x.dtype),
        name_of(x.dtype), name_of(accumulate_type(x.dtype)));
  expect_inside("strided_sum", "x", x, from, box);
  Box kept = box;
  for (size_t axis = 0; axis < static_cast<size_t>(box.rank); ++axis)
    if (to.strides[axis] == 0) kept.extents[axis] = 1;
  expect_inside("strided_sum", "y", y, to, kept);
}

void map(const Tensor& y, std::span<const Tensor> x, const Map& map) {
  expect_float("map", "y", y);
  const auto inputs = static_cast<size_t>(inputs_of(map.op));
  check(x.size() == inputs, "map: {} has {} inputs, but {} are given", name_of(map.op), inputs, x.size());
  const int64_t elements = map.box.elements();
  if (y.elements() != elements)
    fail("map: y is {} {}, but the box {} has {} elements", name_of(y.dtype), to_string(y.shape),
         text_of(map.box.extents, map.box.rank), elements);
  constexpr const char* kNames[] = {"x[0]", "x[1]", "x[2]"};
  for (size_t i = 0; i < inputs; ++i) {
    check(x[i].dtype == y.dtype, "map: {} is {}, but y is {}: they must be equal", kNames[i],
          name_of(x[i].dtype), name_of(y.dtype));
    expect_inside("map", kNames[i], x[i], map.from[i], map.box);
  }
}

void softmax(const Tensor& y, const Tensor& x) {
  expect_matrix("softmax", "x", x);
  expect("softmax", "y", y, x.dtype, x.elements());
}

void softmax_backward(const Tensor& dx, const Tensor& dy, const Tensor& y) {
  expect_matrix("softmax_backward", "y", y);
  expect("softmax_backward", "dx", dx, y.dtype, y.elements());
  expect("softmax_backward", "dy", dy, y.dtype, y.elements());
}

void log_softmax(const Tensor& y, const Tensor& x) {
  expect_matrix("log_softmax", "x", x);
  expect("log_softmax", "y", y, x.dtype, x.elements());
}

void log_softmax_backward(const Tensor& dx, const Tensor& dy, const Tensor& y) {
  expect_matrix("log_softmax_backward", "y", y);
  expect("log_softmax_backward", "dx", dx, y.dtype, y.elements());
  expect("log_softmax_backward", "dy", dy, y.dtype, y.elements());
}

namespace {

// Throws unless all matrices [rows, columns] of an operand are inside its tensor and its rows do not overlap.
void expect_matrices(const char* name, const Tensor& tensor, const MatrixBatch& batch,
                     const BatchedProduct& product, int64_t rows, int64_t columns) {
  if (batch.transposed) std::swap(rows, columns);
  check(rows <= 1 || batch.row >= columns,
        "batched_product: rows of {} are {} elements apart but {} long; they must not overlap", name,
        batch.row, columns);
  expect_inside("batched_product", name, tensor, {batch.begin, {batch.outer, batch.inner, batch.row, 1}},
                {4, {product.outer, product.inner, rows, columns}});
}

}  // namespace

void batched_product(const Tensor& c, const Tensor& a, const Tensor& b, const BatchedProduct& product) {
  expect_float("batched_product", "a", a);
  check(b.dtype == a.dtype && (c.dtype == a.dtype || c.dtype == accumulate_type(a.dtype)),
        "batched_product: c is {}, a {} and b {}; b must have the dtype of a, and c that or {}",
        name_of(c.dtype), name_of(a.dtype), name_of(b.dtype), name_of(accumulate_type(a.dtype)));
  const auto& [outer, inner, m, n, k] =
      std::array{product.outer, product.inner, product.m, product.n, product.k};
  check(std::min({outer, inner, m, n, k}) >= 0,
        "batched_product: {} x {} products [{}, {}] x [{}, {}]: no extent may be negative", outer, inner, m,
        k, k, n);
  check(!product.c.transposed, "batched_product: c is transposed, but only a and b may be");
  check((outer <= 1 || product.c.outer != 0) && (inner <= 1 || product.c.inner != 0),
        "batched_product: c has {} x {} matrices {} and {} elements apart; "
        "a stride of 0 would write them to one place",
        outer, inner, product.c.outer, product.c.inner);
  expect_matrices("a", a, product.a, product, m, k);
  expect_matrices("b", b, product.b, product, k, n);
  expect_matrices("c", c, product.c, product, m, n);
}

void add_strided(OpTable& checks) {
  bind<&OpTable::strided_copy, strided_copy>(checks);
  bind<&OpTable::strided_sum, strided_sum>(checks);
  bind<&OpTable::map, map>(checks);
  bind<&OpTable::softmax, softmax>(checks);
  bind<&OpTable::softmax_backward, softmax_backward>(checks);
  bind<&OpTable::log_softmax, log_softmax>(checks);
  bind<&OpTable::log_softmax_backward, log_softmax_backward>(checks);
  bind<&OpTable::batched_product, batched_product>(checks);
}

}  // namespace trifold::contract
