#include "fake_device/fp8.h"

#include <algorithm>
#include <vector>

#include "fake_device/temporaries.h"
#include "ops/composed.h"
#include "support/fp8.h"

namespace trifold::test {

namespace {

using cpu::Fp8;

struct Factor {
  Tensor tensor;  // bf16
  bool transposed;
  Fp8 format;
};

Tensor rounded(Temporaries& temporaries, Stream& stream, const Factor& factor) {
  return temporaries.changed(stream, factor.tensor, [format = factor.format](std::span<float> wide) {
    std::vector<float> numbers(wide.begin(), wide.end());
    round_to_fp8(numbers, format);
    std::copy(numbers.begin(), numbers.end(), wide.begin());
  });
}

// y = left right^T + bias + beta y
void product(Stream& stream, Tensor y, const Factor& left, const Factor& right, Tensor bias, double beta) {
  const OpTable& ops = cpu_ops();
  Temporaries wide;
  const Tensor a = rounded(wide, stream, left);
  const Tensor b = rounded(wide, stream, right);
  const Tensor sums = y.dtype == DType::F32 ? y : wide.take(y.shape);
  if (y.dtype != DType::F32 && beta != 0) ops.convert(stream, sums, y);
  if (bias.rank() > 0) {
    const Tensor row = wide.take(bias.shape);
    ops.convert(stream, row, bias);
    ops.fill_rows(stream, sums, row);
    beta = 1;
  }
  ops.gemm(stream, sums, a, left.transposed, b, !right.transposed, 1, beta);
  if (y.dtype != DType::F32) ops.convert(stream, y, sums);
  wide.release(stream);
}

void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  product(stream, y, {x, false, Fp8::E4M3}, {w, false, Fp8::E4M3}, bias, 0);
}

void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
  product(stream, dx, {dy, false, Fp8::E5M2}, {w, true, Fp8::E4M3}, {}, beta);
}

void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, const Forms& dy, const Forms& x,
                            bool accumulate) {
  product(stream, dw, {dy.rows, true, Fp8::E5M2}, {x.rows, true, Fp8::E4M3}, {}, accumulate ? 1 : 0);
  if (db.rank() > 0) cpu_ops().column_sum(stream, db, dy.rows, accumulate);
}

OpTable make_narrow() {
  OpTable table = cpu_ops();
  table.affine = affine;
  table.affine_backward_input = affine_backward_input;
  table.affine_backward_weight = affine_backward_weight;
  add_composed_epilogues<narrow_ops>(table);
  return table;
}

}  // namespace

const OpTable& narrow_ops() {
  static const OpTable kTable = make_narrow();
  return kTable;
}

}  // namespace trifold::test
