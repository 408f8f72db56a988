// Attention over context-parallel ranks (Attention::rows) in blocks, each of which an engine without masks for runs of
// positions, cuDNN, can compute: a run of queries with a run of keys that all of its queries see, or, on the diagonal
// of a causal mask, with the keys of the same positions.
//
// Blocks of the same queries are merged by the log of the sums of exponentials. Backward computes each block from the
// output and the sums over all keys, so its gradients only have to be added (Liu et al., "Ring Attention", arXiv
// 2310.01889). Engines round the output and the gradients of a block to 16 bits; merged values have another type where
// Attention says so. Blocks come in a fixed order, so a call has the same bits each time, but not the bits of one
// rank.
//
// Does not include CUDA's headers; plans count with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "ops/cuda/workspace.h"
#include "ops/ops.h"

namespace trifold::cuda {

// Queries of this rank, and keys by their positions and rows in key_values.
struct AttentionBlock {
  RowRun queries, keys;
  bool diagonal = false;  // the keys are of the queries' positions, under a causal mask
  bool first = false;     // no earlier block has these queries
  bool operator==(const AttentionBlock&) const = default;
};

// The runs of keys as the queries of `run` see them: gathered keys are one run, which a causal mask cuts in two.
inline std::vector<AttentionBlock> blocks_of_run(const Attention& attention, const RowRun& run) {
  std::vector<AttentionBlock> blocks;
  if (!attention.in_steps()) {
    if (!attention.causal) return {{run, {0, attention.seq, 0}}};
    blocks.push_back({run, {run.begin, run.count, run.begin}, true});
    if (run.begin > 0) blocks.push_back({run, {0, run.begin, 0}});
    return blocks;
  }
  for (const RowRun& keys : attention.key_rows.runs()) {
    const bool diagonal = attention.causal && keys.begin == run.begin;
    if (!attention.causal || diagonal || keys.begin < run.begin) blocks.push_back({run, keys, diagonal});
  }
  return blocks;
}

// The blocks of a call with `rows`, by runs of queries. Blocks that a causal mask hides are left out.
inline std::vector<AttentionBlock> attention_blocks(const Attention& attention) {
  std::vector<AttentionBlock> blocks;
  for (const RowRun& run : attention.rows.runs()) {
    std::vector<AttentionBlock> of_run = blocks_of_run(attention, run);
    if (!of_run.empty()) of_run.front().first = !attention.further;
    blocks.insert(blocks.end(), of_run.begin(), of_run.end());
  }
  return blocks;
}

// A block for an engine. `heads` and `kv_heads` are the call's; qkv, out and dout have `query_rows` rows a sample
// and the columns of `all_heads` and `all_kv_heads`, keys and values `key_rows` rows and the columns of `kv_heads`.
struct BlockShape {
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, width = 0;
  int64_t query_rows = 0, key_rows = 0, all_heads = 0, all_kv_heads = 0;
  DType dtype = DType::BF16;
  bool causal = false;
  double scale = 1;
};

inline BlockShape block_shape(const Attention& attention, DType dtype, const AttentionBlock& block) {
  const int64_t kv_heads = attention.given();
  return {.batch = attention.batch,
          .queries = block.queries.count,
          .keys = block.keys.count,
          .heads = attention.heads / attention.kv_heads * kv_heads,
          .kv_heads = kv_heads,
          .width = attention.head_dim,
          .query_rows = attention.queries(),
          .key_rows = attention.keys(),
          .all_heads = attention.heads,
          .all_kv_heads = attention.kv_heads,
          .dtype = dtype,
          .causal = block.diagonal,
          .scale = attention.scale};
}

inline int64_t outputs_of(const BlockShape& shape) {
  return shape.batch * shape.queries * shape.heads * shape.width;
}
inline int64_t sums_of(const BlockShape& shape) { return shape.batch * shape.heads * shape.queries; }
inline int64_t gradients_of(const BlockShape& shape) {
  return shape.batch * shape.keys * 2 * shape.kv_heads * shape.width;
}

// Offsets of a block's results in scratch memory: sums, then its output or the gradients of queries, then the gradients
// of keys and values.
struct BlockMemory {
  BlockMemory(const BlockShape& shape, bool backward)
      : output(aligned_workspace(static_cast<size_t>(sums_of(shape)) * sizeof(float))),
        gradients(output + aligned_workspace(static_cast<size_t>(outputs_of(shape)) * size_of(shape.dtype))),
        bytes(gradients +
              (backward ? aligned_workspace(static_cast<size_t>(gradients_of(shape)) * size_of(shape.dtype))
                        : size_t{0})) {}
  size_t output, gradients, bytes;
};

// Bytes of scratch memory of a call besides the engine's: the results of its largest block.
inline size_t block_bytes(const Attention& attention, DType dtype, bool backward) {
  size_t most = 0;
  for (const AttentionBlock& block : attention_blocks(attention))
    most = std::max(most, BlockMemory(block_shape(attention, dtype, block), backward).bytes);
  return most;
}

// Bytes of scratch memory of a call with cuDNN's workspace, the maximum over forward and backward.
inline size_t blocks_workspace(const Attention& attention, DType dtype, bool deterministic) {
  size_t engine = 0;
  for (const AttentionBlock& block : attention_blocks(attention)) {
    const BlockShape shape = block_shape(attention, dtype, block);
    const AttentionSize size{.batch = shape.batch,
                             .seq = shape.queries,
                             .heads = shape.heads,
                             .kv_heads = shape.kv_heads,
                             .width = shape.width,
                             .deterministic = deterministic,
                             .keys = shape.keys};
    engine = std::max(engine, attention_workspace(size));
  }
  return block_bytes(attention, dtype, true) + engine;
}

}  // namespace trifold::cuda
