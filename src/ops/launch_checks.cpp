// What every back end's launchers check alike.
#include <limits>

#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

void expect_lookup(const char* op, const BagLookup& lookup, int64_t bags) {
  expect(op, "offsets", lookup.offsets, DType::I32, bags + 1);
  expect(op, "ids", lookup.ids, DType::I32, lookup.ids.elements());
  if (lookup.weights.data != nullptr)
    expect(op, "weights", lookup.weights, DType::F32, lookup.ids.elements());
}

}  // namespace

VocabularyPart vocabulary_part(int64_t columns, int64_t first_id, int64_t vocab) {
  return {columns, std::clamp<int64_t>(vocab - first_id, 0, columns), first_id};
}

RotaryShape rotary_shape(const Tensor& y, const Tensor& x, const Rotary& how) {
  const auto pairs = static_cast<int64_t>(how.frequencies.size());
  return {x.last_dim(), y.last_dim(),           how.columns, how.heads, how.head_dim,
          pairs,        how.frequencies.data(), how.inverse};
}

int64_t interaction_vectors(const char* op, const Tensor& x, const Tensor& y, int64_t width, bool self) {
  expect_matrix(op, "x", x);
  check(width >= 1 && x.last_dim() % width == 0, "{}: rows of {} numbers are no vectors of {}", op,
        x.last_dim(), width);
  const int64_t vectors = x.last_dim() / width;
  const int64_t pairs = self ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
  expect(op, "y", y, x.dtype, x.row_count() * (width + pairs));
  return vectors;
}

void expect_lookups(const Tensor& y, std::span<const BagLookup> lookups) {
  constexpr const char* kOp = "embedding_bags";
  expect_matrix(kOp, "y", y);
  for (const BagLookup& lookup : lookups) {
    expect_matrix(kOp, "table", lookup.table);
    expect_lookup(kOp, lookup, y.row_count());
    check(lookup.table.dtype == y.dtype && lookup.column >= 0 &&
              lookup.column + lookup.table.last_dim() <= y.last_dim(),
          "{}: a table of {} {} does not fit column {} of {} {}", kOp, name_of(lookup.table.dtype),
          to_string(lookup.table.shape), lookup.column, name_of(y.dtype), to_string(y.shape));
  }
}

void expect_orders(std::span<const LookupOrder> orders, std::span<const BagLookup> lookups) {
  constexpr const char* kOp = "sort_lookups";
  check(orders.size() == lookups.size(), "{}: {} orders for {} lookups", kOp, orders.size(), lookups.size());
  for (size_t i = 0; i < orders.size(); ++i) {
    const LookupOrder& order = orders[i];
    const int64_t n = lookups[i].ids.elements();
    expect_lookup(kOp, lookups[i], lookups[i].offsets.elements() - 1);
    expect(kOp, "row", order.row, DType::I32, n);
    expect(kOp, "begin", order.begin, DType::I32, n + 1);
    expect(kOp, "bag", order.bag, DType::I32, n);
    if (lookups[i].weights.data != nullptr) expect(kOp, "weight", order.weight, DType::F32, n);
    expect(kOp, "count", order.count, DType::I64, 1);
    expect(kOp, "scratch", order.scratch, DType::I64, 2 * n);
    check(n <= std::numeric_limits<int32_t>::max(), "{}: {} lookups in one table are too many", kOp, n);
  }
}

void expect_updates(const char* op, std::span<const RowUpdate> updates, const Tensor& dy, RowAction action) {
  expect_matrix(op, "dy", dy);
  for (const RowUpdate& update : updates) {
    const Tensor& t = update.table;
    const int64_t width = t.last_dim();
    const int64_t rows = t.row_count();
    check(t.dtype == dy.dtype && update.column >= 0 && update.column + width <= dy.last_dim(),
          "{}: the gradient of a table of {} {} is not in column {} of {} {}", op, name_of(t.dtype),
          to_string(t.shape), update.column, name_of(dy.dtype), to_string(dy.shape));
    const bool whole = action == RowAction::Adagrad || action == RowAction::Adam;
    if (whole) expect(op, "state", update.state, dy.dtype, rows * width);
    if (action == RowAction::Adam) expect(op, "second", update.second, dy.dtype, rows * width);
    if (action == RowAction::RowwiseAdagrad || action == RowAction::Store)
      expect(op, "state", update.state, dy.dtype, rows);
    if (action == RowAction::Squares || update.squares.data != nullptr)
      expect(op, "squares", update.squares, dy.dtype, update.order->row.elements());
    if (update.touched.data != nullptr)
      expect(op, "touched", update.touched, dy.dtype, update.order->row.elements());
  }
}

void expect_copies(const Tensor& y, const Tensor& x, std::span<const ColumnCopy> copies) {
  expect_matrix("copy_columns", "x", x);
  expect_matrix("copy_columns", "y", y);
  const int64_t rows = x.row_count();
  const int64_t from_width = x.last_dim();
  const int64_t to_width = y.last_dim();
  expect("copy_columns", "y", y, x.dtype, rows * to_width);
  for (const ColumnCopy& copy : copies) {
    check(copy.from >= 0 && copy.from + copy.width <= from_width && copy.to >= 0 &&
              copy.to + copy.width <= to_width,
          "copy_columns: {} columns from {} of {} to {} of {}", copy.width, copy.from, from_width, copy.to,
          to_width);
    if (copy.row_scale.data != nullptr) expect("copy_columns", "row_scale", copy.row_scale, x.dtype, rows);
  }
}

WeightCopy copy_of(const char* op, const Tensor& p, const Tensor& copy) {
  if (copy.data == nullptr) return {};
  const bool narrow = p.dtype == DType::F32 && (copy.dtype == DType::BF16 || copy.dtype == DType::F16);
  expect(op, "copy", copy, narrow ? copy.dtype : p.dtype, p.elements());
  if (!narrow) return {CopyType::Same, copy.data};
  return {copy.dtype == DType::BF16 ? CopyType::Bfloat16 : CopyType::Float16, copy.data};
}

}  // namespace trifold::cpu
