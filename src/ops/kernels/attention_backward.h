// Backward attention of one head, over the same blocks as forward. Probabilities are recomputed from the
// saved log of the sum.
#pragma once

#include "ops/kernels/attention_blocks.h"
#include "ops/kernels/dropout.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// p = exp(score - lse); the gradient of the score is p (dp - delta), where dp is the gradient of p through
// its dropout, times the derivative of the soft cap if `Capped`. Replaces `scores` by the probabilities after dropout
// and `dscores`, which holds dp, by the gradients; both are zero where a row's tile or group extends beyond the keys
// that its query sees.
template <bool Capped, class T>
void gradient_rows(T* scores, T* dscores, const T* lse, const T* delta, const ScoreBlock& block,
                   const HeadShape& shape, const DropRule& rule) {
  const auto multiplier = T(rule.multiplier);
  const uint32_t threshold = rule.threshold;
  // With the derivative of the cap, from the capped score; 0 for the lowest score, which masked keys have.
  const T per_square = Capped ? T(1 / (shape.soft_cap * shape.soft_cap)) : T(0);
  const auto through_cap = [=](T gradient, T score) {
    if constexpr (!Capped) return gradient;
    const T slope = 1 - score * score * per_square;
    return slope > 0 ? gradient * slope : T(0);
  };
  for (int64_t r = 0; r < block.rows; ++r) {
    T* row = scores + r * kScoreStride;
    T* grad = dscores + r * kScoreStride;
    cap_row(row, shape, block.hidden(shape, r), block.visible(shape, r));
    const int64_t begin = begin_row(row, block, shape, r, kLowest<T>);
    begin_row(grad, block, shape, r, T(0));
    clear_behind(row, block, shape, r);
    clear_behind(grad, block, shape, r);
    if (block.sees_none(shape, r)) {
      clear_unseen(row, begin, block.visible(shape, r));
      clear_unseen(grad, begin, block.visible(shape, r));
      continue;
    }
    row += begin;
    grad += begin;
    const int64_t n = block.visible(shape, r) - begin;
    const T log_sum = lse[r];
    const T shift = delta[r];
    end_row(row, n, kLowest<T>);
    end_row(grad, n, T(0));
    if (rule.active) {
      for_drop_tiles(whole_groups(n), block.element(shape, r) + static_cast<uint64_t>(begin), rule,
                     [=](int64_t at, int64_t count, const uint32_t* words) {
                       T* p = row + at;
                       T* d = grad + at;
                       Lane::each(count, [=](int64_t i) {
                         const T score = p[i];
                         const T probability = exp_of(score - log_sum);
                         const T keep = words[i] >= threshold ? multiplier : T(0);
                         p[i] = probability * keep;
                         d[i] = through_cap(probability * (d[i] * keep - shift), score);
                       });
                     });
    } else {
      Lane::each(whole_groups(n), [=](int64_t i) {
        const T score = row[i];
        const T probability = exp_of(score - log_sum);
        row[i] = probability;
        grad[i] = through_cap(probability * (grad[i] - shift), score);
      });
    }
  }
}

// The state that the blocks of one head's backward share. `blocks` holds three blocks of rows.
template <class T>
struct BackwardHead {
  using Wide = Accumulate<T>;
  Rows<const Wide> keys;
  Rows<Wide> dkeys, dvalues;
  Wide *scores, *dscores, *packed_keys, *packed_values, *blocks;

  Wide* block(int index, int64_t width) const { return blocks + index * kQueryBlock * width; }
};

