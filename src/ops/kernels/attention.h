// Attention of one head, blocked over queries and keys (Dao et al., arXiv 2205.14135).
//
// Queries are taken kQueryBlock at a time and keys kKeyChunk at a time, so that the scores in memory are one
// such block. Going forward, the softmax is kept online: each chunk of keys raises the running maximum and
// sum of its queries and rescales what was accumulated. Going backward, probabilities are made again from the
// saved log of the sum.
//
// Scores are products with transposed keys. Those are packed once per head into panels of kPanel keys, each
// [width, kPanel] and contiguous, the last one filled up with zeros: then a tile of scores reads one short
// stream, and no tile has a ragged edge. Under a causal mask, tiles and sums end at the diagonal; a sample of
// fewer keys than positions ends at its last key.
//
// Everything inside is in Wide, the type that T is computed in. Where T is stored in 16 bits, rows are
// widened into scratch before products and results are rounded from there once; otherwise they are used in
// place.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/dropout.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"
#include "ops/kernels/product.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// A block of scores: `rows` queries from position `query`, `keys` keys from position `key`.
struct ScoreBlock {
  int64_t rows, keys;
  int64_t query, key;

  // How many keys of the block the query in row r may look at.
  int64_t visible(const HeadShape& shape, int64_t r) const {
    if (!shape.causal) return keys;
    const int64_t limit = query + r + 1 - key;
    return limit < 0 ? 0 : at_most(limit, keys);
  }
  // The first row that may look at key j of the block.
  int64_t first_row(const HeadShape& shape, int64_t j) const {
    const int64_t r = shape.causal ? key + j - query : 0;
    return r < 0 ? 0 : r;
  }
  // The global element index of (row r, first key of the block).
  uint64_t element(const HeadShape& shape, int64_t r) const {
    return shape.element + static_cast<uint64_t>((query + r) * shape.seq + key);
  }
};

// Rows of scores are a little further apart than kKeyChunk, so that a column of them does not fall into one
// cache set.
constexpr int64_t kScoreStride = kKeyChunk + 16;

// to[4, 4] = from[4, 4] transposed.
template <class T>
[[gnu::always_inline]] inline void transpose_four(T* to, int64_t to_stride, const T* from,
                                                  int64_t from_stride) {
  using Four [[gnu::vector_size(4 * sizeof(T))]] = T;
  Four a{};
  Four b{};
  Four c{};
  Four d{};
  __builtin_memcpy(&a, from, sizeof a);
  __builtin_memcpy(&b, from + from_stride, sizeof b);
  __builtin_memcpy(&c, from + 2 * from_stride, sizeof c);
  __builtin_memcpy(&d, from + 3 * from_stride, sizeof d);
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  a = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  b = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  c = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  d = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
  __builtin_memcpy(to, &a, sizeof a);
  __builtin_memcpy(to + to_stride, &b, sizeof b);
  __builtin_memcpy(to + 2 * to_stride, &c, sizeof c);
  __builtin_memcpy(to + 3 * to_stride, &d, sizeof d);
}

// Rows of numbers to compute with, `stride` apart.
template <class Wide>
struct Rows {
  Wide* data;
  int64_t stride;
  Wide* at(int64_t row) const { return data + row * stride; }
};

// `rows` rows of a stored matrix: its own, or a copy in `memory` [rows, width].
template <class T>
inline Rows<const Accumulate<T>> widened(const T* from, int64_t stride, int64_t rows, int64_t width,
                                         Accumulate<T>* memory) {
  if constexpr (kIsWide<T>) {
    return {from, stride};
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      const T* in = from + r * stride;
      Accumulate<T>* out = memory + r * width;
      Lane::each(width, [=](int64_t i) { out[i] = value(in[i]); });
    }
    return {memory, width};
  }
}

