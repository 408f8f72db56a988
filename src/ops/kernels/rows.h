// Table rows by id, cross entropy over a part of the vocabulary, and sums to a scalar.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/columns.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void embedding(T* y, const T* table, const int32_t* ids, int64_t rows, int64_t columns, int64_t first_id,
               int64_t held, bool accumulate) {
  for (int64_t r = 0; r < rows; ++r) {
    T* out = y + r * columns;
    const int64_t id = ids[r] - first_id;
    if (id < 0 || id >= held) {
      if (!accumulate) Lane::each(columns, [=](int64_t c) { put(out[c], 0); });
      continue;
    }
    const T* in = table + id * columns;
    if (accumulate) {
      Lane::each(columns, [=](int64_t c) { put(out[c], value(out[c]) + value(in[c])); });
    } else {
      Lane::each(columns, [=](int64_t c) { out[c] = in[c]; });
    }
  }
}

// Columns [begin, end) of every row: a strip of the table belongs to one worker. The rows of one id are
// adjacent in `order`; they are summed in `part`, which is then added to the table.
template <class T>
void embedding_backward(Accumulate<T>* dtable, const T* dy, const int32_t* ids, const int32_t* order,
                        int64_t rows, int64_t columns, int64_t begin, int64_t end, int64_t first_id,
                        int64_t held) {
  using Wide = Accumulate<T>;
  for (int64_t first = 0, last = 0; first < rows; first = last) {
    const int32_t word = ids[order[first]];
    while (last < rows && ids[order[last]] == word) ++last;
    const int64_t id = word - first_id;
    if (id < 0 || id >= held) continue;
    for (int64_t c = begin; c < end; c += kStripWidth) {
      const int64_t width = end - c < kStripWidth ? end - c : kStripWidth;
      Wide part[kStripWidth] = {};
      for (int64_t r = first; r < last; ++r) {
        const T* in = dy + order[r] * columns + c;
        Lane::each(width, [&, in](int64_t i) { part[i] += value(in[i]); });
      }
      Wide* out = dtable + id * columns + c;
      Lane::each(width, [&, out](int64_t i) { out[i] += part[i]; });
    }
  }
}

constexpr int64_t kLogitChunk = 1024;

// One pass over a row: a chunk is read for its maximum and, while it is in the first-level cache, again for
// its exponentials.
template <class T>
void softmax_stats(Accumulate<T>* max, Accumulate<T>* sum, Accumulate<T>* target, const T* logits,
                   const int32_t* labels, int64_t rows, const VocabularyPart& part) {
  using Wide = Accumulate<T>;
  Wide exponentials[kLogitChunk];
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * part.columns;
    Wide most = kLowest<Wide>;
    Wide total = 0;
    for (int64_t c = 0; c < part.held; c += kLogitChunk) {
      const int64_t n = part.held - c < kLogitChunk ? part.held - c : kLogitChunk;
      const T* chunk = row + c;
      const Wide now = Lane::max(n, most, chunk);
      Lane::each(n, [&, now](int64_t i) { exponentials[i] = exp_of(value(chunk[i]) - now); });
      total = total * exp_of(most - now) + Lane::sum<Wide>(n, [&](auto at) { return at(exponentials); });
      most = now;
    }
    const int64_t label = labels[r] - part.first_id;
    max[r] = most;
    sum[r] = total;
    target[r] = label >= 0 && label < part.held ? value(row[label]) : Wide(0);
  }
}

template <class T>
void softmax_rescale(T* sum, const T* local_max, const T* global_max, int64_t n) {
  Lane::each(n, [=](int64_t i) { sum[i] *= exp_of(local_max[i] - global_max[i]); });
}

template <class T>
void cross_entropy(T* loss, const T* max, const T* sum, const T* target, int64_t n) {
  Lane::each(n, [=](int64_t i) { loss[i] = log_of(sum[i]) + (max[i] - target[i]); });
}

template <class T>
void cross_entropy_backward(T* dlogits, const T* logits, const Accumulate<T>* max, const Accumulate<T>* sum,
                            const int32_t* labels, const float* weight, double scale, int64_t rows,
                            const VocabularyPart& part) {
  using Wide = Accumulate<T>;
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = logits + r * part.columns;
    T* out = dlogits + r * part.columns;
    const Wide most = max[r];
    const Wide factor = Wide(static_cast<double>(weight[r]) * scale);
    const Wide share = factor / sum[r];
    const int64_t label = labels[r] - part.first_id;
    const bool here = label >= 0 && label < part.held;
    const Wide probability = here ? exp_of(value(in[label]) - most) * share : Wide(0);
    Lane::each(part.held, [=](int64_t c) { put(out[c], exp_of(value(in[c]) - most) * share); });
    for (int64_t c = part.held; c < part.columns; ++c) put(out[c], 0);
    if (here) put(out[label], probability - factor);
  }
}

template <class T>
double sum_squares(const T* x, int64_t n) {
  return Lane::sum_in_f64(n, [=](int64_t i) {
    const auto number = static_cast<double>(value(x[i]));
    return number * number;
  });
}

template <class T>
double weighted_sum(const T* x, const float* weight, int64_t n) {
  return Lane::sum_in_f64(
      n, [=](int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(weight[i]); });
}

}  // namespace
}  // namespace trifold::cpu
