#include "ops/counting.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ops/composed.h"
#include "ops/contract.h"
#include "ops/narrow.h"

namespace trifold {

namespace {

// ---- Names: "gemm" of &OpTable::gemm ----

template <auto Entry>
constexpr std::string_view text_of_entry() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [with auto Entry = &trifold::OpTable::gemm; ...]"
  text.remove_prefix(text.find("OpTable::") + std::string_view("OpTable::").size());
  return text.substr(0, text.find_first_of(";]"));
}

template <auto Entry>
struct EntryName {
  static constexpr size_t kLength = text_of_entry<Entry>().size();
  static constexpr std::array<char, kLength + 1> kText = [] {
    std::array<char, kLength + 1> text{};
    for (size_t i = 0; i < kLength; ++i) text[i] = text_of_entry<Entry>()[i];
    return text;
  }();
};

// ---- Bytes that an operation reads and writes: each of its tensors once ----

double bytes_of(const Tensor& tensor) {
  return tensor.rank() == 0 ? 0 : static_cast<double>(tensor.bytes());  // a tensor without dims is absent
}

double sum_of(std::initializer_list<Tensor> tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

double bytes_of(const Forms& forms) { return sum_of({forms.rows, forms.turned, forms.sums}); }

// Counts only the rows of tables that are looked up.
double bytes_of(std::span<const BagLookup> lookups) {
  double bytes = 0;
  for (const BagLookup& lookup : lookups)
    bytes += sum_of({lookup.ids, lookup.offsets, lookup.weights}) +
             static_cast<double>(lookup.ids.elements() * lookup.table.last_dim()) *
                 static_cast<double>(size_of(lookup.table.dtype));
  return bytes;
}

double bytes_of(std::span<const LookupOrder> orders) {
  double bytes = 0;
  for (const LookupOrder& order : orders)
    bytes += sum_of({order.row, order.begin, order.bag, order.weight, order.scratch});
  return bytes;
}

// Rows of the table and of the rule's state are read and written.
double bytes_of(std::span<const RowUpdate> updates) {
  double bytes = 0;
  for (const RowUpdate& update : updates) {
    const auto rows = static_cast<double>(update.order->row.elements());
    for (const Tensor& tensor : {update.table, update.state, update.second})
      if (tensor.rank() > 0)
        bytes += 2 * rows * bytes_of(tensor) / static_cast<double>(std::max<int64_t>(1, tensor.dim(0)));
    bytes += bytes_of({update.order, 1});
  }
  return bytes;
}

double bytes_of(const Attention& attention) {
  return sum_of({attention.key_values, attention.dkey_values, attention.dqueries});
}

template <class Argument>
double bytes_of(const Argument& /*flag, number or rule*/) {
  return 0;
}

// ---- Counts ----

// A tag that selects the overload for an operation.
template <auto Entry>
struct Operand {};

template <auto Entry, class First, class... Args>
Work counted(Operand<Entry>, const First& first, const Args&... args) {
  Work work;
  work.bytes = bytes_of(first) + (bytes_of(args) + ... + 0.0);
  if constexpr (std::is_same_v<First, Tensor>) {
    work.result = first.shape;
    work.dtype = first.dtype;
  } else if constexpr (std::is_same_v<First, Forms>) {
    const Tensor& result = is_present(first.rows) ? first.rows : first.turned;
    work.result = result.shape;
    work.dtype = result.dtype;
  }
  return work;
}

Work product(double rows, double columns, double inner, DType dtype, double batch = 1) {
  Work work;
  work.kind = Work::Kind::Product;
  work.dtype = dtype;
  work.rows = rows;
  work.columns = columns;
  work.inner = inner;
  work.batch = batch;
  work.flops = 2 * batch * rows * columns * inner;
  return work;
}

bool is_wide(const Forms& x) { return is_present(x.rows) && !is_narrow(x.rows); }

// Narrow factors belong to products of bf16.
DType type_of_factor(const Forms& x) { return is_wide(x) ? x.rows.dtype : DType::BF16; }

// Bytes that a pass over a factor moves to round it to 8 bits with scales of blocks: reading it and writing its codes. A
// narrow factor needs the pass only if it must be turned first.
double rounding_of(const Tensor& factor) {
  if (is_narrow(factor)) return 0;
  return static_cast<double>(factor_elements(factor)) * static_cast<double>(1 + size_of(factor.dtype));
}
double turning_of(const Forms& factor) {
  if (is_present(factor.turned)) return 0;
  return is_narrow(factor.rows) ? 2 * static_cast<double>(factor_elements(factor.rows))
                                : rounding_of(factor.rows);
}
// The form that a gradient of a weight reads.
double bytes_of_summed(const Forms& factor) {
  return bytes_of(is_present(factor.turned) ? factor.turned : factor.rows);
}

// y [R, N] = x [R, K] times a matrix; the other tensors are read or written in the same pass.
Work product(const Tensor& y, const Tensor& x, std::initializer_list<Tensor> others) {
  Work work = product(static_cast<double>(y.row_count()), static_cast<double>(y.last_dim()),
                      static_cast<double>(factor_columns(x)), type_of_factor(x));
  work.result = y.shape;
  work.bytes = sum_of({y, x}) + sum_of(others);
  return work;
}

// y = x times w or its transpose, factors of a linear layer.
Work linear_product(const Tensor& y, const Tensor& x, const Tensor& w, std::initializer_list<Tensor> others) {
  Work work = product(y, x, others);
  work.bytes += bytes_of(w);
  work.rounded = rounding_of(x) + rounding_of(w);
  return work;
}

// dw [N, K] = dy [R, N]^T x [R, K]
Work weight_product(const Tensor& dw, const Forms& dy, const Forms& x, bool accumulate) {
  Work work = product(static_cast<double>(columns_of(dy)), static_cast<double>(columns_of(x)),
                      static_cast<double>(rows_of(dy)), type_of_factor(x));
  work.result = dw.shape;
  work.bytes = bytes_of(dw) + bytes_of_summed(dy) + bytes_of_summed(x) + (accumulate ? bytes_of(dw) : 0);
  return work;
}

Work counted(Operand<&OpTable::gemm>, const Tensor& c, const Tensor& a, bool transpose_a, const Tensor& b,
             bool, double, double beta) {
  const double inner = static_cast<double>(transpose_a ? a.row_count() : a.last_dim());
  Work work = product(static_cast<double>(c.row_count()), static_cast<double>(c.last_dim()), inner, a.dtype);
  work.result = c.shape;
  work.bytes = sum_of({c, a, b}) + (beta != 0 ? bytes_of(c) : 0);
  return work;
}
Work counted(Operand<&OpTable::affine>, const Tensor& y, const Tensor& x, const Tensor& w,
             const Tensor& bias) {
  return linear_product(y, x, w, {bias});
}
Work counted(Operand<&OpTable::affine_add>, const Tensor& y, const Tensor& residual, const Tensor& x,
             const Tensor& w, const Tensor& bias) {
  return linear_product(y, x, w, {residual, bias});
}
Work counted(Operand<&OpTable::affine_gelu>, const Forms& y, const Tensor& z, const Tensor& x,
             const Tensor& w, const Tensor& bias) {
  Work work = linear_product(z, x, w, {bias});
  work.bytes += bytes_of(y);
  return work;
}
Work counted(Operand<&OpTable::affine_backward_input>, const Tensor& dx, const Tensor& dy, const Tensor& w,
             double beta) {
  Work work = linear_product(dx, dy, w, {});
  if (beta != 0) work.bytes += bytes_of(dx);
  return work;
}
Work counted(Operand<&OpTable::affine_backward_gelu>, const Tensor& dz, const Tensor& dy, const Tensor& w,
             const Tensor& z) {
  return linear_product(dz, dy, w, {z});
}
Work counted(Operand<&OpTable::affine_backward_weight>, const Tensor& dw, const Tensor& db, const Forms& dy,
             const Forms& x, bool accumulate) {
  Work work = weight_product(dw, dy, x, accumulate);
  work.bytes += sum_of({db, dy.sums});
  work.rounded = turning_of(dy) + turning_of(x);
  work.sums_rows = db.rank() > 0 && !is_present(dy.sums);
  return work;
}
Work counted(Operand<&OpTable::linear>, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
             bool) {
  return product(y, x, {w, bias});
}

// Assumes that tokens are spread evenly over the experts on this rank.
Work counted(Operand<&OpTable::expert_product>, const Tensor& y, const Tensor& x, const Tensor& w,
             const Tensor& first, bool) {
  Work work = product(y, x, {w, first});
  work.batch = static_cast<double>(w.dim(0));
  work.rows /= work.batch;
  return work;
}
Work counted(Operand<&OpTable::expert_product_weight>, const Tensor& dw, const Tensor& dy, const Tensor& x,
             const Tensor& first, bool accumulate) {
  Work work = weight_product(dw, dy, x, accumulate);
  work.bytes += bytes_of(first);
  work.batch = static_cast<double>(dw.dim(0));
  work.inner /= work.batch;
  return work;
}

// The fraction of the scores of a call that is computed: by Megatron-LM's convention half under a causal mask; under a
// window the number of its keys, without regard to documents and lengths.
double visible_scores(const Attention& attention) {
  if (attention.left < 0 && attention.right < 0) return attention.causal ? 0.5 : 1;
  const SequenceRows all(attention.seq);
  const SequenceRows& queries = attention.rows.rows() > 0 ? attention.rows : all;
  const SequenceRows& keys = attention.in_steps() ? attention.key_rows : all;
  const int64_t left = attention.left < 0 ? attention.seq : attention.left;
  const int64_t right = attention.causal ? 0 : attention.right < 0 ? attention.seq : attention.right;
  double seen = 0;
  for (const RowRun& run : queries.runs())
    for (int64_t query = run.begin; query < run.end(); ++query)
      for (const RowRun& held : keys.runs())
        seen += static_cast<double>(std::max<int64_t>(
            0, std::min(held.end(), query + right + 1) - std::max(held.begin, query - left)));
  return seen / (static_cast<double>(attention.queries()) * static_cast<double>(attention.keys()));
}

Work attention_work(const Attention& attention, double products, double bytes, const Tensor& result,
                    bool gradient) {
  const double of_kv_head = static_cast<double>(attention.heads) / static_cast<double>(attention.kv_heads);
  Work work;
  work.kind = Work::Kind::Attention;
  work.dtype = result.dtype;
  work.result = result.shape;
  work.batch = static_cast<double>(attention.batch * attention.given()) * of_kv_head;
  work.rows = static_cast<double>(attention.queries());
  work.columns = static_cast<double>(attention.keys());
  work.inner = static_cast<double>(attention.head_dim);
  work.causal = attention.causal;
  work.gradient = gradient;
  work.visible = visible_scores(attention);
  const auto width = [&](int64_t dim) { return static_cast<double>(dim > 0 ? dim : attention.head_dim); };
  work.flops = products * work.batch * work.rows * work.columns *
               (width(attention.key_dim) + width(attention.value_dim)) * work.visible;
  work.bytes = bytes + bytes_of(attention);
  return work;
}
// Forward has two products: queries with keys, and probabilities with values. Backward has two more for each.
Work counted(Operand<&OpTable::attention>, const Tensor& out, const Tensor& lse, const Tensor& qkv,
             const Attention& attention) {
  return attention_work(attention, 2, sum_of({out, lse, qkv}), out, false);
}
Work counted(Operand<&OpTable::attention_backward>, const Tensor& dqkv, const Tensor& dout, const Tensor& qkv,
             const Tensor& out, const Tensor& lse, const Attention& attention) {
  return attention_work(attention, 4, sum_of({dqkv, dout, qkv, out, lse}), dqkv, true);
}

// Counts only the rows of a table that are looked up or added to.
Work counted(Operand<&OpTable::embedding>, const Tensor& y, const Tensor& /*table*/, const Tensor& ids,
             int64_t, bool accumulate) {
  Work work;
  work.dtype = y.dtype;
  work.result = y.shape;
  work.bytes = (accumulate ? 3 : 2) * bytes_of(y) + bytes_of(ids);
  return work;
}
Work counted(Operand<&OpTable::embedding_backward>, const Tensor& dtable, const Tensor& dy, const Tensor& ids,
             const Tensor& order, int64_t) {
  Work work;
  work.dtype = dtable.dtype;
  work.result = dtable.shape;
  work.bytes = sum_of({dy, ids, order}) +
               2 * static_cast<double>(dy.elements() * static_cast<int64_t>(size_of(dtable.dtype)));
  return work;
}
// Counts only the columns that are copied.
Work counted(Operand<&OpTable::copy_columns>, const Tensor& y, const Tensor& x,
             std::span<const ColumnCopy> copies) {
  Work work;
  work.dtype = y.dtype;
  work.result = y.shape;
  for (const ColumnCopy& copy : copies)
    work.bytes += static_cast<double>(x.row_count() * copy.width) * static_cast<double>(size_of(y.dtype)) *
                  (copy.add ? 3 : 2);
  return work;
}
Work counted(Operand<&OpTable::copy_rows>, const Tensor& y, const Tensor& to, const Tensor& x,
             const Tensor& from) {
  Work work;
  work.dtype = y.dtype;
  work.result = y.shape;
  work.bytes = sum_of({to, from}) +
               2 * static_cast<double>(to.elements() * x.last_dim()) * static_cast<double>(size_of(x.dtype));
  return work;
}

// Counts the products of all pairs of vectors of a sample, both orders, as a matrix product computes them.
Work interaction(const Tensor& vectors, int64_t width, double products, double bytes) {
  const int64_t vectors_of_sample = vectors.last_dim() / width;
  const auto count = static_cast<double>(vectors_of_sample);
  Work work = product(count, count, static_cast<double>(width), vectors.dtype,
                      static_cast<double>(vectors.row_count()) * products);
  work.bytes = bytes;
  return work;
}
Work counted(Operand<&OpTable::dot_interaction>, const Tensor& y, const Tensor& x, int64_t width, bool) {
  Work work = interaction(x, width, 1, sum_of({y, x}));
  work.result = y.shape;
  return work;
}
Work counted(Operand<&OpTable::dot_interaction_backward>, const Tensor& dx, const Tensor& dy, const Tensor& x,
             int64_t width, bool) {
  Work work = interaction(x, width, 2, sum_of({dx, dy, x}));
  work.result = dx.shape;
  return work;
}

// Counts the elements of a view once each: those along axes of stride 0 are one.
double bytes_of(const Tensor& tensor, const StridedView& view, const Box& box) {
  double elements = 1;
  for (size_t axis = 0; axis < static_cast<size_t>(box.rank); ++axis)
    if (view.strides[axis] != 0) elements *= static_cast<double>(box.extents[axis]);
  return elements * static_cast<double>(size_of(tensor.dtype));
}
Work movement(const Tensor& y, double bytes) {
  Work work;
  work.dtype = y.dtype;
  work.result = y.shape;
  work.bytes = bytes;
  return work;
}
Work counted(Operand<&OpTable::strided_copy>, const Tensor& y, const StridedView& to, const Tensor& x,
             const StridedView& from, const Box& box) {
  return movement(y, bytes_of(y, to, box) + bytes_of(x, from, box));
}
Work counted(Operand<&OpTable::strided_sum>, const Tensor& y, const StridedView& to, const Tensor& x,
             const StridedView& from, const Box& box, double, bool accumulate) {
  return movement(y, (accumulate ? 2 : 1) * bytes_of(y, to, box) + bytes_of(x, from, box));
}
Work counted(Operand<&OpTable::map>, const Tensor& y, std::span<const Tensor> x, const Map& map) {
  double bytes = bytes_of(y);
  for (size_t i = 0; i < x.size(); ++i) bytes += bytes_of(x[i], map.from[i], map.box);
  return movement(y, bytes);
}
// Matrices that are shared are read once.
Work counted(Operand<&OpTable::batched_product>, const Tensor& c, const Tensor& a, const Tensor& b,
             const BatchedProduct& batch) {
  Work work = product(static_cast<double>(batch.m), static_cast<double>(batch.n),
                      static_cast<double>(batch.k), a.dtype, static_cast<double>(batch.outer * batch.inner));
  work.result = c.shape;
  const auto bytes = [&](const Tensor& tensor, const MatrixBatch& matrices, int64_t rows, int64_t columns) {
    return bytes_of(tensor, {matrices.begin, {matrices.outer, matrices.inner, 1, 1}},
                    {4, {batch.outer, batch.inner, rows, columns}});
  };
  work.bytes = bytes(a, batch.a, batch.m, batch.k) + bytes(b, batch.b, batch.k, batch.n) +
               (batch.beta != 0 ? 2 : 1) * bytes(c, batch.c, batch.m, batch.n);
  return work;
}

// ---- Tables ----

template <auto Entry>
struct Counting;
template <class... Args, void (*OpTable::*Entry)(Stream&, Args...)>
struct Counting<Entry> {
  // Only plans call it; marked cold, its code is half as large.
  [[gnu::cold]] static void call(Stream& stream, Args... args) {
    (contract::checks().*Entry)(stream, args...);
    if (stream.log() == nullptr) return;
    Work work = counted(Operand<Entry>(), args...);
    work.name = EntryName<Entry>::kText.data();
    stream.write_down(work);
  }
};

OpTable counting_entries() {
  OpTable ops{};
  ops.name = "counting";
  Operations::for_each([&](auto operation) {
    constexpr auto kEntry = decltype(operation)::kEntry;
    ops.*kEntry = Counting<kEntry>::call;
  });
  return ops;
}

const OpTable& fused_entries() {
  static const OpTable kTable = counting_entries();
  return kTable;
}

void add_to_narrow(Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias);

const OpTable& row_entries() {
  static const OpTable kTable = [] {
    OpTable ops = counting_entries();
    add_composed_epilogues<row_entries>(ops);
    ops.affine_add = add_to_narrow;
    return ops;
  }();
  return kTable;
}

// Products of narrow factors add a residual as they write their result (cuda/fp8_blocks.h).
void add_to_narrow(Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias) {
  (is_narrow(x) ? Counting<&OpTable::affine_add>::call : Composed<row_entries>::affine_add)(
      stream, y, residual, x, w, bias);
}

const OpTable& composed_entries();

// Composed products of linear layers; one of a narrow factor is counted as it is, because `gemm` does not read it.
struct ComposedOfWide {
  using Parts = Composed<composed_entries>;
  static void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
    (is_narrow(x) ? Counting<&OpTable::affine>::call : Parts::affine)(stream, y, x, w, bias);
  }
  static void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
    (is_narrow(dy) ? Counting<&OpTable::affine_backward_input>::call : Parts::affine_backward_input)(
        stream, dx, dy, w, beta);
  }
  static void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, const Forms& dy, const Forms& x,
                                     bool accumulate) {
    const bool counted = !is_wide(dy) || !is_wide(x);
    (counted ? Counting<&OpTable::affine_backward_weight>::call : Parts::affine_backward_weight)(
        stream, dw, db, dy, x, accumulate);
  }
};

const OpTable& composed_entries() {
  static const OpTable kTable = [] {
    OpTable ops = counting_entries();
    add_composed_products<composed_entries>(ops);
    ops.affine = ComposedOfWide::affine;
    ops.affine_backward_input = ComposedOfWide::affine_backward_input;
    ops.affine_backward_weight = ComposedOfWide::affine_backward_weight;
    add_composed_rows<composed_entries>(ops);
    return ops;
  }();
  return kTable;
}

}  // namespace

const OpTable& counting_ops(FusedOps fused) {
  switch (fused) {
    case FusedOps::All:
      return fused_entries();
    case FusedOps::Rows:
      return row_entries();
    case FusedOps::None:
      return composed_entries();
  }
  fail("there is no table of counting operations {}", static_cast<int>(fused));
}

}  // namespace trifold