// Where results for rows of `to` are made: there, or in `memory`, from where `store` rounds them.
template <class T>
inline Rows<Accumulate<T>> results_for(T* to, int64_t stride, int64_t width, Accumulate<T>* memory) {
  if constexpr (kIsWide<T>) {
    return {to, stride};
  } else {
    return {memory, width};
  }
}
template <class T>
inline void store(T* to, int64_t stride, Rows<Accumulate<T>> from, int64_t rows, int64_t width) {
  if constexpr (!kIsWide<T>)
    for (int64_t r = 0; r < rows; ++r) {
      T* out = to + r * stride;
      const Accumulate<T>* in = from.at(r);
      Lane::each(width, [=](int64_t i) { put(out[i], in[i]); });
    }
}

// Panels of kPanel rows of `from`, a row for each key, transposed. `memory` is [kPanel, width].
template <class T>
void pack_panels(Accumulate<T>* panels, const T* from, const HeadShape& shape, Accumulate<T>* memory) {
  using Wide = Accumulate<T>;
  const int64_t fours = shape.width / 4 * 4;
  for (int64_t key = 0; key < shape.keys; key += kPanel) {
    Wide* panel = panels + key * shape.width;
    const int64_t held = at_most(kPanel, shape.keys - key);
    const Rows<const Wide> keys =
        widened(from + key * shape.qkv_stride, shape.qkv_stride, held, shape.width, memory);
    for (int64_t j = 0; j < kPanel; j += 4) {
      const bool whole = j + 4 <= held;
      if (whole)
        for (int64_t d = 0; d < fours; d += 4)
          transpose_four(panel + d * kPanel + j, kPanel, keys.at(j) + d, keys.stride);
      for (int64_t d = whole ? fours : 0; d < shape.width; ++d)
        for (int64_t i = j; i < j + 4; ++i) panel[d * kPanel + i] = i < held ? keys.at(i)[d] : Wide(0);
    }
  }
}

// scores[r, j] = alpha * left[r] . packed[j] for what the block's rows may see, rounded up to whole tiles.
template <class T>
void score_product(T* scores, Left<T> left, const T* packed, const ScoreBlock& block, const HeadShape& shape,
                   T alpha) {
  constexpr int64_t kStep = 2 * Simd<T>::kLanes;
  for (int64_t j = 0; j < block.keys; j += kStep) {
    const int64_t key = block.key + j;
    const T* panel = packed + key / kPanel * kPanel * shape.width + key % kPanel;
    for (int64_t r = 0; r < block.rows; r += kTileRows) {
      const int64_t rows = at_most(kTileRows, block.rows - r);
      const int64_t needed = block.visible(shape, r + rows - 1) - j;
      if (needed <= 0) continue;
      const Left<T> part{left.data + r * left.row_stride, left.row_stride, left.k_stride};
      T* out = scores + r * kScoreStride + j;
      if (needed > kStep / 2)
        tile_rows<2>(out, kScoreStride, part, panel, kPanel, rows, shape.width, alpha, false);
      else
        tile_rows<1>(out, kScoreStride, part, panel, kPanel, rows, shape.width, alpha, false);
    }
  }
}

// c[r] = alpha * sum over visible j of scores[r, j] right[j], or added to c.
template <class T>
void weighted_rows(Rows<T> c, const T* scores, Rows<const T> right, const ScoreBlock& block,
                   const HeadShape& shape, T alpha, bool add) {
  for (int64_t r = 0; r < block.rows; r += kTileRows) {
    const int64_t rows = at_most(kTileRows, block.rows - r);
    product(c.at(r), c.stride, Left<T>{scores + r * kScoreStride, kScoreStride, 1}, right.data, right.stride,
            rows, shape.width, block.visible(shape, r + rows - 1), alpha, add);
  }
}

// c[j] = alpha * sum over rows r that see j of scores[r, j] right[r], or added to c.
template <class T>
void weighted_columns(Rows<T> c, const T* scores, Rows<const T> right, const ScoreBlock& block,
                      const HeadShape& shape, T alpha, bool add) {
  for (int64_t j = 0; j < block.keys; j += kTileRows) {
    const int64_t first = at_most(block.first_row(shape, j), block.rows);
    product(c.at(j), c.stride, Left<T>{scores + first * kScoreStride + j, 1, kScoreStride}, right.at(first),
            right.stride, at_most(kTileRows, block.keys - j), shape.width, block.rows - first, alpha, add);
  }
}

