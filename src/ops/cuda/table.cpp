// The CUDA table: each entry checks its tensors and puts launches on the stream.
#include "ops/cuda/table.h"

#include "core/error.h"
#include "ops/cuda/attention.h"
#include "ops/cuda/gemm.h"

namespace trifold::cuda {

namespace {

// An operation that has no CUDA form yet.
template <auto Entry>
struct Missing;
template <class... Args, void (*OpTable::*Entry)(Stream&, Args...)>
struct Missing<Entry> {
  static void call(Stream& /*stream*/, Args... /*args*/) {
    fail("this operation cannot run on CUDA yet: use --device cpu");
  }
};

// Between any two of device, shared and host memory.
void copy(Stream& stream, Tensor y, Tensor x) {
  check(y.dtype == x.dtype && y.elements() == x.elements(), "copy: {} {} cannot become {} {}",
        name_of(x.dtype), to_string(x.shape), name_of(y.dtype), to_string(y.shape));
  stream.enqueue([queue = stream.queue(), to = y.data, from = x.data, bytes = x.bytes()] {
    queue->copy(to, from, bytes);
  });
}

}  // namespace

OpTable make_table(Device* device) {
  return {
      .name = "cuda",
      .device = device,
      .fill = Missing<&OpTable::fill>::call,
      .copy = copy,
      .convert = Missing<&OpTable::convert>::call,
      .scale = Missing<&OpTable::scale>::call,
      .add = Missing<&OpTable::add>::call,
      .reduce = Missing<&OpTable::reduce>::call,
      .fill_rows = Missing<&OpTable::fill_rows>::call,
      .gemm = gemm,
      .gelu = Missing<&OpTable::gelu>::call,
      .gelu_backward = Missing<&OpTable::gelu_backward>::call,
      .swiglu = Missing<&OpTable::swiglu>::call,
      .swiglu_backward = Missing<&OpTable::swiglu_backward>::call,
      .dropout = Missing<&OpTable::dropout>::call,
      .dropout_add = Missing<&OpTable::dropout_add>::call,
      .layer_norm = Missing<&OpTable::layer_norm>::call,
      .layer_norm_backward = Missing<&OpTable::layer_norm_backward>::call,
      .layer_norm_backward_weight = Missing<&OpTable::layer_norm_backward_weight>::call,
      .rms_norm = Missing<&OpTable::rms_norm>::call,
      .rms_norm_backward = Missing<&OpTable::rms_norm_backward>::call,
      .rms_norm_backward_weight = Missing<&OpTable::rms_norm_backward_weight>::call,
      .column_sum = Missing<&OpTable::column_sum>::call,
      .rotary = Missing<&OpTable::rotary>::call,
      .embedding = Missing<&OpTable::embedding>::call,
      .embedding_backward = Missing<&OpTable::embedding_backward>::call,
      .attention = attention,
      .attention_backward = attention_backward,
      .softmax_stats = Missing<&OpTable::softmax_stats>::call,
      .softmax_rescale = Missing<&OpTable::softmax_rescale>::call,
      .cross_entropy = Missing<&OpTable::cross_entropy>::call,
      .cross_entropy_backward = Missing<&OpTable::cross_entropy_backward>::call,
      .sum_squares = Missing<&OpTable::sum_squares>::call,
      .weighted_sum = Missing<&OpTable::weighted_sum>::call,
      .chunk_squares = Missing<&OpTable::chunk_squares>::call,
      .adamw = Missing<&OpTable::adamw>::call,
      .sgd = Missing<&OpTable::sgd>::call,
      .adagrad = Missing<&OpTable::adagrad>::call,
      .lamb_moments = Missing<&OpTable::lamb_moments>::call,
      .lamb = Missing<&OpTable::lamb>::call,
      .linear = linear,
      .relu_backward = Missing<&OpTable::relu_backward>::call,
      .embedding_bags = Missing<&OpTable::embedding_bags>::call,
      .sort_lookups = Missing<&OpTable::sort_lookups>::call,
      .update_rows = Missing<&OpTable::update_rows>::call,
      .row_squares = Missing<&OpTable::row_squares>::call,
      .row_gradients = Missing<&OpTable::row_gradients>::call,
      .dot_interaction = Missing<&OpTable::dot_interaction>::call,
      .dot_interaction_backward = Missing<&OpTable::dot_interaction_backward>::call,
      .cross = Missing<&OpTable::cross>::call,
      .cross_backward = Missing<&OpTable::cross_backward>::call,
      .sigmoid = Missing<&OpTable::sigmoid>::call,
      .click_loss = Missing<&OpTable::click_loss>::call,
      .click_loss_backward = Missing<&OpTable::click_loss_backward>::call,
      .copy_columns = Missing<&OpTable::copy_columns>::call,
  };
}

}  // namespace trifold::cuda
