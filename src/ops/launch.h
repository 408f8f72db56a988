// Launchers: one per entry of OpTable. Each checks its tensors at once, then enqueues work that splits the
// operation over the stream's pool and calls the kernels of `table` on the parts. ops.h says what they
// compute.
//
// How much one worker must at least get is measured in elements: waking a second worker costs about as much
// as a few thousand additions.
#pragma once

#include "ops/kernels.h"
#include "ops/ops.h"

namespace trifold::cpu {

void fill(const KernelTable& table, Stream& stream, Tensor y, double value);
void copy(const KernelTable& table, Stream& stream, Tensor y, Tensor x);
void convert(const KernelTable& table, Stream& stream, Tensor y, Tensor x);
void scale(const KernelTable& table, Stream& stream, Tensor y, const Factor& a);
void add(const KernelTable& table, Stream& stream, Tensor y, Tensor a, Tensor b);
void reduce(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Reduce how);
void fill_rows(const KernelTable& table, Stream& stream, Tensor y, Tensor row);
void gelu(const KernelTable& table, Stream& stream, Tensor y, Tensor x);
void gelu_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x);
void gelu_erf(const KernelTable& table, Stream& stream, Tensor y, Tensor x);
void gelu_erf_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x);
void tanh(const KernelTable& table, Stream& stream, Tensor y, Tensor x);
void tanh_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor y);
void swiglu(const KernelTable& table, Stream& stream, Tensor y, Tensor x);
void swiglu_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x);
void dropout(const KernelTable& table, Stream& stream, Tensor y, Tensor x, const Dropout& how);
void dropout_add(const KernelTable& table, Stream& stream, Tensor y, Tensor residual, Tensor x,
                 const Dropout& how);

void gemm(const KernelTable& table, Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b,
          bool transpose_b, double alpha, double beta);
void affine(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias);
void affine_add(const KernelTable& table, Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w,
                Tensor bias);
void affine_gelu(const KernelTable& table, Stream& stream, Tensor y, Tensor z, Tensor x, Tensor w,
                 Tensor bias);
void affine_backward_input(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor w,
                           double beta);
void affine_backward_gelu(const KernelTable& table, Stream& stream, Tensor dz, Tensor dy, Tensor w, Tensor z);
void affine_backward_weight(const KernelTable& table, Stream& stream, Tensor dw, Tensor db, Tensor dy,
                            Tensor x, bool accumulate);

void layer_norm(const KernelTable& table, Stream& stream, Tensor y, Tensor mean, Tensor rstd, Tensor x,
                Tensor gain, Tensor bias, double eps);
void layer_norm_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x,
                         Tensor mean, Tensor rstd, Tensor gain);
void layer_norm_backward_add(const KernelTable& table, Stream& stream, Tensor dx, Tensor residual, Tensor dy,
                             Tensor x, Tensor mean, Tensor rstd, Tensor gain);
void layer_norm_backward_weight(const KernelTable& table, Stream& stream, Tensor dgain, Tensor dbias,
                                Tensor dy, Tensor x, Tensor mean, Tensor rstd, bool accumulate);
void layer_norm_backward_all(const KernelTable& table, Stream& stream, Tensor dx, Tensor dgain, Tensor dbias,
                             Tensor residual, Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor gain,
                             bool accumulate);
void rms_norm(const KernelTable& table, Stream& stream, Tensor y, Tensor rstd, Tensor x, Tensor gain,
              double eps);
void rms_norm_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x, Tensor rstd,
                       Tensor gain);
void rms_norm_backward_add(const KernelTable& table, Stream& stream, Tensor dx, Tensor residual, Tensor dy,
                           Tensor x, Tensor rstd, Tensor gain);
void rms_norm_backward_weight(const KernelTable& table, Stream& stream, Tensor dgain, Tensor dy, Tensor x,
                              Tensor rstd, bool accumulate);
void rms_norm_backward_all(const KernelTable& table, Stream& stream, Tensor dx, Tensor dgain, Tensor residual,
                           Tensor dy, Tensor x, Tensor rstd, Tensor gain, bool accumulate);
void column_sum(const KernelTable& table, Stream& stream, Tensor db, Tensor dy, bool accumulate);

void rotary(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor positions,
            const Rotary& how);

