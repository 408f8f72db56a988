#include "cuda_emulation/emulated_ops.h"

#include <cstring>

#include "cuda_emulation/emulation.cuh"
#include "ops/composed.h"
#include "ops/contract.h"
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"

namespace trifold::cuda {

namespace {

void copy(Stream& stream, Tensor y, Tensor x) {
  enqueue(stream, "copy",
          [to = y.data, from = x.data, bytes = static_cast<int64_t>(y.bytes())](CudaStream on) {
            copy_bytes(on, to, from, bytes);
          });
}

void linear(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu) {
  plain_gemm(stream, y, x, false, w, true, 1, 0);
  bias_relu(stream, y, bias, relu);
}

const OpTable& raw_ops() {
  static const OpTable kTable = [] {
    OpTable ops{};
    ops.name = "cuda, emulated";
    ops.copy = copy;
    add_elementwise(ops);
    add_rows(ops);
    add_optimizer(ops);
    add_recommender(ops);
    add_experts(ops);
    add_latent(ops);
    add_strided(ops);
    ops.gemm = plain_gemm;
    ops.batched_product = plain_batched_product;
    add_composed_products<raw_ops>(ops);
    ops.linear = linear;
    ops.attention = plain_attention;
    ops.attention_backward = plain_attention_backward;
    ops.attention_sinks = attention_sinks;
    ops.attention_sinks_backward = attention_sinks_backward;
    return ops;
  }();
  return kTable;
}

}  // namespace

const OpTable& emulated_ops() {
  static const OpTable kTable = with_contract<raw_ops>();
  return kTable;
}

void set_thread_order(int order) { emulation::thread_order = order; }

}  // namespace trifold::cuda
