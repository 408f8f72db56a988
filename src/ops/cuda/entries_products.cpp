// Plain products and attention on CUDA, for types that the libraries do not support, and to check the
// libraries against.
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

namespace {

PlainAttention plain(const char* op, const Attention& how) {
  check(how.rows.rows() == 0, "{}: some of a sequence's positions alone are not computed on CUDA", op);
  check(how.head_dim <= kPlainAttentionWidth,
        "{}: heads of {} numbers are not computed on CUDA: at most {} are", op, how.head_dim,
        kPlainAttentionWidth);
  return {how.batch,
          how.seq,
          how.heads,
          how.kv_heads,
          how.head_dim,
          cpu::first_head(op, how),
          how.global_heads,
          how.scale,
          how.causal,
          how.lengths.data == nullptr ? nullptr : how.lengths.as<int32_t>(),
          how.first_keys.data == nullptr ? nullptr : how.first_keys.as<int32_t>(),
          cpu::drop_rule(op, how.dropout)};
}

}  // namespace

void plain_attention(Stream& stream, Tensor out, Tensor lse, Tensor qkv, const Attention& how) {
  const PlainAttention shape = plain("attention", how);
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "attention",
            [shape, to = out.as<T>(), sums = lse.as<Accumulate<T>>(), in = qkv.as<T>()](CudaStream on) {
              plain_attention<T>(on, to, sums, in, shape);
            });
  });
}

void plain_attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                              const Attention& how) {
  const PlainAttention shape = plain("attention_backward", how);
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "attention_backward",
            [shape, to = dqkv.as<T>(), grad = dout.as<T>(), in = qkv.as<T>(), from = out.as<T>(),
             sums = lse.as<Accumulate<T>>()](CudaStream on) {
              plain_attention_backward<T>(on, to, grad, in, from, sums, shape);
            });
  });
}

}  // namespace trifold::cuda
