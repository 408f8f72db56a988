// Blocks of attention's scores: which of them are visible, how keys and values are packed for them, and the
// small products that compute and use them. Queries are processed kQueryBlock at a time and keys kKeyChunk at
// a time, so that only one such block of scores is in memory.
//
// Scores are products with transposed keys. The keys are packed once per head into panels of kPanel keys, each
// [width, kPanel] and contiguous, the last one padded with zeros: a tile of scores then reads one short
// stream, and all tiles are whole. Under a causal mask, tiles and sums end at the diagonal; in a sample
// with fewer keys than positions they end at its last key; with first_keys, chunks, tiles and sums begin at a query's
// first key, so that the work is proportional to the lengths of the documents.
//
// All computation is in Wide, the type of T's arithmetic. If T has 16 bits, rows are widened into scratch
// before products, and results are rounded from there once; otherwise they are used in place.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"
#include "ops/kernels/product.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Rows are processed in whole groups of kGroup scores. Tiles are no larger, and lie within one group of
// positions, so no product reads a score outside the groups from the first to the last visible one.
constexpr int64_t kGroup = 16;
static_assert(kGroup % kTileRows == 0 && kQueryBlock % kGroup == 0 && kKeyChunk % kGroup == 0);

inline int64_t whole_groups(int64_t n) { return (n + kGroup - 1) / kGroup * kGroup; }
inline int64_t group_of(int64_t i) { return i / kGroup * kGroup; }

// Queries are processed in blocks that begin at multiples of kQueryBlock. If a run of queries begins or ends
// elsewhere, the blocks at its ends are cut at multiples of kTileRows, and then at the ends themselves, so
// that the queries of a tile have their last visible keys in one group.
//
// Returns the end of the block that begins at position `query`.
inline int64_t end_of_block(const HeadShape& shape, int64_t query) {
  const int64_t step = query % kTileRows == 0 ? kQueryBlock : int64_t{kTileRows};
  return at_most((query / step + 1) * step, shape.first_query + shape.queries);
}
// The beginning of the block that ends at position `end`.
inline int64_t begin_of_block(const HeadShape& shape, int64_t end) {
  const int64_t begin = (end - 1) / kQueryBlock * kQueryBlock;
  if (begin >= shape.first_query) return begin;
  const int64_t tile = (shape.first_query + kTileRows - 1) / kTileRows * kTileRows;
  return tile < end ? tile : shape.first_query;
}

// A block of scores: `rows` queries from position `query`, `keys` keys from position `key`.
struct ScoreBlock {
  int64_t rows, keys;
  int64_t query, key;

  // The first key that the query at position `query` may see.
  static int64_t first_seen(const HeadShape& shape, int64_t query) {
    const int64_t in_window = query + shape.shift - shape.left;
    const int64_t in_document = shape.first_keys == nullptr ? 0 : shape.first_keys[query] - shape.origin;
    const int64_t first = in_window < in_document ? in_document : in_window;
    return first < 0 ? 0 : first;
  }
  // The first chunk of keys that queries from `query` on may see.
  static int64_t first_chunk(const HeadShape& shape, int64_t query) {
    return shape.hides ? first_seen(shape, query) / kKeyChunk * kKeyChunk : 0;
  }
  // The end of the keys that the query at position `query` may see.
  static int64_t end_seen(const HeadShape& shape, int64_t query) {
    return at_most(query + shape.shift + shape.right + 1, shape.keys);
  }

  // How many keys of the block the query in row r may see.
  int64_t visible(const HeadShape& shape, int64_t r) const {
    const int64_t limit = query + r + shape.shift + shape.right + 1 - key;
    return limit < 0 ? 0 : at_most(limit, keys);
  }
  // How many of the block's first keys are hidden from the query in row r; non-decreasing in r.
  int64_t hidden(const HeadShape& shape, int64_t r) const {
    if (!shape.hides) return 0;
    const int64_t before = first_seen(shape, query + r) - key;
    return before < 0 ? 0 : at_most(before, keys);
  }
  // Whether the query in row r sees no key of the block.
  bool sees_none(const HeadShape& shape, int64_t r) const {
    return shape.hides && hidden(shape, r) >= visible(shape, r);
  }
  // The first row that may see key j of the block.
  int64_t first_row(const HeadShape& shape, int64_t j) const {
    const int64_t r = key + j - query - shape.shift - shape.right;
    return r < 0 ? 0 : r;
  }
  // The first row from `r` on that may see neither key j nor any earlier key.
  int64_t end_row(const HeadShape& shape, int64_t r, int64_t j) const {
    if (!shape.hides) return rows;
    while (r < rows && first_seen(shape, query + r) <= key + j) ++r;
    return r;
  }
  // The global element index of (row r, first key of the block).
  uint64_t element(const HeadShape& shape, int64_t r) const {
    return shape.element + static_cast<uint64_t>((query + r) * shape.seq + key);
  }
};

// The stride of rows of scores is a little larger than kKeyChunk, so that the elements of a column do not
// fall into one cache set.
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

// A matrix in the type of computation whose rows are `stride` elements apart.
template <class Wide>
struct Rows {
  Wide* data;
  int64_t stride;
  Wide* at(int64_t row) const { return data + row * stride; }
};

// `rows` rows of a stored matrix: in place, or a copy in `memory` [rows, width].
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

// Where results for the matrix `to` are computed: in place, or in `memory`, from which `store` rounds them into `to`.
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

