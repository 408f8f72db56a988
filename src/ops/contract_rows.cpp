// The contract of norms, column sums, rotary position embedding, table rows and cross entropy.
#include <algorithm>

#include "ops/contract.h"
#include "ops/expect.h"
#include "ops/kernels.h"
#include "ops/narrow.h"

namespace trifold::contract {

// ---- layer norm ----

void layer_norm(const Tensor& y, const Tensor& mean, const Tensor& rstd, const Tensor& x, const Tensor& gain,
                const Tensor& bias, double /*eps*/, double /*gain_offset*/) {
  expect_matrix("layer_norm", "x", x);
  const DType wide = accumulate_type(x.dtype);
  expect_factor("layer_norm", "y", y, x.dtype, x.row_count(), x.last_dim());
  expect("layer_norm", "mean", mean, wide, x.row_count());
  expect("layer_norm", "rstd", rstd, wide, x.row_count());
  expect("layer_norm", "gain", gain, x.dtype, x.last_dim());
  expect("layer_norm", "bias", bias, x.dtype, x.last_dim());
}

void layer_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                         const Tensor& rstd, const Tensor& gain, double /*gain_offset*/) {
  expect_matrix("layer_norm_backward", "x", x);
  const DType wide = accumulate_type(x.dtype);
  expect("layer_norm_backward", "dx", dx, x.dtype, x.elements());
  expect("layer_norm_backward", "dy", dy, x.dtype, x.elements());
  expect("layer_norm_backward", "mean", mean, wide, x.row_count());
  expect("layer_norm_backward", "rstd", rstd, wide, x.row_count());
  expect("layer_norm_backward", "gain", gain, x.dtype, x.last_dim());
}

void layer_norm_backward_add(const Tensor& dx, const Tensor& residual, const Tensor& dy, const Tensor& x,
                             const Tensor& mean, const Tensor& rstd, const Tensor& gain, double gain_offset) {
  layer_norm_backward(dx, dy, x, mean, rstd, gain, gain_offset);
  expect("layer_norm_backward_add", "residual", residual, x.dtype, x.elements());
}

void layer_norm_backward_weight(const Tensor& dgain, const Tensor& dbias, const Tensor& dy, const Tensor& x,
                                const Tensor& mean, const Tensor& rstd, bool /*accumulate*/) {
  expect_matrix("layer_norm_backward_weight", "x", x);
  const DType wide = accumulate_type(x.dtype);
  expect("layer_norm_backward_weight", "dgain", dgain, wide, x.last_dim());
  expect("layer_norm_backward_weight", "dbias", dbias, wide, x.last_dim());
  expect("layer_norm_backward_weight", "dy", dy, x.dtype, x.elements());
  expect("layer_norm_backward_weight", "mean", mean, wide, x.row_count());
  expect("layer_norm_backward_weight", "rstd", rstd, wide, x.row_count());
}

void layer_norm_backward_all(const Tensor& dx, const Tensor& dgain, const Tensor& dbias,
                             const Tensor& residual, const Tensor& dy, const Tensor& x, const Tensor& mean,
                             const Tensor& rstd, const Tensor& gain, bool accumulate, double gain_offset) {
  layer_norm_backward(dx, dy, x, mean, rstd, gain, gain_offset);
  if (residual.data != nullptr)
    expect("layer_norm_backward_all", "residual", residual, x.dtype, x.elements());
  layer_norm_backward_weight(dgain, dbias, dy, x, mean, rstd, accumulate);
}

// ---- root-mean-square norm ----

void rms_norm(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& gain, double /*eps*/,
              double /*gain_offset*/) {
  expect_matrix("rms_norm", "gain", gain);
  const int64_t elements = rstd.elements() * gain.elements();
  expect_factor("rms_norm", "y", y, gain.dtype, rstd.elements(), gain.elements());
  expect("rms_norm", "x", x, gain.dtype, elements);
  expect("rms_norm", "rstd", rstd, accumulate_type(gain.dtype), rstd.elements());
}

