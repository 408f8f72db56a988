// Operations that are computed whole or in parts: both have the same bits.
#include <gtest/gtest.h>

#include "conformance/op_table.h"

namespace trifold::conformance {

namespace {

struct Extents {
  int64_t rows, columns;
};

// The backward of one norm: `whole` in one operation, or in two.
std::vector<OpRun::Result> norm_backward(const OpTable& ops, Stream& stream, DType dtype,
                                         const Extents& extents, bool centers, bool adds, bool whole) {
  OpRun run(ops, stream, dtype, dtype);
  const auto [rows, columns] = extents;
  const Shape shape{rows, columns};
  const Tensor x = run.in(shape, normal(rows * columns, 1));
  const Tensor dy = run.in(shape, normal(rows * columns, 2));
  const Tensor gain = run.in({columns}, normal(columns, 3));
  const Tensor rstd = run.in(run.wide(), {rows}, Values(size_t(rows), 0.75));
  const Tensor mean = centers ? run.in(run.wide(), {rows}, normal(rows, 4)) : Tensor{};
  const Tensor residual = adds ? run.in(shape, normal(rows * columns, 5)) : Tensor{};
  const Tensor dx = run.out(shape);
  const Tensor dgain = run.out(run.wide(), {columns}, Values(size_t(columns), 0.5));
  const Tensor dbias = centers ? run.out(run.wide(), {columns}, Values(size_t(columns), -2)) : Tensor{};
  if (whole && centers) {
    ops.layer_norm_backward_all(stream, dx, dgain, dbias, residual, dy, x, mean, rstd, gain, adds, 0);
  } else if (whole) {
    ops.rms_norm_backward_all(stream, dx, dgain, residual, dy, x, rstd, gain, adds, 0);
  } else if (centers) {
    if (adds)
      ops.layer_norm_backward_add(stream, dx, residual, dy, x, mean, rstd, gain, 0);
    else
      ops.layer_norm_backward(stream, dx, dy, x, mean, rstd, gain, 0);
    ops.layer_norm_backward_weight(stream, dgain, dbias, dy, x, mean, rstd, adds);
  } else {
    if (adds)
      ops.rms_norm_backward_add(stream, dx, residual, dy, x, rstd, gain, 0);
    else
      ops.rms_norm_backward(stream, dx, dy, x, rstd, gain, 0);
    ops.rms_norm_backward_weight(stream, dgain, dy, x, rstd, adds);
  }
  return run.results();
}

}  // namespace

// Rows of whole packs and not, of one and several for each thread, and too long for one pass.
void check_norms_in_parts(const OpTable& ops, Stream& stream) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
    for (const Extents& extents : {Extents{16, 32}, Extents{70, 19}, Extents{3, 2600}, Extents{2, 8200}})
      for (const bool centers : {true, false})
        for (const bool adds : {true, false}) {
          SCOPED_TRACE(fmt::format("{} norm of {} rows of {} {}{}", centers ? "layer" : "rms", extents.rows,
                                   extents.columns, name_of(dtype), adds ? ", added" : ""));
          const auto whole = norm_backward(ops, stream, dtype, extents, centers, adds, true);
          const auto parts = norm_backward(ops, stream, dtype, extents, centers, adds, false);
          ASSERT_EQ(whole.size(), centers ? 3U : 2U);
          for (size_t i = 0; i < whole.size(); ++i)
            EXPECT_TRUE(whole[i].values == parts.at(i).values) << (i == 0   ? "dx"
                                                                   : i == 1 ? "gradient of the gain"
                                                                            : "gradient of the bias")
                                                               << " differs";
        }
}

}  // namespace trifold::conformance