// Packs the rows of `from`, one per key, into transposed panels of kPanel keys. `memory` is [kPanel, width].
template <class T>
void pack_panels(Accumulate<T>* panels, const T* from, const HeadShape& shape, Accumulate<T>* memory) {
  using Wide = Accumulate<T>;
  const int64_t fours = shape.width / 4 * 4;
  for (int64_t key = 0; key < shape.keys; key += kPanel) {
    Wide* panel = panels + key * shape.width;
    const int64_t held = at_most(kPanel, shape.keys - key);
    const Rows<const Wide> keys =
        widened(from + key * shape.key_stride, shape.key_stride, held, shape.width, memory);
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

// scores[r, j] = alpha * left[r] . packed[j] for the visible keys of the block's rows, rounded up to whole
// tiles.
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
      if (needed <= 0 || j + kStep <= block.hidden(shape, r)) continue;
      const Left<T> part{left.data + r * left.row_stride, left.row_stride, left.k_stride};
      T* out = scores + r * kScoreStride + j;
      if (needed > kStep / 2)
        tile_rows<2>(out, kScoreStride, part, panel, kPanel, rows, shape.width, alpha, false);
      else
        tile_rows<1>(out, kScoreStride, part, panel, kPanel, rows, shape.width, alpha, false);
    }
  }
}

// c[r] = alpha * sum over visible j of scores[r, j] right[j], added to c[r] if `add`.
template <class T>
void weighted_rows(Rows<T> c, const T* scores, Rows<const T> right, const ScoreBlock& block,
                   const HeadShape& shape, T alpha, bool add) {
  for (int64_t r = 0; r < block.rows; r += kTileRows) {
    const int64_t rows = at_most(kTileRows, block.rows - r);
    const int64_t begin = group_of(block.hidden(shape, r));
    product(c.at(r), c.stride, Left<T>{scores + r * kScoreStride + begin, kScoreStride, 1}, right.at(begin),
            right.stride, rows, shape.width, block.visible(shape, r + rows - 1) - begin, alpha, add);
  }
}

// c[j] = alpha * sum over rows r that see j of scores[r, j] right[r], added to c[j] if `add`.
template <class T>
void weighted_columns(Rows<T> c, const T* scores, Rows<const T> right, const ScoreBlock& block,
                      const HeadShape& shape, T alpha, bool add) {
  int64_t end = 0;
  for (int64_t j = 0; j < block.keys; j += kTileRows) {
    const int64_t first = at_most(block.first_row(shape, j), block.rows);
    end = block.end_row(shape, end, j + kTileRows - 1);
    if (end <= first && add) continue;
    product(c.at(j), c.stride, Left<T>{scores + first * kScoreStride + j, 1, kScoreStride}, right.at(first),
            right.stride, at_most(kTileRows, block.keys - j), shape.width, end - first, alpha, add);
  }
}

// Returns the begin of the group with the first visible score of row r. The hidden scores of that group
// become `value`; earlier scores that products of the row's tile read become 0.
template <class T>
[[gnu::always_inline]] inline int64_t begin_row(T* row, const ScoreBlock& block, const HeadShape& shape,
                                                int64_t r, T value) {
  if (!shape.hides) return 0;
  const int64_t hidden = block.hidden(shape, r);
  const int64_t begin = group_of(hidden);
  const int64_t tile = group_of(block.hidden(shape, r / kTileRows * kTileRows));
  T* unseen = row + tile;
  Lane::each(begin - tile, [=](int64_t i) { unseen[i] = T(0); });
  T* group = row + begin;
  Lane::each(hidden - begin, [=](int64_t i) { group[i] = value; });
  return begin;
}

// Sets to 0 the scores of row r that products of its tile read and that lie in groups after the row's last visible
// score. There are some only if visible scores end at another place in the group than the diagonal: after a `right`, or
// if queries and keys are counted from different positions.
template <class T>
[[gnu::always_inline]] inline void clear_behind(T* row, const ScoreBlock& block, const HeadShape& shape,
                                                int64_t r) {
  if ((shape.right == 0 && shape.shift == 0) || shape.right >= shape.seq) return;
  const int64_t last = at_most(r / kTileRows * kTileRows + kTileRows, block.rows) - 1;
  const int64_t begin = whole_groups(block.visible(shape, r));
  T* unseen = row + begin;
  Lane::each(block.visible(shape, last) - begin, [=](int64_t i) { unseen[i] = T(0); });
}

// Sets to 0 the scores of a row that sees no key of the block, as far as products read them.
template <class T>
[[gnu::always_inline]] inline void clear_unseen(T* row, int64_t begin, int64_t end) {
  T* unseen = row + begin;
  Lane::each(whole_groups(end) - begin, [=](int64_t i) { unseen[i] = T(0); });
}

// Replaces scores by soft_cap * tanh(score / soft_cap), in whole groups from `begin` to `end`.
template <class T>
[[gnu::always_inline]] inline void cap_row(T* row, const HeadShape& shape, int64_t begin, int64_t end) {
  if (shape.soft_cap <= 0 || begin >= end) return;
  const T cap = T(shape.soft_cap), inverse = T(1 / shape.soft_cap);
  T* from = row + group_of(begin);
  Lane::each(whole_groups(end) - group_of(begin),
             [=](int64_t i) { from[i] = cap * tanh_of(from[i] * inverse); });
}

// Sets the scores from n to the end of their group to `value`.
template <class T>
[[gnu::always_inline]] inline void end_row(T* row, int64_t n, T value) {
  const int64_t begin = n / kGroup * kGroup;
  if (begin == n) return;
  T* group = row + begin;
  const int64_t kept = n - begin;
  Lane::each(kGroup, [=](int64_t i) { group[i] = i < kept ? group[i] : value; });
}

}  // namespace
}  // namespace trifold::cpu