// Rows are worked on in whole groups of kGroup scores. Blocks begin at multiples of kGroup, and tiles are no
// larger, so no product reads a score beyond the last group that has a visible one.
constexpr int64_t kGroup = 16;
static_assert(kGroup % kTileRows == 0 && kQueryBlock % kGroup == 0 && kKeyChunk % kGroup == 0);

inline int64_t whole_groups(int64_t n) { return (n + kGroup - 1) / kGroup * kGroup; }

// Gives the scores from n to the end of their group this value.
template <class T>
[[gnu::always_inline]] inline void end_row(T* row, int64_t n, T value) {
  const int64_t begin = n / kGroup * kGroup;
  if (begin == n) return;
  T* group = row + begin;
  const int64_t kept = n - begin;
  Lane::each(kGroup, [=](int64_t i) { group[i] = i < kept ? group[i] : value; });
}

// Online softmax of a row with n visible scores: they become exp(score - max), those that end the group 0.
// Brings max and sum up to date and returns what the output accumulated so far has to be multiplied by.
template <class T>
inline T softmax_row(T* row, int64_t n, T& max, T& sum) {
  end_row(row, n, kLowest<T>);
  const T before = max;
  const T most = Lane::max<T>(whole_groups(n), before, row);
  Lane::each(whole_groups(n), [=](int64_t i) { row[i] = exp_of(row[i] - most); });
  const T total = Lane::sum<T>(whole_groups(n), [=](auto at) { return at(row); });
  const T factor = before == kLowest<T> ? T(0) : exp_of(before - most);
  max = most;
  sum = sum * factor + total;
  return factor;
}

template <class T>
void attention_queries(T* out, Accumulate<T>* lse, const HeadInput<T>& in,
                       const Rows<const Accumulate<T>>& values, const HeadShape& shape, const DropRule& rule,
                       int64_t query, const Accumulate<T>* packed_keys, Accumulate<T>* scores) {
  using Wide = Accumulate<T>;
  ScoreBlock block{at_most(kQueryBlock, shape.seq - query), 0, query, 0};
  const int64_t end = shape.causal ? at_most(query + block.rows, shape.keys) : shape.keys;
  Wide* memory = scores + kScoreScratch;
  const Rows<const Wide> queries =
      widened(in.query + query * shape.qkv_stride, shape.qkv_stride, block.rows, shape.width, memory);
  T* stored = out + query * shape.out_stride;
  const Rows<Wide> result =
      results_for(stored, shape.out_stride, shape.width, memory + kQueryBlock * shape.width);
  Wide max[kQueryBlock];
  Wide sum[kQueryBlock];
  for (int64_t r = 0; r < block.rows; ++r) {
    max[r] = kLowest<Wide>;
    sum[r] = 0;
  }
  for (block.key = 0; block.key < end; block.key += kKeyChunk) {
    block.keys = at_most(kKeyChunk, end - block.key);
    score_product(scores, Left<Wide>{queries.data, queries.stride, 1}, packed_keys, block, shape,
                  Wide(shape.scale));
    for (int64_t r = 0; r < block.rows; ++r) {
      Wide* row = scores + r * kScoreStride;
      const int64_t n = block.visible(shape, r);
      const Wide factor = softmax_row(row, n, max[r], sum[r]);
      if (rule.active) dropout<Wide>(row, nullptr, row, whole_groups(n), block.element(shape, r), rule);
      Wide* accumulated = result.at(r);
      if (block.key > 0) Lane::each(shape.width, [=](int64_t i) { accumulated[i] *= factor; });
    }
    weighted_rows<Wide>(result, scores, {values.at(block.key), values.stride}, block, shape, Wide(1),
                        block.key > 0);
  }
  for (int64_t r = 0; r < block.rows; ++r) {
    const Wide* row = result.at(r);
    T* to = stored + r * shape.out_stride;
    const Wide inverse = 1 / sum[r];
    Lane::each(shape.width, [=](int64_t i) { put(to[i], row[i] * inverse); });
    lse[query + r] = max[r] + log_of(sum[r]);
  }
}

