// Forward attention of one head, blocked over queries and keys (Dao et al., arXiv 2205.14135), with an online
// softmax: each chunk of keys updates the running maximum and sum of its queries and rescales the accumulated
// output.
#pragma once

#include "ops/kernels/attention_blocks.h"
#include "ops/kernels/dropout.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// Online softmax of a row with n visible scores: replaces them by exp(score - max), and the rest of their group by 0.
// Updates max and sum, and returns the factor for the output accumulated so far.
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

// With output.adds, the previous output enters the online softmax as one term: its maximum is lse and its sum is 1.
template <class T>
void attention_queries(const HeadOutput<T>& output, const HeadInput<T>& in,
                       const Rows<const Accumulate<T>>& values, const HeadShape& shape, const DropRule& rule,
                       int64_t query, int64_t query_end, const Accumulate<T>* packed_keys,
                       Accumulate<T>* scores) {
  using Wide = Accumulate<T>;
  ScoreBlock block{query_end - query, 0, query, 0};
  const int64_t row = query - shape.first_query;
  const int64_t end = ScoreBlock::end_seen(shape, query + block.rows - 1);
  Wide* memory = scores + kScoreScratch;
  const Rows<const Wide> queries =
      widened(in.query + row * shape.query_stride, shape.query_stride, block.rows, shape.width, memory);
  const bool wide = output.wide_out != nullptr;
  T* stored = wide ? nullptr : output.out + row * shape.out_stride;
  const Rows<Wide> result =
      wide ? Rows<Wide>{output.wide_out + row * shape.out_stride, shape.out_stride}
           : results_for(stored, shape.out_stride, shape.width, memory + kQueryBlock * shape.width);
  Wide* lse = output.lse + row;
  Wide max[kQueryBlock];
  Wide sum[kQueryBlock];
  for (int64_t r = 0; r < block.rows; ++r) {
    max[r] = output.adds ? lse[r] : kLowest<Wide>;
    sum[r] = output.adds ? 1 : 0;
  }
  const int64_t start = ScoreBlock::first_chunk(shape, query);
  if (start >= end && !output.adds)
    for (int64_t r = 0; r < block.rows; ++r)
      Lane::each(shape.width, [to = result.at(r)](int64_t i) { to[i] = Wide(0); });
  for (block.key = start; block.key < end; block.key += kKeyChunk) {
    block.keys = at_most(kKeyChunk, end - block.key);
    score_product(scores, Left<Wide>{queries.data, queries.stride, 1}, packed_keys, block, shape,
                  Wide(shape.scale));
    for (int64_t r = 0; r < block.rows; ++r) {
      Wide* score = scores + r * kScoreStride;
      cap_row(score, shape, block.hidden(shape, r), block.visible(shape, r));
      const int64_t begin = begin_row(score, block, shape, r, kLowest<Wide>);
      const int64_t n = block.visible(shape, r) - begin;
      clear_behind(score, block, shape, r);
      if (block.sees_none(shape, r)) {
        clear_unseen(score, begin, block.visible(shape, r));
        continue;
      }
      score += begin;
      const Wide factor = softmax_row(score, n, max[r], sum[r]);
      if (rule.active)
        dropout<Wide>(score, nullptr, score, whole_groups(n),
                      block.element(shape, r) + static_cast<uint64_t>(begin), rule);
      Wide* accumulated = result.at(r);
      if (output.adds || block.key > start)
        Lane::each(shape.width, [=](int64_t i) { accumulated[i] *= factor; });
    }
    weighted_rows<Wide>(result, scores, {values.at(block.key), values.stride}, block, shape, Wide(1),
                        output.adds || block.key > start);
  }
  for (int64_t r = 0; r < block.rows; ++r) {
    Wide* from = result.at(r);
    const bool none = sum[r] == 0;  // only after a window of keys that are all behind the sample's length
    const Wide inverse = none ? Wide(0) : 1 / sum[r];
    if (wide) {
      Lane::each(shape.width, [=](int64_t i) { from[i] *= inverse; });
    } else {
      T* to = stored + r * shape.out_stride;
      Lane::each(shape.width, [=](int64_t i) { put(to[i], from[i] * inverse); });
    }
    lse[r] = none ? kLowest<Wide> : max[r] + log_of(sum[r]);
  }
}

// Scratch: scores, two blocks of rows, packed keys, widened values.
template <class T>
void attention_forward(const HeadOutput<T>& output, const HeadInput<T>& in, const HeadShape& shape,
                       const DropRule& rule, Accumulate<T>* scratch) {
  using Wide = Accumulate<T>;
  Wide* blocks = scratch + kScoreScratch;
  Wide* packed_keys = blocks + 2 * kQueryBlock * shape.width;
  Wide* memory = packed_keys + (shape.held + kPanel - 1) / kPanel * kPanel * shape.width;
  pack_panels(packed_keys, in.key, shape, blocks);
  const Rows<const Wide> values = widened(in.value, shape.key_stride, shape.keys, shape.width, memory);
  const int64_t end = shape.first_query + shape.queries;
  for (int64_t query = shape.first_query, next = 0; query < end; query = next) {
    next = end_of_block(shape, query);
    attention_queries(output, in, values, shape, rule, query, next, packed_keys, scratch);
  }
}

}  // namespace
}  // namespace trifold::cpu
