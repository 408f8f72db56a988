// Matrix product and attention on CUDA without libraries: for calls that the libraries do not support, and as the
// reference in tests.
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"

namespace trifold::cuda {

void plain_gemm(Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b,
                double alpha, double beta) {
  const int64_t m = c.row_count();
  const int64_t n = c.last_dim();
  const int64_t k = transpose_a ? a.row_count() : a.last_dim();
  dispatch_float(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto product = [&](auto* out) {
      using C = std::remove_reference_t<decltype(*out)>;
      enqueue(stream, "gemm", [=, left = a.as<T>(), right = b.as<T>()](CudaStream on) {
        plain_gemm<T, C>(on, out, left, transpose_a, right, transpose_b, m, n, k, alpha, beta);
      });
    };
    if (c.dtype == a.dtype)  // NOLINT(bugprone-branch-clone): the types differ
      product(c.as<T>());
    else
      product(c.as<Accumulate<T>>());
  });
}

void plain_batched_product(Stream& stream, Tensor c, Tensor a, Tensor b, const BatchedProduct& product) {
  dispatch_float(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto products = [&](auto* out) {
      using C = std::remove_reference_t<decltype(*out)>;
      enqueue(stream, "batched_product", [=, left = a.as<T>(), right = b.as<T>()](CudaStream on) {
        plain_batched_product<T, C>(on, out, left, right, product);
      });
    };
    if (c.dtype == a.dtype)  // NOLINT(bugprone-branch-clone): the types differ
      products(c.as<T>());
    else
      products(c.as<Accumulate<T>>());
  });
}

namespace {

RowPositions positions_of(const SequenceRows& rows) {
  const std::span<const RowRun> runs = rows.runs();
  RowPositions result{rows.rows(), rows.rows(), {0, 0}};
  if (runs.empty()) return result;
  result.first = runs[0].count;
  result.begin[0] = runs[0].begin;
  result.begin[1] = runs.size() > 1 ? runs[1].begin : 0;
  return result;
}

PlainAttention plain(const char* op, const Attention& attention) {
  check(attention.head_dim <= kPlainAttentionWidth,
        "{}: heads have {} elements, but CUDA supports at most {}", op, attention.head_dim,
        kPlainAttentionWidth);
  const SequenceRows all(attention.seq);
  return {attention.batch,
          attention.seq,
          attention.heads,
          attention.kv_heads,
          attention.head_dim,
          attention.first_given,
          attention.given(),
          positions_of(attention.rows.rows() > 0 ? attention.rows : all),
          positions_of(attention.in_steps() ? attention.key_rows : all),
          attention.rows.rows() > 0,
          attention.in_steps(),
          attention.further,
          cpu::first_head(op, attention),
          attention.global_heads,
          attention.scale,
          attention.left < 0 ? attention.seq : attention.left,
          attention.causal      ? 0
          : attention.right < 0 ? attention.seq
                                : attention.right,
          attention.soft_cap,
          attention.lengths.data == nullptr ? nullptr : attention.lengths.as<int32_t>(),
          attention.first_keys.data == nullptr ? nullptr : attention.first_keys.as<int32_t>(),
          cpu::drop_rule(op, attention.dropout)};
}

}  // namespace

void plain_attention(Stream& stream, Tensor out, Tensor lse, Tensor qkv, const Attention& attention) {
  const PlainAttention shape = plain("attention", attention);
  dispatch_float(qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    const T* in = qkv.as<T>();
    const PlainForward<T> tensors{shape.in_steps ? nullptr : out.as<T>(),
                                  shape.in_steps ? out.as<Wide>() : nullptr, lse.as<Wide>(), in,
                                  shape.gathered ? attention.key_values.as<T>() : in};
    enqueue(stream, "attention", [=](CudaStream on) { plain_attention<T>(on, tensors, shape); });
  });
}

void plain_attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                              const Attention& attention) {
  const PlainAttention shape = plain("attention_backward", attention);
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    const T* in = qkv.as<T>();
    const PlainBackward<T> tensors{dqkv.as<T>(),
                                   shape.gathered ? attention.dkey_values.as<Wide>() : nullptr,
                                   shape.in_steps ? attention.dqueries.as<Wide>() : nullptr,
                                   dout.as<T>(),
                                   in,
                                   shape.gathered ? attention.key_values.as<T>() : in,
                                   out.as<T>(),
                                   lse.as<Wide>()};
    enqueue(stream, "attention_backward",
            [=](CudaStream on) { plain_attention_backward<T>(on, tensors, shape); });
  });
}

void attention_sinks(Stream& stream, Tensor out, Tensor lse, Tensor sinks) {
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "attention_sinks",
            [rows = out.as<T>(), sums = lse.as<Accumulate<T>>(), logits = sinks.as<T>(), batch = lse.dim(0),
             heads = lse.dim(1), queries = lse.dim(2), width = out.last_dim() / lse.dim(1)](CudaStream on) {
              attention_sinks<T>(on, rows, sums, logits, batch, heads, queries, width);
            });
  });
}

void attention_sinks_backward(Stream& stream, Tensor dsinks, Tensor dout, Tensor out, Tensor lse,
                              Tensor sinks) {
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "attention_sinks_backward",
            [gradient = dsinks.as<Accumulate<T>>(), drows = dout.as<T>(), rows = out.as<T>(),
             sums = lse.as<Accumulate<T>>(), logits = sinks.as<T>(), batch = lse.dim(0), heads = lse.dim(1),
             queries = lse.dim(2), width = out.last_dim() / lse.dim(1)](CudaStream on) {
              attention_sinks_backward<T>(on, gradient, drows, rows, sums, logits, batch, heads, queries,
                                          width);
            });
  });
}

}  // namespace trifold::cuda