void rms_norm_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                       const Tensor& gain, double /*gain_offset*/) {
  expect_matrix("rms_norm_backward", "gain", gain);
  const int64_t elements = rstd.elements() * gain.elements();
  expect("rms_norm_backward", "dx", dx, gain.dtype, elements);
  expect("rms_norm_backward", "dy", dy, gain.dtype, elements);
  expect("rms_norm_backward", "x", x, gain.dtype, elements);
  expect("rms_norm_backward", "rstd", rstd, accumulate_type(gain.dtype), rstd.elements());
}

// The tensors that the operations on parts of rows have in common.
void rms_part_tensors(const char* op, const Tensor& x, const Tensor& of_rows, const Tensor& gain) {
  expect_matrix(op, "x", x);
  expect(op, "statistics", of_rows, accumulate_type(x.dtype), x.row_count());
  expect(op, "gain", gain, x.dtype, x.last_dim());
}

void rms_part_sums(const Tensor& sums, const Tensor& x, const Tensor& dy, const Tensor& gain,
                   double /*gain_offset*/) {
  rms_part_tensors("rms_part_sums", x, sums, gain);
  if (dy.data != nullptr) expect("rms_part_sums", "dy", dy, x.dtype, x.elements());
}

void rms_part(const Tensor& y, const Tensor& x, const Tensor& rstd, const Tensor& gain,
              double /*gain_offset*/) {
  rms_part_tensors("rms_part", x, rstd, gain);
  expect("rms_part", "y", y, x.dtype, x.elements());
}

void rms_part_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                       const Tensor& along, const Tensor& gain, double /*gain_offset*/) {
  rms_part_tensors("rms_part_backward", x, rstd, gain);
  expect("rms_part_backward", "along", along, accumulate_type(x.dtype), x.row_count());
  expect("rms_part_backward", "dx", dx, x.dtype, x.elements());
  expect("rms_part_backward", "dy", dy, x.dtype, x.elements());
}

void rms_norm_backward_add(const Tensor& dx, const Tensor& residual, const Tensor& dy, const Tensor& x,
                           const Tensor& rstd, const Tensor& gain, double gain_offset) {
  rms_norm_backward(dx, dy, x, rstd, gain, gain_offset);
  expect("rms_norm_backward_add", "residual", residual, dx.dtype, dx.elements());
}

void rms_norm_backward_weight(const Tensor& dgain, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              bool /*accumulate*/) {
  expect_matrix("rms_norm_backward_weight", "dy", dy);
  const DType wide = accumulate_type(dy.dtype);
  const int64_t elements = rstd.elements() * dgain.elements();
  expect("rms_norm_backward_weight", "dgain", dgain, wide, dgain.elements());
  expect("rms_norm_backward_weight", "dy", dy, dy.dtype, elements);
  expect("rms_norm_backward_weight", "x", x, dy.dtype, elements);
  expect("rms_norm_backward_weight", "rstd", rstd, wide, rstd.elements());
}

void rms_norm_backward_all(const Tensor& dx, const Tensor& dgain, const Tensor& residual, const Tensor& dy,
                           const Tensor& x, const Tensor& rstd, const Tensor& gain, bool accumulate,
                           double gain_offset) {
  rms_norm_backward(dx, dy, x, rstd, gain, gain_offset);
  if (residual.data != nullptr)
    expect("rms_norm_backward_all", "residual", residual, dx.dtype, dx.elements());
  rms_norm_backward_weight(dgain, dy, x, rstd, accumulate);
}

// ---- column sums, rotary position embedding, table rows ----

void column_sum(const Tensor& db, const Tensor& dy, bool /*accumulate*/) {
  expect_matrix("column_sum", "dy", dy);
  expect("column_sum", "db", db, accumulate_type(dy.dtype), dy.last_dim());
}

