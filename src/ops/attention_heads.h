// One head of attention as the kernels see it: shapes, pointers and the sizes of blocks. Like ops/kernels.h, it is shared
// with files of other instruction sets and must not contain function bodies.
#pragma once

#include <cstdint>

#include "core/float16.h"

namespace trifold::cpu {

// One attention head of one sample, over consecutive positions. Keys are counted from the first one given, which is
// position `origin` of the sequence. Under a causal mask queries are counted from there too, and none is before it;
// otherwise they are counted from the start of the sequence. Queries are those of [first_query, first_query + queries).
// Rows of queries and their gradients are `query_stride` numbers apart, those of keys, values and their gradients
// `key_stride`, and rows of outputs `out_stride`. `element` is the global index of (this sample and head, query 0,
// first key).
struct HeadShape {
  int64_t seq;     // positions of the sequence
  int64_t origin;  // in it
  int64_t held;    // keys whose rows are given
  int64_t keys;    // of these, those that exist and that some query may see
  int64_t first_query;
  int64_t queries;
  const int32_t* first_keys;  // of query 0 on, as in Attention, or null: 0
  int64_t width;
  int64_t query_stride;
  int64_t key_stride;
  int64_t out_stride;
  bool causal;
  double scale;
  uint64_t element;
};

template <class T>
struct HeadInput {
  const T* query;
  const T* key;
  const T* value;
};

// The output is rounded to T, or stored unrounded in `wide_out` if that is set. With `adds` it and lse already hold the
// results over other keys, and become those over all keys.
template <class T>
struct HeadOutput {
  T* out;
  Accumulate<T>* lse;
  Accumulate<T>* wide_out = nullptr;
  bool adds = false;
};

// Gradients of keys and values are rounded to T once complete, or stored unrounded if there is a wide buffer for them.
// Gradients of queries are added to their wide buffer, whose rows are `out_stride` apart, if there is one.
template <class T>
struct HeadGradient {
  T* query;
  T* key;
  T* value;
  Accumulate<T>* wide_key = nullptr;
  Accumulate<T>* wide_value = nullptr;
  Accumulate<T>* wide_query = nullptr;
};

// Attention's blocks, see kernels/attention_blocks.h. A panel copy is `held`, rounded up to whole panels, times width.
// Its scratch is kScoreScratch numbers, 2 blocks of kQueryBlock x width, and 2 panel copies; backward twice
// kScoreScratch, 3 blocks and 5 panel copies.
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyChunk = 512;
constexpr int64_t kPanel = 32;
constexpr int64_t kScoreScratch = kQueryBlock * (kKeyChunk + 16);

}  // namespace trifold::cpu
