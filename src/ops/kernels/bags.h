// Embedding bags: sums of rows of a table, and the update of touched rows. Tables are far larger than a cache
// and ids are spread over them, so both are limited by memory latency: rows are prefetched well ahead of
// their use, into the second-level cache, which has two to four times as many buffers for outstanding misses
// as the first level; on Zen 4 this more than doubles the rate of random lines. The
// processor hides the latency from the second to the first level. Lambdas that only prefetch are always_inline: GCC
// considers a function that only prefetches free of effects, and removes calls to it that are not inlined.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/formulas.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

constexpr int64_t kLine = 64;  // bytes of a cache line
// Prefetch distances: cache lines between a row's prefetch and its use, in lookups and in updates; the smallest number
// of rows between them; and bags between the prefetch and the use of the output.
constexpr int64_t kLinesAhead = 96;
constexpr int64_t kLinesAheadOfUpdate = 192;
constexpr int64_t kRowsAhead = 4;
constexpr int64_t kBagsAhead = 8;

template <class T>
[[gnu::always_inline]] inline int64_t rows_ahead(int64_t width, int64_t lines_ahead) {
  const int64_t lines = (width * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine;
  const int64_t rows = lines_ahead / lines;
  return rows < kRowsAhead ? kRowsAhead : rows;
}

template <class T>
[[gnu::always_inline]] inline void prefetch_row(const T* row, int64_t width) {
  const auto* byte = reinterpret_cast<const char*>(row);
  for (int64_t at = 0; at < width * static_cast<int64_t>(sizeof(T)); at += kLine)
    __builtin_prefetch(byte + at, 0, 2);  // for reading, into the second-level cache
}

// y = the sum of rows from[index[i]] for i in [first, last), each times weight[i] (null: 1), in registers. Rows are
// `stride` elements apart. ahead(i) prefetches memory for a later i.
template <int Vectors, class T, class Ahead>
[[gnu::always_inline]] inline void sum_rows_fixed(T* y, const T* from, int64_t stride, const int32_t* index,
                                                  const float* weight, int64_t first, int64_t last,
                                                  Ahead ahead) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  typename Simd<T>::Vector sum[Vectors] = {};
  for (int64_t i = first; i < last; ++i) {
    ahead(i);
    const T* row = from + int64_t{index[i]} * stride;
    if (weight != nullptr) {
      const T w = weight[i];
      for (int v = 0; v < Vectors; ++v) sum[v] += w * load_vector<T>(row + v * kLanes);
    } else {
      for (int v = 0; v < Vectors; ++v) sum[v] += load_vector<T>(row + v * kLanes);
    }
  }
  for (int v = 0; v < Vectors; ++v) __builtin_memcpy(y + v * kLanes, &sum[v], kVectorBytes);
}

// sum_rows_fixed for rows of any width.
template <class T, class Ahead>
[[gnu::always_inline]] inline void sum_rows_any(T* y, int64_t width, const T* from, int64_t stride,
                                                const int32_t* index, const float* weight, int64_t first,
                                                int64_t last, Ahead ahead) {
  Lane::each(width, [=](int64_t c) { y[c] = 0; });
  for (int64_t i = first; i < last; ++i) {
    ahead(i);
    const T* row = from + int64_t{index[i]} * stride;
    const T w = weight != nullptr ? T(weight[i]) : T(1);
    Lane::each(width, [=](int64_t c) { y[c] += w * row[c]; });
  }
}

// Calls body<V>(), where V is the number of vectors in a row of `width`, or 0 if there is no special loop for it.
template <class T, class Body>
[[gnu::always_inline]] inline void with_vectors(int64_t width, Body body) {
  constexpr int64_t kLanes = Simd<T>::kLanes;
  if (width == kLanes) return body.template operator()<1>();
  if (width == 2 * kLanes) return body.template operator()<2>();
  if (width == 4 * kLanes) return body.template operator()<4>();
  if (width == 8 * kLanes) return body.template operator()<8>();
  body.template operator()<0>();
}

