// The contract of matrix products, the products of linear layers, and attention. An operation that is
// defined as a sequence of others has their checks.
#include "ops/contract.h"
#include "ops/expect.h"
#include "ops/narrow.h"

namespace trifold::contract {

void gemm(const Tensor& c, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
          double /*alpha*/, double /*beta*/) {
  expect_matrix("gemm", "c", c);
  expect_matrix("gemm", "a", a);
  expect_matrix("gemm", "b", b);
  const int64_t m = c.row_count();
  const int64_t n = c.last_dim();
  const int64_t k = transpose_a ? a.row_count() : a.last_dim();
  const bool types_fit = a.dtype == b.dtype && (c.dtype == a.dtype || c.dtype == accumulate_type(a.dtype));
  const bool fits = types_fit && a.elements() == m * k && b.elements() == k * n &&
                    a.last_dim() == (transpose_a ? m : k) && b.last_dim() == (transpose_b ? k : n);
  if (!fits)
    fail("gemm: {} {} is not the product of {} {}{} and {} {}{}", name_of(c.dtype), to_string(c.shape),
         name_of(a.dtype), to_string(a.shape), transpose_a ? " transposed" : "", name_of(b.dtype),
         to_string(b.shape), transpose_b ? " transposed" : "");
}

namespace {

// The extents of a factor of which a product reads the rows.
Tensor rows_of_factor(const char* op, const char* name, const Tensor& factor) {
  check(!is_turned(factor), "{}: {} is turned, but its rows are needed", op, name);
  return widened(factor);
}

// y = x w^T + bias, on behalf of `op`. With a bias, all have the same type.
void expect_affine(const char* op, const Tensor& y, const Tensor& factor, const Tensor& w,
                   const Tensor& bias) {
  const Tensor x = rows_of_factor(op, "x", factor);
  gemm(y, x, false, w, true, 1, 0);
  if (bias.rank() == 0) return;
  expect(op, "y", y, x.dtype, y.elements());
  expect(op, "bias", bias, x.dtype, y.last_dim());
}

}  // namespace

void affine(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias) {
  expect_affine("affine", y, x, w, bias);
}

void affine_add(const Tensor& y, const Tensor& residual, const Tensor& x, const Tensor& w,
                const Tensor& bias) {
  expect_affine("affine_add", y, x, w, bias);
  expect("affine_add", "residual", residual, y.dtype, y.elements());
}

void affine_gelu(const Forms& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& bias) {
  expect_affine("affine_gelu", z, x, w, bias);
  expect_result_forms("affine_gelu", "y", y, z.dtype, z.row_count(), z.last_dim());
  gemm(widened(y), widened(x), false, w, true, 1,
       0);  // y's shape must match too, because back ends may use it
}

void affine_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w, double beta) {
  gemm(dx, rows_of_factor("affine_backward_input", "dy", dy), false, w, false, 1, beta);
}

void affine_backward_gelu(const Tensor& dz, const Tensor& dy, const Tensor& w, const Tensor& z) {
  gemm(dz, rows_of_factor("affine_backward_gelu", "dy", dy), false, w, false, 1, 0);
  expect("affine_backward_gelu", "z", z, dz.dtype, dz.elements());
}

void affine_backward_weight(const Tensor& dw, const Tensor& db, const Forms& left, const Forms& right,
                            bool /*accumulate*/) {
  const char* const op = "affine_backward_weight";
  for (const Forms* factor : {&left, &right})
    check(is_present(factor->rows) || is_present(factor->turned), "{}: dy and x need rows or a turned form",
          op);
  const Tensor dy = widened(left), x = widened(right);
  gemm(dw, dy, true, x, false, 1, 0);
  if (!right.are_wide()) expect_forms(op, "x", right, x.dtype, x.row_count(), x.last_dim());
  if (!left.are_wide()) expect_forms(op, "dy", left, dy.dtype, dy.row_count(), dy.last_dim());
  if (db.rank() == 0) return;
  expect(op, "db", db, accumulate_type(dy.dtype), dy.last_dim());
  check(is_present(left.sums) || !is_present(left.turned),
        "{}: dy is turned without sums, which the gradient of the bias needs", op);
}

