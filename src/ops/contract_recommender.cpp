// The contract of lookups in embedding tables and of the dense parts of recommender models.
#include <limits>

#include "ops/contract.h"
#include "ops/expect.h"

namespace trifold::contract {

void relu_backward(const Tensor& dx, const Tensor& db, const Tensor& dy, const Tensor& y,
                   bool /*accumulate*/) {
  expect_matrix("relu_backward", "y", y);
  expect("relu_backward", "dy", dy, y.dtype, y.elements());
  expect("relu_backward", "dx", dx, y.dtype, y.elements());
  expect("relu_backward", "db", db, accumulate_type(y.dtype), y.last_dim());
}

// ---- lookups ----

namespace {

void expect_lookup(const char* op, const BagLookup& lookup, int64_t bags) {
  expect(op, "offsets", lookup.offsets, DType::I32, bags + 1);
  expect(op, "ids", lookup.ids, DType::I32, lookup.ids.elements());
  if (lookup.weights.data != nullptr)
    expect(op, "weights", lookup.weights, DType::F32, lookup.ids.elements());
}

}  // namespace

void embedding_bags(const Tensor& y, std::span<const BagLookup> lookups) {
  constexpr const char* kOp = "embedding_bags";
  expect_matrix(kOp, "y", y);
  for (const BagLookup& lookup : lookups) {
    expect_matrix(kOp, "table", lookup.table);
    expect_lookup(kOp, lookup, y.row_count());
    if (lookup.table.dtype != y.dtype || lookup.column < 0 ||
        lookup.column + lookup.table.last_dim() > y.last_dim())
      fail("{}: a table {} {} at column {} exceeds y {} {}, or its type differs", kOp,
           name_of(lookup.table.dtype), to_string(lookup.table.shape), lookup.column, name_of(y.dtype),
           to_string(y.shape));
  }
}

void sort_lookups(std::span<const LookupOrder> orders, std::span<const BagLookup> lookups) {
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
    check(n <= std::numeric_limits<int32_t>::max(), "{}: {} lookups in one table are more than 2^31 - 1", kOp,
          n);
  }
}

// ---- touched rows ----

namespace {

// Checks the columns of the gradient, and the optional tensors of every update.
void expect_update(const char* op, const RowUpdate& update, const Tensor& dy) {
  const Tensor& table = update.table;
  const int64_t width = table.last_dim();
  if (table.dtype != dy.dtype || update.column < 0 || update.column + width > dy.last_dim())
    fail("{}: the gradient of a table {} {} at column {} exceeds dy {} {}, or its type differs", op,
         name_of(table.dtype), to_string(table.shape), update.column, name_of(dy.dtype), to_string(dy.shape));
  const int64_t lookups = update.order->row.elements();
  if (update.squares.data != nullptr) expect(op, "squares", update.squares, dy.dtype, lookups);
  if (update.touched.data != nullptr) expect(op, "touched", update.touched, dy.dtype, lookups);
}

}  // namespace

void update_rows(const Tensor& dy, std::span<const RowUpdate> updates, const SparseRule& rule) {
  constexpr const char* kOp = "update_rows";
  expect_matrix(kOp, "dy", dy);
  const bool two = rule.kind == SparseKind::Adam || rule.kind == SparseKind::Ftrl;
  const bool whole = rule.kind == SparseKind::Adagrad || two;
  for (const RowUpdate& update : updates) {
    expect_update(kOp, update, dy);
    const int64_t numbers = update.table.elements();
    if (whole) expect(kOp, "state", update.state, dy.dtype, numbers);
    if (two) expect(kOp, "second", update.second, dy.dtype, numbers);
    if (rule.kind == SparseKind::RowwiseAdagrad)
      expect(kOp, "state", update.state, dy.dtype, update.table.row_count());
  }
}

void row_squares(const Tensor& dy, std::span<const RowUpdate> updates, double /*grad_scale*/) {
  expect_matrix("row_squares", "dy", dy);
  for (const RowUpdate& update : updates) {
    expect_update("row_squares", update, dy);
    expect("row_squares", "squares", update.squares, dy.dtype, update.order->row.elements());
  }
}

void row_gradients(const Tensor& dy, std::span<const RowUpdate> updates) {
  expect_matrix("row_gradients", "dy", dy);
  for (const RowUpdate& update : updates) {
    expect_update("row_gradients", update, dy);
    expect("row_gradients", "state", update.state, dy.dtype, update.table.row_count());
  }
}

// ---- interaction, cross layers ----

