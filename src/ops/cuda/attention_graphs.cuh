// Softmax attention (Dao et al., arXiv 2205.14135) as cuDNN graphs: forward, and backward with the scores
// computed again from the saved log-sum-exp. Queries, keys and values are read where the packed projections
// hold them (ops.h: Attention), by strides.
#pragma once

#include "core/dtype.h"
#include "ops/cuda/cudnn_graph.cuh"

namespace trifold::cuda {

struct AttentionShape {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, width = 0;
  DType dtype = DType::BF16;  // BF16 or F16
  bool causal = true;
  // Backward: the same bits each time. Gradients of queries are then summed in one kernel's order, at the
  // price of a workspace of batch * heads * seq * seq * 2 bytes; otherwise they go through `DqSum`.
  bool deterministic = false;

  auto operator<=>(const AttentionShape&) const = default;
};

// The tensors a plan is given. Scalars are floats in host memory.
enum AttentionUid : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOut,
  kLse,
  kDout,
  kDquery,
  kDkey,
  kDvalue,
  kScale,   // of the scores
  kMasked,  // what a score in the future becomes: -infinity
  kOne,     // 1: no dropout
  kDelta,   // f32 [batch, heads, seq]: sums of dout * out, computed here
  kDqSum,   // f32 [batch, heads, seq, width]; not where deterministic
};

Graph attention_forward_graph(const AttentionShape& shape);
Graph attention_backward_graph(const AttentionShape& shape);

}  // namespace trifold::cuda