// Scratch: scores, two blocks of rows, packed keys, widened values.
template <class T>
void attention_forward(T* out, Accumulate<T>* lse, const HeadInput<T>& in, const HeadShape& shape,
                       const DropRule& rule, Accumulate<T>* scratch) {
  using Wide = Accumulate<T>;
  Wide* blocks = scratch + kScoreScratch;
  Wide* packed_keys = blocks + 2 * kQueryBlock * shape.width;
  Wide* memory = packed_keys + (shape.seq + kPanel - 1) / kPanel * kPanel * shape.width;
  pack_panels(packed_keys, in.key, shape, blocks);
  const Rows<const Wide> values = widened(in.value, shape.qkv_stride, shape.keys, shape.width, memory);
  for (int64_t query = 0; query < shape.seq; query += kQueryBlock)
    attention_queries(out, lse, in, values, shape, rule, query, packed_keys, scratch);
}

// p = exp(score - lse); the gradient of the score is p (dp - delta), dp the gradient of p through its
// dropout. The scores become the dropped probabilities and dp the gradient; both are zero from the diagonal
// to the end of its tile.
template <class T>
void gradient_rows(T* scores, T* dscores, const T* lse, const T* delta, const ScoreBlock& block,
                   const HeadShape& shape, const DropRule& rule) {
  const auto multiplier = T(rule.multiplier);
  const uint32_t threshold = rule.threshold;
  for (int64_t r = 0; r < block.rows; ++r) {
    T* row = scores + r * kScoreStride;
    T* grad = dscores + r * kScoreStride;
    const int64_t n = block.visible(shape, r);
    const T log_sum = lse[r];
    const T shift = delta[r];
    end_row(row, n, kLowest<T>);
    end_row(grad, n, T(0));
    if (rule.active) {
      for_drop_tiles(whole_groups(n), block.element(shape, r), rule,
                     [=](int64_t begin, int64_t count, const uint32_t* words) {
                       T* p = row + begin;
                       T* d = grad + begin;
                       Lane::each(count, [=](int64_t i) {
                         const T probability = exp_of(p[i] - log_sum);
                         const T keep = words[i] >= threshold ? multiplier : T(0);
                         p[i] = probability * keep;
                         d[i] = probability * (d[i] * keep - shift);
                       });
                     });
    } else {
      Lane::each(whole_groups(n), [=](int64_t i) {
        const T probability = exp_of(row[i] - log_sum);
        row[i] = probability;
        grad[i] = probability * (grad[i] - shift);
      });
    }
  }
}

// What the blocks of one head's backward share. Three blocks of rows lie at `blocks`.
template <class T>
struct BackwardHead {
  using Wide = Accumulate<T>;
  Rows<const Wide> keys;
  Rows<Wide> dkeys, dvalues;
  Wide *scores, *dscores, *packed_keys, *packed_values, *blocks;

  Wide* block(int index, int64_t width) const { return blocks + index * kQueryBlock * width; }
};

