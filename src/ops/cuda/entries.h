// Raw entries of the CUDA OpTable (ops/contract.h) that are computed by hand-written kernels
// (ops/cuda/kernels). Each enqueues launches; ops/ops.h defines the operations.
#pragma once

#include <type_traits>

#include "ops/ops.h"

namespace trifold::cuda {

// Set the entries of one family; defined at the end of entries_<family>.cpp.
void add_elementwise(OpTable& ops);
void add_rows(OpTable& ops);
void add_optimizer(OpTable& ops);
void add_recommender(OpTable& ops);
void add_experts(OpTable& ops);
void add_latent(OpTable& ops);
void add_strided(OpTable& ops);

// y += bias, then max(0, y) if `relu` is set: the second part of `linear`.
void bias_relu(Stream& stream, Tensor y, Tensor bias, bool relu);

// Matrix product and attention by product.cu and attention.cu, without libraries: the reference for the libraries in
// tests, and attention that cuDNN does not compute.
std::remove_pointer_t<decltype(OpTable::gemm)> plain_gemm;
std::remove_pointer_t<decltype(OpTable::batched_product)> plain_batched_product;
std::remove_pointer_t<decltype(OpTable::attention)> plain_attention;
std::remove_pointer_t<decltype(OpTable::attention_backward)> plain_attention_backward;
std::remove_pointer_t<decltype(OpTable::attention_sinks)> attention_sinks;
std::remove_pointer_t<decltype(OpTable::attention_sinks_backward)> attention_sinks_backward;

}  // namespace trifold::cuda
