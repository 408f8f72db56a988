// A mixture of experts: the router token by token, and the rows of choices.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/routing.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void route(T* gates, int32_t* chosen, const T* logits, const T* bias, int64_t experts, const Router& router,
           int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t)
    route_token(gates + t * router.choices, chosen + t * router.choices, logits + t * experts, bias, experts,
                router);
}

// `padding` may be null: all tokens count.
template <class T>
void count_choices(int32_t* counts, const T* logits, const int32_t* padding, int64_t experts, int64_t tokens,
                   const Router& router) {
  for (int64_t i = 0; i < experts; ++i) counts[i] = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    if (padding != nullptr && padding[t] != 0) continue;
    const T* row = logits + t * experts;
    visit_largest<T>(
        experts, router.choices, [row](int64_t i) { return row[i]; },
        [counts](int64_t, int64_t expert) { ++counts[expert]; });
  }
}

template <class T>
void router_losses(T* balance, T* z, int32_t* counts, const T* logits, const int32_t* padding,
                   int64_t experts, int64_t seq, const Router& router, int64_t begin, int64_t end) {
  for (int64_t b = begin; b < end; ++b) {
    int32_t* counted = counts + b * experts;
    if (!router.counted)
      count_choices(counted, logits + b * seq * experts, padding == nullptr ? nullptr : padding + b * seq,
                    experts, seq, router);
    for (int64_t t = b * seq; t < (b + 1) * seq; ++t)
      token_losses(balance[t], z[t], logits + t * experts, counted, experts, router);
  }
}

template <class T>
void route_backward(T* dlogits, const RouterGradient<T>& in, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) token_gradient(dlogits + t * in.experts, in, t);
}

template <class T>
void gate_rows(T* y, const T* x, const Accumulate<T>* gates, const int32_t* row, int64_t columns,
               int64_t begin, int64_t end) {
  for (int64_t c = begin; c < end; ++c) {
    const Accumulate<T> gate = gates[c];
    const T* in = x + row[c] * columns;
    T* out = y + row[c] * columns;
    Lane::each(columns, [=](int64_t i) { put(out[i], gate * value(in[i])); });
  }
}

template <class T>
void gate_rows_backward(T* dx, Accumulate<T>* dgates, const T* dy, const T* x, const Accumulate<T>* gates,
                        const int32_t* row, int64_t columns, int64_t begin, int64_t end) {
  for (int64_t c = begin; c < end; ++c) {
    const int64_t at = row[c] * columns;
    const T* of_output = dy + at;
    const T* of_input = x + at;
    dgates[c] = Lane::sum<Accumulate<T>>(
        columns, [=](auto place)
                     __attribute__((always_inline)) { return place(of_output) * place(of_input); });
  }
  gate_rows(dx, dy, gates, row, columns, begin, end);
}

template <class T>
void sum_choices(T* y, const T* x, const int32_t* row, int64_t choices, int64_t columns, bool accumulate,
                 int64_t begin, int64_t end) {
  constexpr int64_t kPart = 64;  // columns whose sums stay in registers
  for (int64_t t = begin; t < end; ++t) {
    const int32_t* rows = row + t * choices;
    for (int64_t first = 0; first < columns; first += kPart) {
      const int64_t width = columns - first < kPart ? columns - first : kPart;
      T* out = y + t * columns + first;
      Accumulate<T> sum[kPart] = {};
      if (accumulate) Lane::each(width, [&, out](int64_t i) { sum[i] = value(out[i]); });
      for (int64_t s = 0; s < choices; ++s) {
        const T* in = x + rows[s] * columns + first;
        Lane::each(width, [&, in](int64_t i) { sum[i] += value(in[i]); });
      }
      Lane::each(width, [&, out](int64_t i) { put(out[i], sum[i]); });
    }
  }
}

}  // namespace
}  // namespace trifold::cpu
