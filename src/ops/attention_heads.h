// One head of attention as the kernels see it: shapes, pointers and the sizes of blocks. Like ops/kernels.h, this
// header is shared by files of all instruction sets and must not contain function bodies.
#pragma once

#include <cstdint>

#include "core/float16.h"

namespace trifold::cpu {

// One attention head of one sample: a run of consecutive queries over a run of consecutive keys. Key 0 is the first
// key of the run, at position `origin` of the sequence. Under a causal mask query 0 is at `origin` too, and no query of
// the run precedes it; otherwise query 0 is at position 0. The query at position i sees the keys at positions i - left
// to i + right; `right` is 0 under a causal mask.
struct HeadShape {
  int64_t seq;          // length of the sequence
  int64_t origin;       // position of key 0 in the sequence
  int64_t held;         // keys in memory
  int64_t keys;         // the first ones of `held`, which are valid and visible to some query
  int64_t first_query;  // the queries are [first_query, first_query + queries)
  int64_t queries;
  const int32_t* first_keys;  // Attention::first_keys from query 0 on, or null: 0
  int64_t width;              // head_dim
  int64_t query_stride;       // elements between rows of queries and between rows of their gradients
  int64_t key_stride;         // elements between rows of keys, of values and of their gradients
  int64_t out_stride;         // elements between rows of outputs
  int64_t shift;              // position of query 0 less the position of key 0
  int64_t left, right;        // up to `seq`
  bool hides;                 // key 0 may be hidden from some queries: by first_keys or `left`
  double scale;
  double soft_cap;   // as in Attention
  uint64_t element;  // global index of the probability of (query 0, key 0), for dropout
};

template <class T>
struct HeadInput {
  const T* query;
  const T* key;
  const T* value;
};

// The output is rounded to T or, if `wide_out` is set, stored there unrounded. With `adds`, the output and lse hold the
// results over other keys on entry, and over these and the other keys on return.
template <class T>
struct HeadOutput {
  T* out;
  Accumulate<T>* lse;
  Accumulate<T>* wide_out = nullptr;
  bool adds = false;
};

// Gradients of keys and values are rounded to T once complete, or stored unrounded in the wide buffers if these are
// set. Gradients of queries are added to `wide_query`, rows `out_stride` apart, if it is set, and else assigned to
// `query`.
template <class T>
struct HeadGradient {
  T* query;
  T* key;
  T* value;
  Accumulate<T>* wide_key = nullptr;
  Accumulate<T>* wide_value = nullptr;
  Accumulate<T>* wide_query = nullptr;
};

// Sizes of attention's blocks (kernels/attention_blocks.h). Elements of scratch, with block = kQueryBlock x width and
// panels = `held`, rounded up to whole panels, x width:
//   forward       kScoreScratch + 2 block + 2 panels
//   backward  2 x kScoreScratch + 3 block + 5 panels
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyChunk = 512;
constexpr int64_t kPanel = 32;
constexpr int64_t kScoreScratch = kQueryBlock * (kKeyChunk + 16);

}  // namespace trifold::cpu