void embedding(const KernelTable& table, Stream& stream, Tensor y, Tensor rows, Tensor ids, int64_t first_id,
               bool accumulate);
void embedding_backward(const KernelTable& table, Stream& stream, Tensor drows, Tensor dy, Tensor ids,
                        Tensor order, int64_t first_id);

void attention(const KernelTable& table, Stream& stream, Tensor out, Tensor lse, Tensor qkv,
               const Attention& how);
void attention_backward(const KernelTable& table, Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv,
                        Tensor out, Tensor lse, const Attention& how);

void softmax_stats(const KernelTable& table, Stream& stream, Tensor max, Tensor sum, Tensor target,
                   Tensor logits, Tensor labels, int64_t first_id, int64_t vocab);
void softmax_rescale(const KernelTable& table, Stream& stream, Tensor sum, Tensor local_max,
                     Tensor global_max);
void cross_entropy(const KernelTable& table, Stream& stream, Tensor loss, Tensor max, Tensor sum,
                   Tensor target);
void cross_entropy_backward(const KernelTable& table, Stream& stream, Tensor dlogits, Tensor logits,
                            Tensor max, Tensor sum, Tensor labels, Tensor weight, const Factor& scale,
                            int64_t first_id, int64_t vocab);

void sum_squares(const KernelTable& table, Stream& stream, Tensor total, Tensor x);
void weighted_sum(const KernelTable& table, Stream& stream, Tensor total, Tensor x, Tensor weight);
void exact_sum(const KernelTable& table, Stream& stream, Tensor limbs, Tensor x);
void chunk_squares(const KernelTable& table, Stream& stream, Tensor partials, Tensor x);

void adamw(const KernelTable& table, Stream& stream, Tensor p, Tensor copy, Tensor m, Tensor v, Tensor g,
           const AdamW& rule);
void sgd(const KernelTable& table, Stream& stream, Tensor p, Tensor copy, Tensor b, Tensor g,
         const Sgd& rule);
void adagrad(const KernelTable& table, Stream& stream, Tensor p, Tensor copy, Tensor s, Tensor g,
             const Adagrad& rule);
void lamb_moments(const KernelTable& table, Stream& stream, Tensor p_squares, Tensor u_squares, Tensor m,
                  Tensor v, Tensor p, Tensor g, const Lamb& rule);
void lamb(const KernelTable& table, Stream& stream, Tensor p, Tensor copy, Tensor m, Tensor v,
          const Lamb& rule);

void linear(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu);
void relu_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor db, Tensor dy, Tensor y,
                   bool accumulate);
void embedding_bags(const KernelTable& table, Stream& stream, Tensor y, std::span<const BagLookup> lookups);
void sort_lookups(const KernelTable& table, Stream& stream, std::span<const LookupOrder> orders,
                  std::span<const BagLookup> lookups);
void update_rows(const KernelTable& table, Stream& stream, Tensor dy, std::span<const RowUpdate> updates,
                 const SparseRule& rule);
void row_squares(const KernelTable& table, Stream& stream, Tensor dy, std::span<const RowUpdate> updates,
                 double grad_scale);
void row_gradients(const KernelTable& table, Stream& stream, Tensor dy, std::span<const RowUpdate> updates);
void dot_interaction(const KernelTable& table, Stream& stream, Tensor y, Tensor x, int64_t width, bool self);
void dot_interaction_backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor x,
                              int64_t width, bool self);
void cross(const KernelTable& table, Stream& stream, Tensor y, Tensor x0, Tensor u, Tensor x);
void cross_backward(const KernelTable& table, Stream& stream, Tensor du, Tensor dx0, Tensor dy, Tensor x0,
                    Tensor u);
void sigmoid(const KernelTable& table, Stream& stream, Tensor p, Tensor z);
void click_loss(const KernelTable& table, Stream& stream, Tensor loss, Tensor z, Tensor labels,
                ClickLoss how);
void click_loss_backward(const KernelTable& table, Stream& stream, Tensor dz, Tensor z, Tensor labels,
                         Tensor weight, const Factor& scale, ClickLoss how);
void copy_columns(const KernelTable& table, Stream& stream, Tensor y, Tensor x,
                  std::span<const ColumnCopy> copies);

}  // namespace trifold::cpu
