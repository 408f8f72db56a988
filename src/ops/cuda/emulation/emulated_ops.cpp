#include "ops/cuda/emulation/emulated_ops.h"

#include <cstring>

#include "ops/cuda/emulation/emulation.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"

namespace trifold::cuda {

namespace {

void copy(Stream& stream, Tensor y, Tensor x) {
  expect("copy", "x", x, y.dtype, y.elements());
  enqueue(stream, "copy",
          [to = y.data, from = x.data, bytes = static_cast<int64_t>(y.bytes())](CudaStream on) {
            copy_bytes(on, to, from, bytes);
          });
}

void linear(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu) {
  plain_gemm(stream, y, x, false, w, true, 1, 0);
  bias_relu(stream, y, bias, relu);
}

void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  composed_affine(plain_gemm, stream, y, x, w, bias);
}

void affine_add(Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias) {
  composed_affine(plain_gemm, stream, y, x, w, bias);
  add(stream, y, residual, y);
}

void affine_gelu(Stream& stream, Tensor y, Tensor z, Tensor x, Tensor w, Tensor bias) {
  composed_affine(plain_gemm, stream, z, x, w, bias);
  gelu(stream, y, z);
}

void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
  plain_gemm(stream, dx, dy, false, w, false, 1, beta);
}

void affine_backward_gelu(Stream& stream, Tensor dz, Tensor dy, Tensor w, Tensor z) {
  composed_gelu_backward(plain_gemm, stream, dz, dy, w, z);
}

void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, Tensor dy, Tensor x, bool accumulate) {
  composed_backward_weight(plain_gemm, stream, dw, db, dy, x, accumulate);
}

}  // namespace

const OpTable& emulated_ops() {
  static const OpTable kTable = {
      .name = "cuda, emulated",
      .device = nullptr,
      .fill = fill,
      .copy = copy,
      .convert = convert,
      .scale = scale,
      .add = add,
      .reduce = reduce,
      .fill_rows = fill_rows,
      .gemm = plain_gemm,
      .affine = affine,
      .affine_add = affine_add,
      .affine_gelu = affine_gelu,
      .affine_backward_input = affine_backward_input,
      .affine_backward_gelu = affine_backward_gelu,
      .affine_backward_weight = affine_backward_weight,
      .gelu = gelu,
      .gelu_backward = gelu_backward,
      .gelu_erf = gelu_erf,
      .gelu_erf_backward = gelu_erf_backward,
      .tanh = tanh,
      .tanh_backward = tanh_backward,
      .swiglu = swiglu,
      .swiglu_backward = swiglu_backward,
      .dropout = dropout,
      .dropout_add = dropout_add,
      .layer_norm = layer_norm,
      .layer_norm_backward = layer_norm_backward,
      .layer_norm_backward_add = layer_norm_backward_add,
      .layer_norm_backward_weight = layer_norm_backward_weight,
      .layer_norm_backward_all = layer_norm_backward_all,
      .rms_norm = rms_norm,
      .rms_norm_backward = rms_norm_backward,
      .rms_norm_backward_add = rms_norm_backward_add,
      .rms_norm_backward_weight = rms_norm_backward_weight,
      .rms_norm_backward_all = rms_norm_backward_all,
      .column_sum = column_sum,
      .rotary = rotary,
      .embedding = embedding,
      .embedding_backward = embedding_backward,
      .attention = plain_attention,
      .attention_backward = plain_attention_backward,
      .softmax_stats = softmax_stats,
      .softmax_rescale = softmax_rescale,
      .cross_entropy = cross_entropy,
      .cross_entropy_backward = cross_entropy_backward,
      .sum_squares = sum_squares,
      .weighted_sum = weighted_sum,
      .chunk_squares = chunk_squares,
      .exact_sum = exact_sum,
      .adamw = adamw,
      .sgd = sgd,
      .adagrad = adagrad,
      .lamb_moments = lamb_moments,
      .lamb = lamb,
      .linear = linear,
      .relu_backward = relu_backward,
      .embedding_bags = embedding_bags,
      .sort_lookups = sort_lookups,
      .update_rows = update_rows,
      .row_squares = row_squares,
      .row_gradients = row_gradients,
      .dot_interaction = dot_interaction,
      .dot_interaction_backward = dot_interaction_backward,
      .cross = cross,
      .cross_backward = cross_backward,
      .sigmoid = sigmoid,
      .click_loss = click_loss,
      .click_loss_backward = click_loss_backward,
      .copy_columns = copy_columns,
  };
  return kTable;
}

void set_thread_order(int order) { emulation::thread_order = order; }

}  // namespace trifold::cuda