template <class T>
void embedding_bag(T* y, int64_t y_stride, const T* table, int64_t width, const int32_t* ids,
                   const int32_t* offsets, const float* weights, int64_t begin, int64_t end) {
  const int64_t last = offsets[end];
  const int64_t distance = rows_ahead<T>(width, kLinesAhead);
  with_vectors<T>(width, [=]<int Vectors>() {
    const auto ahead = [=](int64_t i) __attribute__((always_inline)) {
      if (i + distance < last)
        prefetch_row(table + int64_t{ids[i + distance]} * width,
                     Vectors > 0 ? Vectors * Simd<T>::kLanes : width);
    };
    for (int64_t i = offsets[begin]; i < offsets[begin] + distance && i < last; ++i)
      prefetch_row(table + int64_t{ids[i]} * width, width);
    for (int64_t b = begin; b < end; ++b) {
      T* out = y + b * y_stride;
      if (b + kBagsAhead < end) prefetch_row(out + kBagsAhead * y_stride, width);
      if constexpr (Vectors > 0)
        sum_rows_fixed<Vectors>(out, table, width, ids, weights, offsets[b], offsets[b + 1], ahead);
      else
        sum_rows_any(out, width, table, width, ids, weights, offsets[b], offsets[b + 1], ahead);
    }
  });
}

template <class T>
[[gnu::always_inline]] inline T squares_of(const T* g, T scale, int64_t width) {
  return Lane::sum<T>(width, [=](auto at) {
    const auto d = at(g) * scale;
    return d * d;
  });
}

// Applies gradient g to touched row s of `task`.
template <RowAction Action, class T>
[[gnu::always_inline]] inline void apply_row(const RowTask<T>& task, const RowRule& rule, const T* g,
                                             int64_t s, int64_t width) {
  const int64_t row = task.row[s];
  T* p = task.table + row * width;
  const T scale = static_cast<T>(rule.moments.grad_scale);
  const T lr = static_cast<T>(rule.lr);
  const T eps = static_cast<T>(rule.moments.eps);
  if (Action != RowAction::Squares && Action != RowAction::Store && rule.decay != 1) [[unlikely]] {
    const T decay = static_cast<T>(rule.decay);
    Lane::each(width, [=](int64_t c) { p[c] *= decay; });
  }
  if constexpr (Action == RowAction::Sgd) {
    const T step = lr * scale;
    Lane::each(width, [=](int64_t c) { p[c] -= step * g[c]; });
  } else if constexpr (Action == RowAction::Adagrad) {
    T* state = task.state + row * width;
    const AdagradMove<T> move{eps, lr};
    Lane::each(width, [=](int64_t c) { p[c] = move(p[c], state[c], g[c] * scale); });
  } else if constexpr (Action == RowAction::RowwiseAdagrad) {
    T squares = 0;
    if (task.squares != nullptr) {
      squares = task.squares[s];
    } else {
      squares = squares_of(g, scale, width);
    }
    T& state = task.state[row];
    state += squares / static_cast<T>(task.whole_width);
    const T step = lr * scale / (root_of(state) + eps);
    Lane::each(width, [=](int64_t c) { p[c] -= step * g[c]; });
  } else if constexpr (Action == RowAction::Adam) {
    T* m = task.state + row * width;
    T* v = task.second + row * width;
    const Moments<T> moments(rule.moments);
    const T step = static_cast<T>(rule.step_size);
    Lane::each(width, [=](int64_t c) {
      moments.move(m[c], v[c], g[c]);
      p[c] -= step * m[c] / moments.root(v[c]);
    });
  } else if constexpr (Action == RowAction::Ftrl) {
    T* z = task.state + row * width;
    T* n = task.second + row * width;
    const FtrlMove<T> move(rule.ftrl);
    Lane::each(width, [=](int64_t c) { p[c] = move(p[c], z[c], n[c], g[c] * scale); });
  } else if constexpr (Action == RowAction::Squares) {
    task.squares[s] = squares_of(g, scale, width);
  } else {
    Lane::each(width, [=](int64_t c) { p[c] = g[c]; });
    task.state[row] = 1;
  }
}

// Prefetches the memory that the update of touched row s reads and writes.
template <RowAction Action, class T>
[[gnu::always_inline]] inline void prefetch_update(const RowTask<T>& task, int64_t s, int64_t width) {
  const int64_t row = task.row[s];
  if constexpr (Action != RowAction::Squares) prefetch_row(task.table + row * width, width);
  if constexpr (has_whole_state(Action)) prefetch_row(task.state + row * width, width);
  if constexpr (has_second_state(Action)) prefetch_row(task.second + row * width, width);
  if constexpr (Action == RowAction::RowwiseAdagrad) __builtin_prefetch(task.state + row, 0, 2);
}