namespace {

// y [B, width + pairs] for x [B, vectors * width].
void expect_interaction(const char* op, const Tensor& x, const Tensor& y, int64_t width, bool self) {
  expect_matrix(op, "x", x);
  check(width >= 1 && x.last_dim() % width == 0,
        "{}: rows of {} elements are not a multiple of the vector width {}", op, x.last_dim(), width);
  const int64_t vectors = x.last_dim() / width;
  const int64_t pairs = self ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
  expect(op, "y", y, x.dtype, x.row_count() * (width + pairs));
}

}  // namespace

void dot_interaction(const Tensor& y, const Tensor& x, int64_t width, bool self) {
  expect_interaction("dot_interaction", x, y, width, self);
}

void dot_interaction_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, int64_t width, bool self) {
  expect_interaction("dot_interaction_backward", x, dy, width, self);
  expect("dot_interaction_backward", "dx", dx, x.dtype, x.elements());
}

void cross(const Tensor& y, const Tensor& x0, const Tensor& u, const Tensor& x) {
  for (const Tensor* t : {&x0, &u, &x}) expect("cross", "input", *t, y.dtype, y.elements());
}

void cross_backward(const Tensor& du, const Tensor& dx0, const Tensor& dy, const Tensor& x0,
                    const Tensor& u) {
  for (const Tensor* t : {&du, &dx0, &x0, &u})
    expect("cross_backward", "tensor", *t, dy.dtype, dy.elements());
}

// ---- clicks ----

void sigmoid(const Tensor& p, const Tensor& z) { expect("sigmoid", "z", z, p.dtype, p.elements()); }

void click_loss(const Tensor& loss, const Tensor& z, const Tensor& labels, ClickLoss /*kind*/) {
  expect("click_loss", "z", z, loss.dtype, loss.elements());
  expect("click_loss", "labels", labels, DType::F32, loss.elements());
}

void click_loss_backward(const Tensor& dz, const Tensor& z, const Tensor& labels, const Tensor& weight,
                         const Factor& /*scale*/, ClickLoss /*kind*/) {
  expect("click_loss_backward", "z", z, dz.dtype, dz.elements());
  expect("click_loss_backward", "labels", labels, DType::F32, dz.elements());
  expect("click_loss_backward", "weight", weight, DType::F32, dz.elements());
}

void copy_columns(const Tensor& y, const Tensor& x, std::span<const ColumnCopy> copies) {
  expect_matrix("copy_columns", "x", x);
  expect_matrix("copy_columns", "y", y);
  const int64_t rows = x.row_count();
  const int64_t from_width = x.last_dim();
  const int64_t to_width = y.last_dim();
  expect("copy_columns", "y", y, x.dtype, rows * to_width);
  for (const ColumnCopy& copy : copies) {
    check(copy.from >= 0 && copy.from + copy.width <= from_width && copy.to >= 0 &&
              copy.to + copy.width <= to_width,
          "copy_columns: {} columns from column {} to column {} exceed the {} columns of x or the {} of y",
          copy.width, copy.from, copy.to, from_width, to_width);
    if (copy.row_scale.data != nullptr) expect("copy_columns", "row_scale", copy.row_scale, x.dtype, rows);
  }
}

void copy_rows(const Tensor& y, const Tensor& to, const Tensor& x, const Tensor& from) {
  expect_matrix("copy_rows", "x", x);
  expect_matrix("copy_rows", "y", y);
  expect("copy_rows", "y", y, x.dtype, y.row_count() * x.last_dim());
  expect("copy_rows", "to", to, DType::I32, from.elements());
  expect("copy_rows", "from", from, DType::I32, from.elements());
}

void inverse_root(const Tensor& y, const Tensor& x, double eps) {
  expect("inverse_root", "x", x, y.dtype, y.elements());
  check(eps >= 0, "inverse_root: eps {} is negative", eps);
}

void add_recommender(OpTable& checks) {
  bind<&OpTable::relu_backward, relu_backward>(checks);
  bind<&OpTable::embedding_bags, embedding_bags>(checks);
  bind<&OpTable::sort_lookups, sort_lookups>(checks);
  bind<&OpTable::update_rows, update_rows>(checks);
  bind<&OpTable::row_squares, row_squares>(checks);
  bind<&OpTable::row_gradients, row_gradients>(checks);
  bind<&OpTable::dot_interaction, dot_interaction>(checks);
  bind<&OpTable::dot_interaction_backward, dot_interaction_backward>(checks);
  bind<&OpTable::cross, cross>(checks);
  bind<&OpTable::cross_backward, cross_backward>(checks);
  bind<&OpTable::sigmoid, sigmoid>(checks);
  bind<&OpTable::click_loss, click_loss>(checks);
  bind<&OpTable::click_loss_backward, click_loss_backward>(checks);
  bind<&OpTable::copy_columns, copy_columns>(checks);
  bind<&OpTable::copy_rows, copy_rows>(checks);
  bind<&OpTable::inverse_root, inverse_root>(checks);
}

}  // namespace trifold::contract
