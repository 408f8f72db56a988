// The contract of movement, elementwise operations and dropout.
#include "ops/activations.h"
#include "ops/contract.h"
#include "ops/expect.h"
#include "ops/narrow.h"

namespace trifold::contract {

void fill(const Tensor& y, double /*value*/) { expect_float("fill", "y", y); }

void copy(const Tensor& y, const Tensor& x) { expect("copy", "x", x, y.dtype, y.elements()); }

void convert(const Tensor& y, const Tensor& x) {
  expect_float("convert", "y", y);
  expect_float("convert", "x", x);
  const bool types_fit = y.dtype == x.dtype || y.dtype == DType::F32 || x.dtype == DType::F32;
  if (y.elements() != x.elements() || !types_fit)
    fail("convert: {} {} -> {} {}: element counts must match, and one side must be f32", name_of(x.dtype),
         to_string(x.shape), name_of(y.dtype), to_string(y.shape));
}

void dequantize(const Tensor& y, const Tensor& stored, const QuantizedForm& form) {
  expect_float("dequantize", "y", y);
  check(form.columns >= 1 && form.matrix_rows >= 1 && form.rows % form.matrix_rows == 0,
        "dequantize: {} rows of {} elements are not matrices of {} rows", form.rows, form.columns,
        form.matrix_rows);
  expect("dequantize", "y", y, y.dtype, form.rows * form.columns);
  expect("dequantize", "stored", stored, DType::U8, form.bytes());
}

void scale(const Tensor& y, const Factor& /*a*/) { expect_float("scale", "y", y); }

void add(const Tensor& y, const Tensor& a, const Tensor& b) {
  expect("add", "a", a, y.dtype, y.elements());
  expect("add", "b", b, y.dtype, y.elements());
}

void reduce(const Tensor& y, const Tensor& x, Reduce /*reduction*/) {
  expect("reduce", "x", x, y.dtype, y.elements());
}

void fill_rows(const Tensor& y, const Tensor& row) {
  expect_matrix("fill_rows", "y", y);
  expect("fill_rows", "row", row, y.dtype, y.last_dim());
}

namespace {

// A result of as many elements as `from`: of its type, or in narrow forms.
void expect_map(const char* op, const char* name, const Forms& result, const char* from_name,
                const Tensor& from) {
  if (result.are_wide())
    expect(op, from_name, from, result.rows.dtype, result.rows.elements());
  else
    expect_result_forms(op, name, result, from.dtype, from.row_count(), from.last_dim());
}

template <size_t Number>
void activation(const Forms& y, const Tensor& x) {
  expect_map(kActivations[Number].name, "y", y, "x", x);
}

template <size_t Number>
void activation_backward(const Forms& dx, const Tensor& dy, const Tensor& saved) {
  constexpr const ActivationEntries& kThis = kActivations[Number];
  expect(kThis.backward_name, "dy", dy, saved.dtype, saved.elements());
  expect_map(kThis.backward_name, "dx", dx, kThis.saved, saved);
}

}  // namespace

void gated(const Forms& y, const Tensor& x, const Gating& /*gating*/) {
  if (!y.are_wide()) {
    expect_matrix("gated", "x", x);
    return expect_result_forms("gated", "y", y, x.dtype, x.row_count(), x.last_dim() / 2);
  }
  expect_matrix("gated", "y", y.rows);
  expect("gated", "x", x, y.rows.dtype, 2 * y.rows.elements());
}

void gated_backward(const Forms& dx, const Tensor& dy, const Tensor& x, const Gating& /*gating*/) {
  expect_matrix("gated_backward", "dy", dy);
  expect_result_forms("gated_backward", "dx", dx, dy.dtype, dy.row_count(), 2 * dy.last_dim());
  check(dx.are_wide() || dy.last_dim() % kScaleBlock == 0,
        "gated_backward: dx is narrow, so dy must have a multiple of {} columns, not {}", kScaleBlock,
        dy.last_dim());
  expect("gated_backward", "x", x, dy.dtype, 2 * dy.elements());
}

void dropout(const Tensor& y, const Tensor& x, const Dropout& /*dropout*/) {
  expect("dropout", "x", x, y.dtype, y.elements());
}

void scale_uniform(const Tensor& y, const Tensor& x, double low, double high, const Dropout& /*which*/) {
  expect("scale_uniform", "x", x, y.dtype, y.elements());
  check(low <= high, "scale_uniform: the interval from {} to {} is empty: low must be at most high", low,
        high);
}

void dropout_add(const Tensor& y, const Tensor& residual, const Tensor& x, const Dropout& /*dropout*/) {
  expect("dropout_add", "residual", residual, y.dtype, y.elements());
  expect("dropout_add", "x", x, y.dtype, y.elements());
}

void add_elementwise(OpTable& checks) {
  bind<&OpTable::fill, fill>(checks);
  bind<&OpTable::copy, copy>(checks);
  bind<&OpTable::convert, convert>(checks);
  bind<&OpTable::dequantize, dequantize>(checks);
  bind<&OpTable::scale, scale>(checks);
  bind<&OpTable::add, add>(checks);
  bind<&OpTable::reduce, reduce>(checks);
  bind<&OpTable::fill_rows, fill_rows>(checks);
  for_each_activation([&](auto number) {
    constexpr size_t kNumber = decltype(number)::value;
    bind<kActivations[kNumber].forward, activation<kNumber>>(checks);
    bind<kActivations[kNumber].backward, activation_backward<kNumber>>(checks);
  });
  bind<&OpTable::gated, gated>(checks);
  bind<&OpTable::gated_backward, gated_backward>(checks);
  bind<&OpTable::dropout, dropout>(checks);
  bind<&OpTable::scale_uniform, scale_uniform>(checks);
  bind<&OpTable::dropout_add, dropout_add>(checks);
}

}  // namespace trifold::contract