void write_forms(const Forms& y, const Tensor& x) {
  expect_matrix("write_forms", "x", x);
  check(!is_present(y.rows) || is_narrow(y.rows),
        "write_forms: the rows of y are {}, but narrow ones are needed", name_of(y.rows.dtype));
  expect_result_forms("write_forms", "y", y, x.dtype, x.row_count(), x.last_dim());
}

void rotary(const Tensor& y, const Tensor& x, const Tensor& positions, const Rotary& rotation) {
  expect_matrix("rotary", "y", y);
  const int64_t rows = positions.elements();
  const auto pairs = static_cast<int64_t>(rotation.frequencies.size());
  expect("rotary", "y", y, y.dtype, rows * y.last_dim());
  expect("rotary", "x", x, y.dtype, rows * x.last_dim());
  expect("rotary", "positions", positions, DType::I32, rows);
  check(rotation.heads == 0 || (pairs >= 1 && pairs <= cpu::kRotaryPairs && 2 * pairs <= rotation.head_dim),
        "rotary: {} pairs in a head of {} elements: give 1 to {} pairs", pairs, rotation.head_dim,
        std::min(cpu::kRotaryPairs, rotation.head_dim / 2));
  check(rotation.heads >= 0 && rotation.heads * rotation.head_dim <= rotation.columns,
        "rotary: {} heads of {} elements exceed {} columns", rotation.heads, rotation.head_dim,
        rotation.columns);
  if (rotation.x_column < 0 || rotation.x_column + rotation.columns > x.last_dim() || rotation.y_column < 0 ||
      rotation.y_column + rotation.columns > y.last_dim())
    fail("rotary: {} columns from column {} of x {} to column {} of y {} exceed a tensor's columns",
         rotation.columns, rotation.x_column, to_string(x.shape), rotation.y_column, to_string(y.shape));
}

namespace {

// Rows of a table [held, columns], or 0 for a tensor without dims.
int64_t rows_held(const Tensor& table) { return table.rank() == 0 ? 0 : table.dim(0); }

}  // namespace

void embedding(const Tensor& y, const Tensor& table, const Tensor& ids, int64_t /*first_id*/,
               bool /*accumulate*/) {
  expect_matrix("embedding", "y", y);
  expect("embedding", "table", table, y.dtype, rows_held(table) * y.last_dim());
  expect("embedding", "ids", ids, DType::I32, y.row_count());
}

void embedding_backward(const Tensor& dtable, const Tensor& dy, const Tensor& ids, const Tensor& order,
                        int64_t /*first_id*/) {
  expect_matrix("embedding_backward", "dy", dy);
  expect("embedding_backward", "dtable", dtable, accumulate_type(dy.dtype),
         rows_held(dtable) * dy.last_dim());
  expect("embedding_backward", "ids", ids, DType::I32, dy.row_count());
  expect("embedding_backward", "order", order, DType::I32, dy.row_count());
}

// ---- cross entropy ----

void softmax_stats(const Tensor& max, const Tensor& sum, const Tensor& target, const Tensor& logits,
                   const Tensor& labels, int64_t /*first_id*/, int64_t /*vocab*/) {
  expect_matrix("softmax_stats", "logits", logits);
  const int64_t rows = max.elements();
  const DType wide = accumulate_type(logits.dtype);
  expect("softmax_stats", "logits", logits, logits.dtype, rows * logits.last_dim());
  expect("softmax_stats", "max", max, wide, rows);
  expect("softmax_stats", "sum", sum, wide, rows);
  expect("softmax_stats", "target", target, wide, rows);
  expect("softmax_stats", "labels", labels, DType::I32, rows);
}

void softmax_rescale(const Tensor& sum, const Tensor& local_max, const Tensor& global_max) {
  expect("softmax_rescale", "local_max", local_max, sum.dtype, sum.elements());
  expect("softmax_rescale", "global_max", global_max, sum.dtype, sum.elements());
}

void cross_entropy(const Tensor& loss, const Tensor& max, const Tensor& sum, const Tensor& target) {
  expect("cross_entropy", "max", max, loss.dtype, loss.elements());
  expect("cross_entropy", "sum", sum, loss.dtype, loss.elements());
  expect("cross_entropy", "target", target, loss.dtype, loss.elements());
}

