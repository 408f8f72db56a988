// make_table: the table of kernels for the instruction set that the including file is compiled for.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/attention_backward.h"
#include "ops/kernels/bags.h"
#include "ops/kernels/clicks.h"
#include "ops/kernels/dequantize.h"
#include "ops/kernels/dropout.h"
#include "ops/kernels/elementwise.h"
#include "ops/kernels/experts.h"
#include "ops/kernels/interaction.h"
#include "ops/kernels/latent.h"
#include "ops/kernels/layer_norm.h"
#include "ops/kernels/maps.h"
#include "ops/kernels/optimizer.h"
#include "ops/kernels/rms_norm.h"
#include "ops/kernels/rotary.h"
#include "ops/kernels/rows.h"
#include "ops/kernels/softmax.h"
#include "ops/kernels/strided.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
constexpr StorageKernels<T> make_storage_kernels() {
  return {
      .fill = fill<T>,
      .to_f32 = to_f32<T>,
      .from_f32 = from_f32<T>,
      .dequantize = dequantize<T>,
      .scale = scale<T>,
      .add = add<T>,
      .maximum = maximum<T>,
      .activations = ActivationsOf<T, Activations>::kKernels,
      .gates = GatesOf<T, Gates>::kKernels,
      .dropout = dropout<T>,
      .scale_uniform = scale_uniform<T>,
      .layer_norm = layer_norm<T>,
      .layer_norm_backward = layer_norm_backward<T>,
      .layer_norm_backward_weight = layer_norm_backward_weight<T>,
      .rms_norm = rms_norm<T>,
      .rms_norm_backward = rms_norm_backward<T>,
      .rms_part_sums = rms_part_sums<T>,
      .rms_part = rms_part<T>,
      .rms_part_backward = rms_part_backward<T>,
      .rms_norm_backward_weight = rms_norm_backward_weight<T>,
      .column_sum = column_sum<T>,
      .bias_relu = bias_relu<T>,
      .relu_backward = relu_backward<T>,
      .cross = cross<T>,
      .cross_backward = cross_backward<T>,
      .rotary = rotary<T>,
      .latent_heads = latent_heads<T>,
      .latent_heads_backward = latent_heads_backward<T>,
      .embedding = embedding<T>,
      .embedding_backward = embedding_backward<T>,
      .softmax_stats = softmax_stats<T>,
      .cross_entropy_backward = cross_entropy_backward<T>,
      .sum_squares = sum_squares<T>,
      .gather = gather<T>,
      .copy_strided_from_f32 = copy_strided<T, float>,
      .copy_strided_from_f64 = copy_strided<T, double>,
      .copy_strided_to_f32 = copy_strided<float, T>,
      .copy_strided_to_f64 = copy_strided<double, T>,
      .add_strided = add_strided<T>,
      .sum_strided = sum_strided<T>,
      .store_sums = store_sums<T>,
      .softmax = softmax<T>,
      .softmax_backward = softmax_backward<T>,
      .log_softmax = log_softmax<T>,
      .log_softmax_backward = log_softmax_backward<T>,
      .route_backward = route_backward<T>,
      .gate_rows = gate_rows<T>,
      .gate_rows_backward = gate_rows_backward<T>,
      .sum_choices = sum_choices<T>,
      .attention_forward = attention_forward<T>,
      .attention_backward = attention_backward<T>,
  };
}

template <class T>
constexpr Kernels<T> make_kernels() {
  return {
      .softmax_rescale = softmax_rescale<T>,
      .cross_entropy = cross_entropy<T>,
      .weighted_sum = weighted_sum<T>,
      .route = route<T>,
      .router_losses = router_losses<T>,
      .chunk_squares = chunk_squares<T>,
      .maps = MapsOf<T, MapList>::kKernels,
      .adamw = adamw<T>,
      .sgd = sgd<T>,
      .adagrad = adagrad<T>,
      .round_randomly = round_randomly<T>,
      .round_to_small = round_to_small<T>,
      .widen_small = widen_small<T>,
      .lamb_moments = lamb_moments<T>,
      .lamb = lamb<T>,
  };
}

template <class T>
constexpr RecommenderKernels<T> make_recommender_kernels() {
  return {
      .embedding_bag = embedding_bag<T>,
      .update_rows = update_rows<T>,
      .transpose = transpose<T>,
      .dot_interaction = dot_interaction<T>,
      .dot_interaction_backward = dot_interaction_backward<T>,
      .sigmoid = sigmoid<T>,
      .inverse_root = inverse_root<T>,
      .click_loss = click_loss<T>,
      .click_loss_backward = click_loss_backward<T>,
  };
}

constexpr KernelTable make_table(const char* name) {
  return {
      name,
      make_kernels<float>(),
      make_kernels<double>(),
      make_storage_kernels<float>(),
      make_storage_kernels<double>(),
      make_storage_kernels<Bfloat16>(),
      make_storage_kernels<Float16>(),
      make_recommender_kernels<float>(),
      make_recommender_kernels<double>(),
      {copy_strided<uint16_t, uint16_t>, copy_strided<uint32_t, uint32_t>, copy_strided<uint64_t, uint64_t>}};
}

}  // namespace
}  // namespace trifold::cpu