void linear(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, bool /*relu*/) {
  expect_matrix("linear", "x", x);
  expect_matrix("linear", "w", w);
  const int64_t n = w.row_count();
  expect("linear", "w", w, x.dtype, n * x.last_dim());
  expect("linear", "y", y, x.dtype, x.row_count() * n);
  expect("linear", "bias", bias, x.dtype, n);
  gemm(y, x, false, w, true, 1, 0);  // y's shape, not only its number of elements
}

namespace {

// Checks attention with gathered keys (Attention::rows).
void expect_gathered(const char* op, const Attention& attention, DType dtype) {
  check(attention.rows.length() == attention.seq, "{}: rows cover {} positions, but seq is {}", op,
        attention.rows.length(), attention.seq);
  expect(op, "key_values", attention.key_values, dtype,
         attention.batch * attention.keys() * 2 * attention.given() * attention.head_dim);
}

// Checks a step over some of the keys (Attention::key_rows).
void expect_step(const char* op, const Attention& attention) {
  check(attention.rows.rows() > 0 && attention.key_rows.length() == attention.seq,
        "{}: key_rows cover {} positions and rows select {}, but {} and at least 1 are needed", op,
        attention.key_rows.length(), attention.rows.rows(), attention.seq);
  check(
      attention.further || attention.key_rows == attention.rows,
      "{}: key_rows of the first step differ from rows: it computes with the keys at the queries' positions",
      op);
  for (const RowRun& queries : attention.rows.runs())
    for (const RowRun& keys : attention.key_rows.runs())
      check((keys.begin == queries.begin && keys.count == queries.count) || keys.end() <= queries.begin ||
                queries.end() <= keys.begin,
            "{}: keys of positions [{}, {}) overlap queries of positions [{}, {})", op, keys.begin,
            keys.end(), queries.begin, queries.end());
}

// `out_type` is the dtype of the output.
void expect_attention(const char* op, const Tensor& out, DType out_type, const Tensor& lse, const Tensor& qkv,
                      const Attention& attention) {
  check(attention.batch >= 0 && attention.seq >= 0 && attention.head_dim >= 1,
        "{}: batch {}, seq {}, head_dim {} are invalid", op, attention.batch, attention.seq,
        attention.head_dim);
  check(attention.kv_heads >= 1 && attention.heads >= 1 && attention.heads % attention.kv_heads == 0,
        "{}: {} query heads are not a multiple of {} key heads", op, attention.heads, attention.kv_heads);
  if (attention.lengths.data != nullptr)
    expect(op, "lengths", attention.lengths, DType::I32, attention.batch);
  if (attention.first_keys.data != nullptr) {
    expect(op, "first_keys", attention.first_keys, DType::I32, attention.batch * attention.seq);
    check(attention.causal && attention.lengths.data == nullptr,
          "{}: first_keys need causal attention without lengths, but this attention {}", op,
          attention.causal ? "has lengths" : "is not causal");
  }
  check(!attention.causal || attention.right < 0, "{}: causal attention cannot have {} keys after a query",
        op, attention.right);
  check(attention.soft_cap >= 0, "{}: soft_cap {} is negative", op, attention.soft_cap);
  check(
      attention.dropout.probability == 0 || attention.global_heads >= attention.first_head + attention.heads,
      "{}: heads [{}, {}) exceed the {} heads of the whole model", op, attention.first_head,
      attention.first_head + attention.heads, attention.global_heads);
  check(attention.first_given >= 0 && attention.given_heads >= 0 &&
            attention.first_given + attention.given() <= attention.kv_heads &&
            (attention.given() == attention.kv_heads || attention.rows.rows() > 0),
        "{}: key_values have {} key heads from {} on, but the layer has {}{}", op, attention.given(),
        attention.first_given, attention.kv_heads,
        attention.rows.rows() > 0 ? "" : ", and packed projections have all of them");
  const int64_t rows = attention.batch * attention.queries();
  if (attention.rows.rows() > 0) expect_gathered(op, attention, qkv.dtype);
  if (attention.in_steps()) expect_step(op, attention);
  expect(op, "qkv", qkv, qkv.dtype, rows * (attention.heads + 2 * attention.kv_heads) * attention.head_dim);
  expect(op, "out", out, out_type, rows * attention.heads * attention.head_dim);
  expect(op, "lse", lse, accumulate_type(qkv.dtype), rows * attention.heads);
}

}  // namespace

