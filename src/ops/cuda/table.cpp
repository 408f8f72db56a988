// The CUDA table: each entry checks its tensors and puts launches on the stream.
#include "ops/cuda/table.h"

#include "core/error.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/entries.h"
#include "ops/cuda/gemm.h"

namespace trifold::cuda {

namespace {

// Between any two of device, shared and host memory.
void copy(Stream& stream, Tensor y, Tensor x) {
  check(y.dtype == x.dtype && y.elements() == x.elements(), "copy: {} {} cannot become {} {}",
        name_of(x.dtype), to_string(x.shape), name_of(y.dtype), to_string(y.shape));
  stream.enqueue([queue = stream.queue(), to = y.data, from = x.data, bytes = x.bytes()] {
    queue->copy(to, from, bytes);
  });
}

}  // namespace

// Products are filled in by set_products.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
OpTable make_table(Device* device) {
  OpTable table = {
      .name = "cuda",
      .device = device,
      .fill = fill,
      .copy = copy,
      .convert = convert,
      .scale = scale,
      .add = add,
      .reduce = reduce,
      .fill_rows = fill_rows,
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
      .attention = attention,
      .attention_backward = attention_backward,
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
  set_products(table, F32Products::Exact);
  return table;
}
#pragma GCC diagnostic pop

}  // namespace trifold::cuda
