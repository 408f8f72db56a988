// The entries of the CUDA OpTable that hand-written kernels compute (ops/cuda/kernels). Each checks its
// tensors at once and then enqueues launches; ops/ops.h says what they compute.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

void fill(Stream& stream, Tensor y, double value);
void convert(Stream& stream, Tensor y, Tensor x);
void scale(Stream& stream, Tensor y, const Factor& a);
void add(Stream& stream, Tensor y, Tensor a, Tensor b);
void reduce(Stream& stream, Tensor y, Tensor x, Reduce how);
void fill_rows(Stream& stream, Tensor y, Tensor row);
void gelu(Stream& stream, Tensor y, Tensor x);
void gelu_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x);
void gelu_erf(Stream& stream, Tensor y, Tensor x);
void gelu_erf_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x);
void tanh(Stream& stream, Tensor y, Tensor x);
void tanh_backward(Stream& stream, Tensor dx, Tensor dy, Tensor y);
void swiglu(Stream& stream, Tensor y, Tensor x);
void swiglu_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x);
void dropout(Stream& stream, Tensor y, Tensor x, const Dropout& how);
void dropout_add(Stream& stream, Tensor y, Tensor residual, Tensor x, const Dropout& how);

void layer_norm(Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x, Tensor gain, Tensor bias,
                double eps);
void layer_norm_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, Tensor mean, Tensor rstd,
                         Tensor gain);
void layer_norm_backward_add(Stream& stream, Tensor dx, Tensor residual, Tensor dy, Tensor x, Tensor mean,
                             Tensor rstd, Tensor gain);
void layer_norm_backward_weight(Stream& stream, Tensor dgain, Tensor dbias, Tensor dy, Tensor x, Tensor mean,
                                Tensor rstd, bool accumulate);
void layer_norm_backward_all(Stream& stream, Tensor dx, Tensor dgain, Tensor dbias, Tensor residual,
                             Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor gain, bool accumulate);
void rms_norm(Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor gain, double eps);
void rms_norm_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, Tensor rstd, Tensor gain);
void rms_norm_backward_add(Stream& stream, Tensor dx, Tensor residual, Tensor dy, Tensor x, Tensor rstd,
                           Tensor gain);
void rms_norm_backward_weight(Stream& stream, Tensor dgain, Tensor dy, Tensor x, Tensor rstd,
                              bool accumulate);
void rms_norm_backward_all(Stream& stream, Tensor dx, Tensor dgain, Tensor residual, Tensor dy, Tensor x,
                           Tensor rstd, Tensor gain, bool accumulate);
void column_sum(Stream& stream, Tensor db, Tensor dy, bool accumulate);
void rotary(Stream& stream, Tensor y, Tensor x, Tensor positions, const Rotary& how);
void embedding(Stream& stream, Tensor y, Tensor table, Tensor ids, int64_t first_id, bool accumulate);
void embedding_backward(Stream& stream, Tensor dtable, Tensor dy, Tensor ids, Tensor order, int64_t first_id);

void softmax_stats(Stream& stream, Tensor max, Tensor sum, Tensor target, Tensor logits, Tensor labels,
                   int64_t first_id, int64_t vocab);
void softmax_rescale(Stream& stream, Tensor sum, Tensor local_max, Tensor global_max);
void cross_entropy(Stream& stream, Tensor loss, Tensor max, Tensor sum, Tensor target);
void cross_entropy_backward(Stream& stream, Tensor dlogits, Tensor logits, Tensor max, Tensor sum,
                            Tensor labels, Tensor weight, const Factor& scale, int64_t first_id,
                            int64_t vocab);

void sum_squares(Stream& stream, Tensor total, Tensor x);
void weighted_sum(Stream& stream, Tensor total, Tensor x, Tensor weight);
void chunk_squares(Stream& stream, Tensor partials, Tensor x);
void exact_sum(Stream& stream, Tensor limbs, Tensor x);
void adamw(Stream& stream, Tensor p, Tensor copy, Tensor m, Tensor v, Tensor g, const AdamW& rule);
void sgd(Stream& stream, Tensor p, Tensor copy, Tensor b, Tensor g, const Sgd& rule);
void adagrad(Stream& stream, Tensor p, Tensor copy, Tensor s, Tensor g, const Adagrad& rule);
void lamb_moments(Stream& stream, Tensor p_squares, Tensor u_squares, Tensor m, Tensor v, Tensor p, Tensor g,
                  const Lamb& rule);
void lamb(Stream& stream, Tensor p, Tensor copy, Tensor m, Tensor v, const Lamb& rule);

// y += bias, then where `relu` is set max(0, that): what `linear` has behind its product.
void bias_relu(Stream& stream, Tensor y, Tensor bias, bool relu);
void relu_backward(Stream& stream, Tensor dx, Tensor db, Tensor dy, Tensor y, bool accumulate);
void embedding_bags(Stream& stream, Tensor y, std::span<const BagLookup> lookups);
void sort_lookups(Stream& stream, std::span<const LookupOrder> orders, std::span<const BagLookup> lookups);
void update_rows(Stream& stream, Tensor dy, std::span<const RowUpdate> updates, const SparseRule& rule);
void row_squares(Stream& stream, Tensor dy, std::span<const RowUpdate> updates, double grad_scale);
void row_gradients(Stream& stream, Tensor dy, std::span<const RowUpdate> updates);
void dot_interaction(Stream& stream, Tensor y, Tensor x, int64_t width, bool self);
void dot_interaction_backward(Stream& stream, Tensor dx, Tensor dy, Tensor x, int64_t width, bool self);
void cross(Stream& stream, Tensor y, Tensor x0, Tensor u, Tensor x);
void cross_backward(Stream& stream, Tensor du, Tensor dx0, Tensor dy, Tensor x0, Tensor u);
void sigmoid(Stream& stream, Tensor p, Tensor z);
void click_loss(Stream& stream, Tensor loss, Tensor z, Tensor labels, ClickLoss how);
void click_loss_backward(Stream& stream, Tensor dz, Tensor z, Tensor labels, Tensor weight,
                         const Factor& scale, ClickLoss how);
void copy_columns(Stream& stream, Tensor y, Tensor x, std::span<const ColumnCopy> copies);

// The plain products of product.cu and attention.cu: to check the libraries' against, and for f64 and f32.
void plain_gemm(Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b,
                double alpha, double beta);

// Products with what stands beside them (ops.h), as `gemm` and the kernels one after another: what is left
// where cuBLASLt has no epilogue for a shape, and what its epilogues are checked against.
using Gemm = void(Stream&, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
                  double beta);
void composed_affine(Gemm* gemm, Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias);
void composed_gelu_backward(Gemm* gemm, Stream& stream, Tensor dz, Tensor dy, Tensor w, Tensor z);
void composed_backward_weight(Gemm* gemm, Stream& stream, Tensor dw, Tensor db, Tensor dy, Tensor x,
                              bool accumulate);

void plain_attention(Stream& stream, Tensor out, Tensor lse, Tensor qkv, const Attention& how);
void plain_attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                              const Attention& how);

}  // namespace trifold::cuda