template <class T>
void attention_backward_queries(const BackwardHead<T>& head, T* dquery, const T* dout, const T* out,
                                const Accumulate<T>* lse, const T* query_rows, const HeadShape& shape,
                                const DropRule& rule, int64_t query, bool first) {
  using Wide = Accumulate<T>;
  ScoreBlock block{at_most(kQueryBlock, shape.seq - query), 0, query, 0};
  const int64_t end = shape.causal ? at_most(query + block.rows, shape.keys) : shape.keys;
  const int64_t stride = shape.qkv_stride;
  const int64_t width = shape.width;
  const auto scale = Wide(shape.scale);
  const Rows<const Wide> queries =
      widened(query_rows + query * stride, stride, block.rows, width, head.block(0, width));
  const Rows<const Wide> dresult =
      widened(dout + query * shape.out_stride, shape.out_stride, block.rows, width, head.block(1, width));
  const Rows<Wide> dqueries = results_for(dquery + query * stride, stride, width, head.block(2, width));
  Wide delta[kQueryBlock];
  for (int64_t r = 0; r < block.rows; ++r) {
    const Wide* a = dresult.at(r);
    const T* b = out + (query + r) * shape.out_stride;
    delta[r] = Lane::sum<Wide>(width, [=](auto at) { return at(a) * at(b); });
  }
  for (block.key = 0; block.key < end; block.key += kKeyChunk) {
    block.keys = at_most(kKeyChunk, end - block.key);
    score_product(head.scores, Left<Wide>{queries.data, queries.stride, 1}, head.packed_keys, block, shape,
                  scale);
    score_product(head.dscores, Left<Wide>{dresult.data, dresult.stride, 1}, head.packed_values, block, shape,
                  Wide(1));
    gradient_rows(head.scores, head.dscores, lse + query, delta, block, shape, rule);
    weighted_columns<Wide>({head.dvalues.at(block.key), head.dvalues.stride}, head.scores, dresult, block,
                           shape, Wide(1), !first);
    weighted_columns<Wide>({head.dkeys.at(block.key), head.dkeys.stride}, head.dscores, queries, block, shape,
                           scale, !first);
    weighted_rows<Wide>(dqueries, head.dscores, {head.keys.at(block.key), head.keys.stride}, block, shape,
                        scale, block.key > 0);
  }
  store(dquery + query * stride, stride, dqueries, block.rows, width);
}

template <class T>
inline void clear_rows(Rows<T> rows, int64_t begin, int64_t end, int64_t width) {
  for (int64_t r = begin; r < end; ++r) {
    T* row = rows.at(r);
    Lane::each(width, [=](int64_t i) { row[i] = 0; });
  }
}

// The last block of queries sees every key and goes first: where `assign` is set it assigns the gradients of
// keys and values; all other blocks, and all other heads that share these keys, add to them. For 16-bit types
// they grow in scratch, which stays from head to head, and are rounded when `last` is set.
template <class T>
void attention_backward(const HeadGradient<T>& grad, const T* dout, const T* out, const Accumulate<T>* lse,
                        const HeadInput<T>& in, const HeadShape& shape, const DropRule& rule, bool assign,
                        bool last, Accumulate<T>* scratch) {
  const int64_t stride = shape.qkv_stride;
  const int64_t whole = shape.seq * shape.width;
  const int64_t panels = (shape.seq + kPanel - 1) / kPanel * kPanel * shape.width;
  BackwardHead<T> head;
  head.scores = scratch;
  head.dscores = head.scores + kScoreScratch;
  head.blocks = head.dscores + kScoreScratch;
  head.packed_keys = head.blocks + 3 * kQueryBlock * shape.width;
  head.packed_values = head.packed_keys + panels;
  Accumulate<T>* memory = head.packed_values + panels;
  pack_panels(head.packed_keys, in.key, shape, head.blocks);
  pack_panels(head.packed_values, in.value, shape, head.blocks);
  head.keys = widened(in.key, stride, shape.keys, shape.width, memory);
  head.dkeys = results_for(grad.key, stride, shape.width, memory + whole);
  head.dvalues = results_for(grad.value, stride, shape.width, memory + 2 * whole);
  const int64_t final_block = (shape.seq - 1) / kQueryBlock * kQueryBlock;
  for (int64_t query = final_block; query >= 0; query -= kQueryBlock)
    attention_backward_queries(head, grad.query, dout, out, lse, in.query, shape, rule, query,
                               assign && query == final_block);
  if (assign) {
    clear_rows(head.dkeys, shape.keys, shape.seq, shape.width);
    clear_rows(head.dvalues, shape.keys, shape.seq, shape.width);
  }
  if (!last) return;
  store(grad.key, stride, head.dkeys, shape.seq, shape.width);
  store(grad.value, stride, head.dvalues, shape.seq, shape.width);
}

}  // namespace
}  // namespace trifold::cpu