void cross_entropy_backward(const Tensor& dlogits, const Tensor& logits, const Tensor& max, const Tensor& sum,
                            const Tensor& labels, const Tensor& weight, const Factor& /*scale*/,
                            int64_t /*first_id*/, int64_t /*vocab*/) {
  expect_matrix("cross_entropy_backward", "logits", logits);
  const int64_t rows = max.elements();
  expect("cross_entropy_backward", "logits", logits, logits.dtype, rows * logits.last_dim());
  expect("cross_entropy_backward", "max", max, accumulate_type(logits.dtype), rows);
  expect("cross_entropy_backward", "dlogits", dlogits, logits.dtype, logits.elements());
  expect("cross_entropy_backward", "sum", sum, max.dtype, rows);
  expect("cross_entropy_backward", "labels", labels, DType::I32, rows);
  expect("cross_entropy_backward", "weight", weight, DType::F32, rows);
}

void cross_entropy_all(const Tensor& dlogits, const Tensor& max, const Tensor& sum, const Tensor& target,
                       const Tensor& logits, const Tensor& labels, const Tensor& weight,
                       const Factor& /*scale*/, int64_t /*first_id*/, int64_t /*vocab*/) {
  expect_matrix("cross_entropy_all", "logits", logits);
  const int64_t rows = max.elements();
  const DType wide = accumulate_type(logits.dtype);
  expect("cross_entropy_all", "logits", logits, logits.dtype, rows * logits.last_dim());
  expect("cross_entropy_all", "dlogits", dlogits, logits.dtype, logits.elements());
  expect("cross_entropy_all", "max", max, wide, rows);
  expect("cross_entropy_all", "sum", sum, wide, rows);
  expect("cross_entropy_all", "target", target, wide, rows);
  expect("cross_entropy_all", "labels", labels, DType::I32, rows);
  expect("cross_entropy_all", "weight", weight, DType::F32, rows);
}

void add_rows(OpTable& checks) {
  bind<&OpTable::layer_norm, layer_norm>(checks);
  bind<&OpTable::layer_norm_backward, layer_norm_backward>(checks);
  bind<&OpTable::layer_norm_backward_add, layer_norm_backward_add>(checks);
  bind<&OpTable::layer_norm_backward_weight, layer_norm_backward_weight>(checks);
  bind<&OpTable::layer_norm_backward_all, layer_norm_backward_all>(checks);
  bind<&OpTable::rms_norm, rms_norm>(checks);
  bind<&OpTable::rms_norm_backward, rms_norm_backward>(checks);
  bind<&OpTable::rms_norm_backward_add, rms_norm_backward_add>(checks);
  bind<&OpTable::rms_norm_backward_weight, rms_norm_backward_weight>(checks);
  bind<&OpTable::rms_norm_backward_all, rms_norm_backward_all>(checks);
  bind<&OpTable::rms_part_sums, rms_part_sums>(checks);
  bind<&OpTable::rms_part, rms_part>(checks);
  bind<&OpTable::rms_part_backward, rms_part_backward>(checks);
  bind<&OpTable::column_sum, column_sum>(checks);
  bind<&OpTable::write_forms, write_forms>(checks);
  bind<&OpTable::rotary, rotary>(checks);
  bind<&OpTable::embedding, embedding>(checks);
  bind<&OpTable::embedding_backward, embedding_backward>(checks);
  bind<&OpTable::softmax_stats, softmax_stats>(checks);
  bind<&OpTable::softmax_rescale, softmax_rescale>(checks);
  bind<&OpTable::cross_entropy, cross_entropy>(checks);
  bind<&OpTable::cross_entropy_backward, cross_entropy_backward>(checks);
  bind<&OpTable::cross_entropy_all, cross_entropy_all>(checks);
}

}  // namespace trifold::contract
