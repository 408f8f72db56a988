// Attention of one head, blocked over queries and keys (Dao et al., arXiv 2205.14135).
//
// Queries are taken kQueryBlock at a time and keys kKeyChunk at a time, so that the scores in memory are one
// such block. Going forward, the softmax is kept online: each chunk of keys raises the running maximum and
// sum of its queries and rescales what was accumulated. Going backward, probabilities are made again from the
// saved log of the sum.
//
// Scores are products with transposed keys. Those are packed once per head into panels of kPanel keys, each
// [width, kPanel] and contiguous, the last one filled up with zeros: then a tile of scores reads one short
// stream, and no tile has a ragged edge. Under a causal mask, tiles and sums end at the diagonal.
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

// Panels of kPanel rows of `from` [seq, width], transposed.
template <class T>
void pack_panels(T* panels, const T* from, const HeadShape& shape) {
  const int64_t fours = shape.width / 4 * 4;
  for (int64_t key = 0; key < shape.seq; key += kPanel) {
    T* panel = panels + key * shape.width;
    for (int64_t j = 0; j < kPanel; j += 4) {
      const T* rows = from + (key + j) * shape.qkv_stride;
      const bool whole = key + j + 4 <= shape.seq;
      if (whole)
        for (int64_t d = 0; d < fours; d += 4)
          transpose_four(panel + d * kPanel + j, kPanel, rows + d, shape.qkv_stride);
      for (int64_t d = whole ? fours : 0; d < shape.width; ++d)
        for (int64_t i = 0; i < 4; ++i)
          panel[d * kPanel + j + i] = key + j + i < shape.seq ? rows[i * shape.qkv_stride + d] : T(0);
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
void weighted_rows(T* c, int64_t c_stride, const T* scores, const T* right, const ScoreBlock& block,
                   const HeadShape& shape, T alpha, bool add) {
  for (int64_t r = 0; r < block.rows; r += kTileRows) {
    const int64_t rows = at_most(kTileRows, block.rows - r);
    product(c + r * c_stride, c_stride, Left<T>{scores + r * kScoreStride, kScoreStride, 1}, right,
            shape.qkv_stride, rows, shape.width, block.visible(shape, r + rows - 1), alpha, add);
  }
}

// c[j] = alpha * sum over rows r that see j of scores[r, j] right[r], or added to c.
template <class T>
void weighted_columns(T* c, const T* scores, const T* right, int64_t right_stride, const ScoreBlock& block,
                      const HeadShape& shape, T alpha, bool add) {
  for (int64_t j = 0; j < block.keys; j += kTileRows) {
    const int64_t first = at_most(block.first_row(shape, j), block.rows);
    product(c + j * shape.qkv_stride, shape.qkv_stride,
            Left<T>{scores + first * kScoreStride + j, 1, kScoreStride}, right + first * right_stride,
            right_stride, at_most(kTileRows, block.keys - j), shape.width, block.rows - first, alpha, add);
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
void attention_queries(T* out, T* lse, const HeadInput<T>& in, const HeadShape& shape, const DropRule& rule,
                       int64_t query, const T* packed_keys, T* scores) {
  ScoreBlock block{at_most(kQueryBlock, shape.seq - query), 0, query, 0};
  const int64_t end = shape.causal ? query + block.rows : shape.seq;
  T* result = out + query * shape.out_stride;
  T max[kQueryBlock];
  T sum[kQueryBlock];
  for (int64_t r = 0; r < block.rows; ++r) {
    max[r] = kLowest<T>;
    sum[r] = 0;
  }
  for (block.key = 0; block.key < end; block.key += kKeyChunk) {
    block.keys = at_most(kKeyChunk, end - block.key);
    score_product(scores, Left<T>{in.query + query * shape.qkv_stride, shape.qkv_stride, 1}, packed_keys,
                  block, shape, T(shape.scale));
    for (int64_t r = 0; r < block.rows; ++r) {
      T* row = scores + r * kScoreStride;
      const int64_t n = block.visible(shape, r);
      const T factor = softmax_row(row, n, max[r], sum[r]);
      if (rule.active) dropout<T>(row, nullptr, row, whole_groups(n), block.element(shape, r), rule);
      T* accumulated = result + r * shape.out_stride;
      if (block.key > 0) Lane::each(shape.width, [=](int64_t i) { accumulated[i] *= factor; });
    }
    weighted_rows(result, shape.out_stride, scores, in.value + block.key * shape.qkv_stride, block, shape,
                  T(1), block.key > 0);
  }
  for (int64_t r = 0; r < block.rows; ++r) {
    T* row = result + r * shape.out_stride;
    const T inverse = 1 / sum[r];
    Lane::each(shape.width, [=](int64_t i) { row[i] *= inverse; });
    lse[query + r] = max[r] + log_of(sum[r]);
  }
}

template <class T>
void attention_forward(T* out, T* lse, const HeadInput<T>& in, const HeadShape& shape, const DropRule& rule,
                       T* scratch) {
  T* scores = scratch;
  T* packed_keys = scratch + kScoreScratch;
  pack_panels(packed_keys, in.key, shape);
  for (int64_t query = 0; query < shape.seq; query += kQueryBlock)
    attention_queries(out, lse, in, shape, rule, query, packed_keys, scores);
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

template <class T>
void attention_backward_queries(const HeadGradient<T>& grad, const T* dout, const T* out, const T* lse,
                                const HeadInput<T>& in, const HeadShape& shape, const DropRule& rule,
                                int64_t query, bool first, const T* packed_keys, const T* packed_values,
                                T* scores, T* dscores) {
  ScoreBlock block{at_most(kQueryBlock, shape.seq - query), 0, query, 0};
  const int64_t end = shape.causal ? query + block.rows : shape.seq;
  const int64_t stride = shape.qkv_stride;
  const auto scale = T(shape.scale);
  const T* queries = in.query + query * stride;
  const T* dresult = dout + query * shape.out_stride;
  const T* result = out + query * shape.out_stride;
  T delta[kQueryBlock];
  for (int64_t r = 0; r < block.rows; ++r) {
    const T* a = dresult + r * shape.out_stride;
    const T* b = result + r * shape.out_stride;
    delta[r] = Lane::sum<T>(shape.width, [=](auto at) { return at(a) * at(b); });
  }
  for (block.key = 0; block.key < end; block.key += kKeyChunk) {
    block.keys = at_most(kKeyChunk, end - block.key);
    const int64_t offset = block.key * stride;
    score_product(scores, Left<T>{queries, stride, 1}, packed_keys, block, shape, scale);
    score_product(dscores, Left<T>{dresult, shape.out_stride, 1}, packed_values, block, shape, T(1));
    gradient_rows(scores, dscores, lse + query, delta, block, shape, rule);
    weighted_columns(grad.value + offset, scores, dresult, shape.out_stride, block, shape, T(1), !first);
    weighted_columns(grad.key + offset, dscores, queries, stride, block, shape, scale, !first);
    weighted_rows(grad.query + query * stride, stride, dscores, in.key + offset, block, shape, scale,
                  block.key > 0);
  }
}

// The last block of queries sees every key and goes first: where `assign` is set it assigns the gradients of
// keys and values; all other blocks, and all other heads that share these keys, add to them.
template <class T>
void attention_backward(const HeadGradient<T>& grad, const T* dout, const T* out, const T* lse,
                        const HeadInput<T>& in, const HeadShape& shape, const DropRule& rule, bool assign,
                        T* scratch) {
  T* scores = scratch;
  T* dscores = scratch + kScoreScratch;
  T* packed_keys = dscores + kScoreScratch;
  T* packed_values = packed_keys + (shape.seq + kPanel - 1) / kPanel * kPanel * shape.width;
  pack_panels(packed_keys, in.key, shape);
  pack_panels(packed_values, in.value, shape);
  const int64_t last = (shape.seq - 1) / kQueryBlock * kQueryBlock;
  for (int64_t query = last; query >= 0; query -= kQueryBlock)
    attention_backward_queries(grad, dout, out, lse, in, shape, rule, query, assign && query == last,
                               packed_keys, packed_values, scores, dscores);
}

}  // namespace
}  // namespace trifold::cpu
