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
  // price of a workspace of batch * heads * seq * seq * 2 bytes; otherwise they go through kDqSum.
  bool deterministic = false;
  double dropout = 0;    // probability with which a weight is dropped, below 1
  bool lengths = false;  // keys of a sample end where kKeyLengths says
  // Where `heads` and `kv_heads` are a group of those that the projections of one sample hold: all of them.
  int64_t all_heads = 0, all_kv_heads = 0;

  auto operator<=>(const AttentionShape&) const = default;
};

// The uids of the tensors a plan is given. Scalars are floats in host memory.
constexpr int64_t kQuery = 1;
constexpr int64_t kKey = 2;
constexpr int64_t kValue = 3;
constexpr int64_t kOut = 4;
constexpr int64_t kLse = 5;
constexpr int64_t kDout = 6;
constexpr int64_t kDquery = 7;
constexpr int64_t kDkey = 8;
constexpr int64_t kDvalue = 9;
constexpr int64_t kScale = 10;   // of the scores
constexpr int64_t kMasked = 11;  // what the score of a key that is not seen becomes: -infinity; where masked
constexpr int64_t kKeep = 12;    // 1 - dropout
constexpr int64_t kDelta = 13;   // f32 [batch, heads, seq]: sums of dout * out, computed here
constexpr int64_t kDqSum = 14;   // f32 [batch, heads, seq, width]; not where deterministic
// Only with dropout. The same two numbers give the same mask, forward and backward.
constexpr int64_t kSeed = 15;    // i64 [1] in device memory
constexpr int64_t kOffset = 16;  // i64 [1] in device memory
constexpr int64_t kGrow = 17;    // 1 / (1 - dropout)
// Only with lengths, both i32 [batch] in device memory. All queries are computed whatever the length, but the
// engines for Ampere and Blackwell (9.19) only know the graph that says how many there are as well. Gradients
// of keys and values behind a length are for the caller to clear.
constexpr int64_t kKeyLengths = 18;
constexpr int64_t kQueryLengths = 19;  // all of them `seq`

Graph attention_forward_graph(const AttentionShape& shape);
Graph attention_backward_graph(const AttentionShape& shape);

}  // namespace trifold::cuda
