// Raw entries of the CUDA OpTable (ops/contract.h) that are computed by hand-written kernels
// (ops/cuda/kernels). Each enqueues launches; ops/ops.h defines the operations.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// Each sets the entries of one family, at the end of entries_<family>.cpp.
void add_elementwise(OpTable& ops);
void add_rows(OpTable& ops);
void add_optimizer(OpTable& ops);
void add_recommender(OpTable& ops);
void add_experts(OpTable& ops);
void add_latent(OpTable& ops);

// y += bias, then max(0, y) if `relu` is set: the second part of `linear`.
void bias_relu(Stream& stream, Tensor y, Tensor bias, bool relu);

// The plain products of product.cu and attention.cu: to check the libraries against, and for f64 and f32.
void plain_gemm(Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b,
                double alpha, double beta);
void plain_attention(Stream& stream, Tensor out, Tensor lse, Tensor qkv, const Attention& how);
void plain_attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                              const Attention& how);

}  // namespace trifold::cuda
