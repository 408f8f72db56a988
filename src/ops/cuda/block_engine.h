// An engine for blocks of attention (attention_blocks.h), and the calls that are computed with one.
#pragma once

#include <cstddef>

#include "ops/cuda/attention_blocks.h"
#include "ops/cuda/enqueue.h"

namespace trifold::cuda {

// Pointers to the first element of a block. Results of forward and gradients are dense: out and dquery
// [batch, queries, heads, width], lse [batch, heads, queries], dkey and dvalue rows of [batch, keys, 2 kv_heads, width].
struct BlockForward {
  const void *query, *key, *value;
  void* out;
  float* lse;
};
struct BlockBackward {
  const void *query, *key, *value, *out, *dout;
  const float* lse;  // over all keys
  void *dquery, *dkey, *dvalue;
};

class BlockEngine {
 public:
  virtual ~BlockEngine() = default;
  // Bytes of scratch memory for a call.
  virtual size_t scratch_bytes(const BlockShape& shape, bool backward) = 0;
  virtual void forward(const BlockShape& shape, const BlockForward& block, void* scratch) = 0;
  virtual void backward(const BlockShape& shape, const BlockBackward& block, void* scratch) = 0;
};

// Bytes of scratch memory of a call: of its blocks and of the engine.
size_t scratch_of_blocks(BlockEngine& engine, const Attention& attention, DType dtype, bool backward);

// OpTable::attention and attention_backward. They launch on `stream` at once, with scratch_of_blocks bytes of
// `scratch`.
void attention_in_blocks(CudaStream stream, BlockEngine& engine, void* scratch, Tensor out, Tensor lse,
                         Tensor qkv, const Attention& attention);
void attention_in_blocks_backward(CudaStream stream, BlockEngine& engine, void* scratch, Tensor dqkv,
                                  Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                                  const Attention& attention);

}  // namespace trifold::cuda
