#include <algorithm>

#include "ops/cuda/block_engine.h"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

std::byte* element_at(const void* memory, DType dtype, int64_t element) {
  return static_cast<std::byte*>(const_cast<void*>(memory)) + element * static_cast<int64_t>(size_of(dtype));
}

// The places of a block in the tensors of its call.
struct BlockPlaces {
  BlockPlaces(const Attention& attention, const BlockShape& shape, const AttentionBlock& block)
      : head(attention.first_given * (attention.heads / attention.kv_heads)),
        row(block.queries.row),
        qkv_columns((attention.heads + 2 * attention.kv_heads) * attention.head_dim),
        query(block.queries.row * qkv_columns + head * attention.head_dim),
        out((block.queries.row * attention.heads + head) * attention.head_dim),
        key_row(block.keys.row),
        key_columns(2 * shape.kv_heads * attention.head_dim),
        key(block.keys.row * key_columns),
        value(key + shape.kv_heads * attention.head_dim) {}
  int64_t head, row, qkv_columns, query, out, key_row, key_columns, key, value;
};

RowsOfBlock merged_rows(const BlockShape& shape, const BlockPlaces& places) {
  return {shape.batch,      shape.queries, shape.heads,     shape.width,
          shape.query_rows, places.row,    shape.all_heads, places.head};
}

// The keys and values of a block.
struct BlockKeys {
  BlockKeys(const Attention& attention, DType dtype, const BlockPlaces& places)
      : key(element_at(attention.key_values.data, dtype, places.key)),
        value(element_at(attention.key_values.data, dtype, places.value)) {}
  const void *key, *value;
};

// The scratch memory of a call: the results of one block at a time, then the engine's.
class BlockScratch {
 public:
  BlockScratch(void* memory, const Attention& attention, DType dtype, bool backward)
      : memory_(static_cast<std::byte*>(memory)),
        engines_(memory_ + block_bytes(attention, dtype, backward)) {}
  float* sums() const { return reinterpret_cast<float*>(memory_); }
  void* output(const BlockShape& shape) const { return memory_ + BlockMemory(shape, true).output; }
  void* gradients(const BlockShape& shape) const { return memory_ + BlockMemory(shape, true).gradients; }
  void* engines() const { return engines_; }

 private:
  std::byte *memory_, *engines_;
};

template <class Body>
void dispatch_block(DType dtype, Body body) {
  switch (dtype) {
    case DType::F32:
      return body(float{});
    case DType::BF16:
      return body(Bfloat16{});
    case DType::F16:
      return body(Float16{});
    default:
      fail("attention in blocks is for f32, bf16 and f16, not {}", name_of(dtype));
  }
}

}  // namespace

size_t scratch_of_blocks(BlockEngine& engine, const Attention& attention, DType dtype, bool backward) {
  size_t most = 0;
  for (const AttentionBlock& block : attention_blocks(attention))
    most = std::max(most, engine.scratch_bytes(block_shape(attention, dtype, block), backward));
  return block_bytes(attention, dtype, backward) + most;
}

void attention_in_blocks(CudaStream stream, BlockEngine& engine, void* scratch, Tensor out, Tensor lse,
                         Tensor qkv, const Attention& attention) {
  const DType dtype = qkv.dtype;
  const BlockScratch memory(scratch, attention, dtype, false);
  for (const AttentionBlock& block : attention_blocks(attention)) {
    const BlockShape shape = block_shape(attention, dtype, block);
    const BlockPlaces places(attention, shape, block);
    const BlockKeys keys(attention, dtype, places);
    engine.forward(shape,
                   {element_at(qkv.data, dtype, places.query), keys.key, keys.value, memory.output(shape),
                    memory.sums()},
                   memory.engines());
    dispatch_block(dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto* part = static_cast<const T*>(memory.output(shape));
      const RowsOfBlock rows = merged_rows(shape, places);
      if (attention.in_steps())
        merge_block(stream, out.as<float>(), lse.as<float>(), part, memory.sums(), rows, block.first);
      else
        merge_block(stream, out.as<T>(), lse.as<float>(), part, memory.sums(), rows, block.first);
    });
  }
}

void attention_in_blocks_backward(CudaStream stream, BlockEngine& engine, void* scratch, Tensor dqkv,
                                  Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                                  const Attention& attention) {
  const DType dtype = qkv.dtype;
  const BlockScratch memory(scratch, attention, dtype, true);
  const Tensor& dkeys = attention.dkey_values;
  if (!attention.in_steps()) fill(stream, dkeys.as<float>(), dkeys.elements(), 0.0);
  for (const AttentionBlock& block : attention_blocks(attention)) {
    const BlockShape shape = block_shape(attention, dtype, block);
    const BlockPlaces places(attention, shape, block);
    const BlockKeys keys(attention, dtype, places);
    sums_of_block(stream, memory.sums(), lse.as<float>(), merged_rows(shape, places));
    void* dkey = memory.gradients(shape);
    engine.backward(
        shape,
        {element_at(qkv.data, dtype, places.query), keys.key, keys.value,
         element_at(out.data, dtype, places.out), element_at(dout.data, dtype, places.out), memory.sums(),
         memory.output(shape), dkey, element_at(dkey, dtype, shape.kv_heads * shape.width)},
        memory.engines());
    dispatch_block(dtype, [&](auto zero) {
      using T = decltype(zero);
      const auto* dquery = static_cast<const T*>(memory.output(shape));
      const BlockColumns queries{shape.batch,
                                 shape.queries,
                                 shape.heads * shape.width,
                                 shape.query_rows,
                                 places.row,
                                 shape.all_heads * shape.width,
                                 places.head * shape.width};
      BlockColumns packed = queries;
      packed.stride = places.qkv_columns;
      if (attention.in_steps())
        add_block(stream, attention.dqueries.as<float>(), dquery, queries, false);
      else
        add_block(stream, dqkv.as<T>(), dquery, packed, block.first);
      add_block(stream, dkeys.as<float>(), static_cast<const T*>(dkey),
                {shape.batch, shape.keys, places.key_columns, shape.key_rows, places.key_row,
                 places.key_columns, 0},
                false);
    });
  }
}

}  // namespace trifold::cuda
