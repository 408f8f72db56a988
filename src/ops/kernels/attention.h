// The row work of blocked attention; the products between blocks are GEMMs that the launcher asks for.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/dropout.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// How many keys of the block the query in row r may look at.
inline int64_t visible_keys(const ScoreBlock& block, int64_t r) {
  if (!block.causal) return block.keys;
  const int64_t limit = block.query + r + 1 - block.key;
  return limit < 0 ? 0 : limit < block.keys ? limit : block.keys;
}

// The global element index of (row r, first key of the block).
inline uint64_t row_element(const ScoreBlock& block, int64_t r) {
  return block.element + static_cast<uint64_t>((block.query + r) * block.seq + block.key);
}

template <class T>
void attention_softmax(T* scores, T* max, T* sum, T* out, int64_t width, int64_t stride,
                       const ScoreBlock& block, const DropRule& rule) {
  for (int64_t r = 0; r < block.rows; ++r) {
    T* row = scores + r * block.keys;
    const int64_t n = visible_keys(block, r);
    const T before = max[r];
    const T most = Lane::max<T>(n, before, [=](int64_t i) { return row[i]; });
    const T total = Lane::sum<T>(n, [=](int64_t i) { return row[i] = exp_of(row[i] - most); });
    const T factor = exp_of(before - most);
    for (int64_t i = n; i < block.keys; ++i) row[i] = 0;
    max[r] = most;
    sum[r] = sum[r] * factor + total;
    if (rule.active) dropout<T>(row, nullptr, row, n, row_element(block, r), rule);
    if (block.key > 0) {
      T* accumulated = out + r * stride;
      Lane::each(width, [=](int64_t i) { accumulated[i] *= factor; });
    }
  }
}

template <class T>
void attention_finish(T* out, T* lse, const T* max, const T* sum, int64_t rows, int64_t width,
                      int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    T* row = out + r * stride;
    const T inverse = 1 / sum[r];
    Lane::each(width, [=](int64_t i) { row[i] *= inverse; });
    lse[r] = max[r] + log_of(sum[r]);
  }
}

template <class T>
void attention_delta(T* delta, const T* dout, const T* out, int64_t rows, int64_t width, int64_t stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* a = dout + r * stride;
    const T* b = out + r * stride;
    delta[r] = Lane::sum<T>(width, [=](int64_t i) { return a[i] * b[i]; });
  }
}

// p = exp(score - lse); the gradient of the score is p (dp - delta), dp the gradient of p through its
// dropout.
template <class T>
void attention_gradient(T* scores, T* dscores, const T* lse, const T* delta, const ScoreBlock& block,
                        const DropRule& rule) {
  const auto multiplier = T(rule.multiplier);
  const uint32_t threshold = rule.threshold;
  for (int64_t r = 0; r < block.rows; ++r) {
    T* row = scores + r * block.keys;
    T* grad = dscores + r * block.keys;
    const int64_t n = visible_keys(block, r);
    const T log_sum = lse[r];
    const T shift = delta[r];
    if (rule.active) {
      for_drop_tiles(n, row_element(block, r), rule,
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
      Lane::each(n, [=](int64_t i) {
        const T probability = exp_of(row[i] - log_sum);
        row[i] = probability;
        grad[i] = probability * (grad[i] - shift);
      });
    }
    for (int64_t i = n; i < block.keys; ++i) row[i] = grad[i] = 0;
  }
}

}  // namespace
}  // namespace trifold::cpu