// The number of rows of memory that the update of a row reads.
template <RowAction Action>
constexpr int64_t rows_of_update() {
  return has_second_state(Action)                                              ? 4
         : Action == RowAction::Adagrad || Action == RowAction::RowwiseAdagrad ? 3
                                                                               : 2;
}

// A gradient of fixed width stays in registers: through memory, its loads wait for the stores of earlier rows, and
// updates of rows of one cache line take twice as long.
template <RowAction Action, int Vectors, class T>
inline void update_loop(const RowTask<T>& task, const RowRule& rule, T* any_width, int64_t begin,
                        int64_t end) {
  const int64_t width = Vectors > 0 ? Vectors * Simd<T>::kLanes : task.width;
  alignas(kLine) T fixed_width[Vectors > 0 ? Vectors * Simd<T>::kLanes : 1];
  T* const g = Vectors > 0 ? fixed_width : any_width;
  const int64_t distance = rows_ahead<T>(rows_of_update<Action>() * width, kLinesAheadOfUpdate);
  const int64_t last = task.begin[end];
  const auto updated = [&task](int64_t s) { return task.touched == nullptr || task.touched[s] != 0; };
  const auto prefetch_gradient = [&](int64_t i) __attribute__((always_inline)) {
    prefetch_row(task.dy + int64_t{task.bag[i]} * task.dy_stride, width);
  };
  // If some rows are left out, their gradients are prefetched with the rows, because a fixed number of
  // lookups ahead may contain none to read.
  const bool all = task.touched == nullptr;
  const auto prefetch_all_of = [&](int64_t s) __attribute__((always_inline)) {
    if (!updated(s)) return;
    prefetch_update<Action>(task, s, width);
    if (!all)
      for (int64_t i = task.begin[s]; i < task.begin[s + 1]; ++i) prefetch_gradient(i);
  };
  const auto ahead = [&, distance, last ](int64_t i) __attribute__((always_inline)) {
    if (all && i + distance < last) prefetch_gradient(i + distance);
  };
  for (int64_t s = begin; s < end && s < begin + distance; ++s) prefetch_all_of(s);
  if (all)
    for (int64_t i = task.begin[begin]; i < last && i < task.begin[begin] + distance; ++i)
      prefetch_gradient(i);
  for (int64_t s = begin; s < end; ++s) {
    if (s + distance < end) prefetch_all_of(s + distance);
    if (!updated(s)) continue;
    if constexpr (Vectors > 0)
      sum_rows_fixed<Vectors>(g, task.dy, task.dy_stride, task.bag, task.weight, task.begin[s],
                              task.begin[s + 1], ahead);
    else
      sum_rows_any(g, width, task.dy, task.dy_stride, task.bag, task.weight, task.begin[s], task.begin[s + 1],
                   ahead);
    apply_row<Action>(task, rule, g, s, width);
  }
}

template <RowAction Action, class T>
inline void update_with(const RowTask<T>& task, const RowRule& rule, T* g, int64_t begin, int64_t end) {
  with_vectors<T>(task.width,
                  [&]<int Vectors>() { update_loop<Action, Vectors>(task, rule, g, begin, end); });
}

template <class T>
void update_rows(const RowTask<T>& task, RowAction action, const RowRule& rule, T* gradient, int64_t begin,
                 int64_t end) {
  switch (action) {
    case RowAction::Sgd:
      return update_with<RowAction::Sgd>(task, rule, gradient, begin, end);
    case RowAction::Adagrad:
      return update_with<RowAction::Adagrad>(task, rule, gradient, begin, end);
    case RowAction::RowwiseAdagrad:
      return update_with<RowAction::RowwiseAdagrad>(task, rule, gradient, begin, end);
    case RowAction::Adam:
      return update_with<RowAction::Adam>(task, rule, gradient, begin, end);
    case RowAction::Ftrl:
      return update_with<RowAction::Ftrl>(task, rule, gradient, begin, end);
    case RowAction::Squares:
      return update_with<RowAction::Squares>(task, rule, gradient, begin, end);
    case RowAction::Store:
      return update_with<RowAction::Store>(task, rule, gradient, begin, end);
  }
}

}  // namespace
}  // namespace trifold::cpu