template <class T>
void attention_backward_queries(const BackwardHead<T>& head, const HeadGradient<T>& grad, const T* dout,
                                const T* out, const Accumulate<T>* lse, const T* query_rows,
                                const HeadShape& shape, const DropRule& rule, int64_t query,
                                int64_t query_end, bool first) {
  using Wide = Accumulate<T>;
  ScoreBlock block{query_end - query, 0, query, 0};
  const int64_t row = query - shape.first_query;
  const int64_t end = ScoreBlock::end_seen(shape, query + block.rows - 1);
  const int64_t stride = shape.query_stride;
  const int64_t width = shape.width;
  const auto scale = Wide(shape.scale);
  const Rows<const Wide> queries =
      widened(query_rows + row * stride, stride, block.rows, width, head.block(0, width));
  const Rows<const Wide> dresult =
      widened(dout + row * shape.out_stride, shape.out_stride, block.rows, width, head.block(1, width));
  const bool wide = grad.wide_query != nullptr;
  const Rows<Wide> dqueries =
      wide ? Rows<Wide>{grad.wide_query + row * shape.out_stride, shape.out_stride}
           : results_for(grad.query + row * stride, stride, width, head.block(2, width));
  Wide delta[kQueryBlock];
  for (int64_t r = 0; r < block.rows; ++r) {
    const Wide* a = dresult.at(r);
    const T* b = out + (row + r) * shape.out_stride;
    delta[r] = Lane::sum<Wide>(width, [=](auto at) { return at(a) * at(b); });
  }
  const int64_t start = ScoreBlock::first_chunk(shape, query);
  if (start >= end && !wide)
    for (int64_t r = 0; r < block.rows; ++r)
      Lane::each(width, [to = dqueries.at(r)](int64_t i) { to[i] = Wide(0); });
  for (block.key = start; block.key < end; block.key += kKeyChunk) {
    block.keys = at_most(kKeyChunk, end - block.key);
    score_product(head.scores, Left<Wide>{queries.data, queries.stride, 1}, head.packed_keys, block, shape,
                  scale);
    score_product(head.dscores, Left<Wide>{dresult.data, dresult.stride, 1}, head.packed_values, block, shape,
                  Wide(1));
    if (shape.soft_cap > 0)
      gradient_rows<true>(head.scores, head.dscores, lse + row, delta, block, shape, rule);
    else
      gradient_rows<false>(head.scores, head.dscores, lse + row, delta, block, shape, rule);
    weighted_columns<Wide>({head.dvalues.at(block.key), head.dvalues.stride}, head.scores, dresult, block,
                           shape, Wide(1), !first);
    weighted_columns<Wide>({head.dkeys.at(block.key), head.dkeys.stride}, head.dscores, queries, block, shape,
                           scale, !first);
    weighted_rows<Wide>(dqueries, head.dscores, {head.keys.at(block.key), head.keys.stride}, block, shape,
                        scale, wide || block.key > start);
  }
  if (!wide) store(grad.query + row * stride, stride, dqueries, block.rows, width);
}

template <class T>
inline void clear_rows(Rows<T> rows, int64_t begin, int64_t end, int64_t width) {
  for (int64_t r = begin; r < end; ++r) {
    T* row = rows.at(r);
    Lane::each(width, [=](int64_t i) { row[i] = 0; });
  }
}

// The last block of queries is processed first. If `assign` is set, it assigns the gradients of keys and
// values, because it sees every valid key; if first_keys hide some from it, they are cleared first. All other
// blocks, runs of queries and heads that share these keys add to them. Gradients of 16-bit types accumulate
// in scratch, which persists between calls, and are rounded when `last` is set, unless they have memory in
// the wide type.
template <class T>
void attention_backward(const HeadGradient<T>& grad, const T* dout, const T* out, const Accumulate<T>* lse,
                        const HeadInput<T>& in, const HeadShape& shape, const DropRule& rule, bool assign,
                        bool last, Accumulate<T>* scratch) {
  const int64_t stride = shape.key_stride;
  const int64_t whole = shape.held * shape.width;
  const int64_t panels = (shape.held + kPanel - 1) / kPanel * kPanel * shape.width;
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
  const bool wide = grad.wide_key != nullptr;
  head.dkeys = wide ? Rows<Accumulate<T>>{grad.wide_key, stride}
                    : results_for(grad.key, stride, shape.width, memory + whole);
  head.dvalues = wide ? Rows<Accumulate<T>>{grad.wide_value, stride}
                      : results_for(grad.value, stride, shape.width, memory + 2 * whole);
  const bool clear = assign && shape.hides;
  if (clear) {
    clear_rows(head.dkeys, 0, shape.keys, shape.width);
    clear_rows(head.dvalues, 0, shape.keys, shape.width);
  }
  const int64_t last_query = shape.first_query + shape.queries;
  for (int64_t end = last_query, query = 0; end > shape.first_query; end = query) {
    query = begin_of_block(shape, end);
    attention_backward_queries(head, grad, dout, out, lse, in.query, shape, rule, query, end,
                               assign && !clear && end == last_query);
  }
  if (assign) {
    clear_rows(head.dkeys, shape.keys, shape.held, shape.width);
    clear_rows(head.dvalues, shape.keys, shape.held, shape.width);
  }
  if (!last || wide) return;
  store(grad.key, stride, head.dkeys, shape.held, shape.width);
  store(grad.value, stride, head.dvalues, shape.held, shape.width);
}

}  // namespace
}  // namespace trifold::cpu