void attention(const Tensor& out, const Tensor& lse, const Tensor& qkv, const Attention& attention) {
  expect_attention("attention", out, attention.in_steps() ? accumulate_type(qkv.dtype) : qkv.dtype, lse, qkv,
                   attention);
}

void attention_backward(const Tensor& dqkv, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                        const Tensor& lse, const Attention& attention) {
  expect_attention("attention_backward", out, qkv.dtype, lse, qkv, attention);
  expect("attention_backward", "dqkv", dqkv, out.dtype, qkv.elements());
  expect("attention_backward", "dout", dout, out.dtype, out.elements());
  if (attention.rows.rows() > 0)
    expect("attention_backward", "dkey_values", attention.dkey_values, accumulate_type(out.dtype),
           attention.key_values.elements());
  if (attention.in_steps())
    expect("attention_backward", "dqueries", attention.dqueries, accumulate_type(out.dtype), out.elements());
}

namespace {

void expect_sinks(const char* op, const Tensor& out, const Tensor& lse, const Tensor& sinks) {
  check(lse.rank() == 3 && lse.dim(1) >= 1, "{}: lse has {} dims: give [samples, heads, queries]", op,
        lse.rank());
  expect_float(op, "out", out);
  expect(op, "lse", lse, accumulate_type(out.dtype), lse.elements());
  expect(op, "sinks", sinks, out.dtype, lse.dim(1));
  check(out.row_count() == lse.dim(0) * lse.dim(2) && out.last_dim() % lse.dim(1) == 0,
        "{}: out has {} rows of {} for {} samples of {} queries and {} heads", op, out.row_count(),
        out.last_dim(), lse.dim(0), lse.dim(2), lse.dim(1));
}

}  // namespace

void attention_sinks(const Tensor& out, const Tensor& lse, const Tensor& sinks) {
  expect_sinks("attention_sinks", out, lse, sinks);
}

void attention_sinks_backward(const Tensor& dsinks, const Tensor& dout, const Tensor& out, const Tensor& lse,
                              const Tensor& sinks) {
  expect_sinks("attention_sinks_backward", out, lse, sinks);
  expect("attention_sinks_backward", "dout", dout, out.dtype, out.elements());
  expect("attention_sinks_backward", "dsinks", dsinks, lse.dtype, sinks.elements());
}

void add_products(OpTable& checks) {
  bind<&OpTable::gemm, gemm>(checks);
  bind<&OpTable::affine, affine>(checks);
  bind<&OpTable::affine_add, affine_add>(checks);
  bind<&OpTable::affine_gelu, affine_gelu>(checks);
  bind<&OpTable::affine_backward_input, affine_backward_input>(checks);
  bind<&OpTable::affine_backward_gelu, affine_backward_gelu>(checks);
  bind<&OpTable::affine_backward_weight, affine_backward_weight>(checks);
  bind<&OpTable::linear, linear>(checks);
  bind<&OpTable::attention, attention>(checks);
  bind<&OpTable::attention_backward, attention_backward>(checks);
  bind<&OpTable::attention_sinks, attention_sinks>(checks);
  bind<&OpTable::attention_sinks_backward, attention_sinks_backward>(checks);
}

}  // namespace trifold::contract
