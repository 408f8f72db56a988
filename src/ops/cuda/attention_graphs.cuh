// Softmax attention (Dao et al., arXiv 2205.14135) as cuDNN graphs: forward, and backward, which recomputes
// the scores from the saved log-sum-exp. Queries, keys and values are read in place from the packed
// projections (ops.h: Attention), by strides.
#pragma once

#include "core/dtype.h"
#include "ops/cuda/cudnn_graph.cuh"

namespace trifold::cuda {

struct AttentionShape {
  int64_t batch = 0, seq = 0, heads = 0, kv_heads = 0, width = 0;
  DType dtype = DType::BF16;  // BF16 or F16
  bool causal = true;
  // Backward is deterministic: gradients of queries are summed in a fixed order, which needs a workspace
  // of batch * heads * seq * seq * 2 bytes. Otherwise they are accumulated in kDqSum.
  bool deterministic = false;
  double dropout = 0;    // probability with which a weight is dropped, below 1
  bool lengths = false;  // samples have kKeyLengths valid keys
  // The heads in the packed projections, if `heads` and `kv_heads` are only a group of them; 0: no groups.
  int64_t all_heads = 0, all_kv_heads = 0;
  bool documents = false;  // a query sees no keys before kFirstKeys; with `causal`
  // A block (attention_blocks.h), if not 0: `seq` queries, of `query_rows` rows a sample in qkv, out and dout, and `keys`
  // keys, of `key_rows` rows a sample in a matrix of the keys and values of `given_heads` key heads. Its output and its
  // gradients are dense [batch, seq or keys, all heads of the block, width]. With `causal`, keys are as many as queries.
  int64_t keys = 0, query_rows = 0, key_rows = 0, given_heads = 0;

  auto operator<=>(const AttentionShape&) const = default;
};

// The uids of a plan's tensors. Scalars are floats in host memory.
constexpr int64_t kQuery = 1;
constexpr int64_t kKey = 2;
constexpr int64_t kValue = 3;
constexpr int64_t kOut = 4;
constexpr int64_t kLse = 5;
constexpr int64_t kDout = 6;
constexpr int64_t kDquery = 7;
constexpr int64_t kDkey = 8;
constexpr int64_t kDvalue = 9;
constexpr int64_t kScale = 10;   // Attention::scale
constexpr int64_t kMasked = 11;  // score of masked keys: -infinity; only with a mask
constexpr int64_t kKeep = 12;    // 1 - dropout
constexpr int64_t kDelta = 13;   // f32 [batch, heads, seq]: sums of dout * out, computed here
constexpr int64_t kDqSum = 14;   // f32 [batch, heads, seq, width]; only if not deterministic
// Only with dropout. The same seed and offset give the same mask, forward and backward.
constexpr int64_t kSeed = 15;    // i64 [1] in device memory
constexpr int64_t kOffset = 16;  // i64 [1] in device memory
constexpr int64_t kGrow = 17;    // 1 / (1 - dropout)
// Only with lengths, both i32 [batch] in device memory. All queries are computed whatever the length, but the
// engines for Ampere and Blackwell (9.19) only recognise the graph with query lengths. The caller must clear
// gradients of keys and values after a length.
constexpr int64_t kKeyLengths = 18;
constexpr int64_t kQueryLengths = 19;  // `seq` for every sample
// Only with documents.
constexpr int64_t kFirstKeys = 20;  // i32 [batch, seq] in device memory: the first key that each query sees
constexpr int64_t kHidden = 21;     // score of keys before the first key: low, but finite

Graph attention_forward_graph(const AttentionShape& shape);
Graph attention_backward_graph(const AttentionShape& shape);

}  // namespace trifold::cuda
