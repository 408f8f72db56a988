// Functions of one or two elements, applied to whole arrays. The functions are inlined into loops over contiguous runs,
// which compilers turn into vector instructions.
#pragma once

#include <utility>

#include "graph/host/strided.h"

namespace trifold::graph {

// to[i] = f(a[i]); of equal shapes.
template <class To, class From, class F>
void map_elements(const Array& a, Array& to, F f) {
  const From* in = a.as<From>();
  To* out = to.as<To>();
  const int64_t count = a.elements();
  for (int64_t i = 0; i < count; ++i) out[i] = f(in[i]);
}

// to[i] = f(a[i], b[i]), a and b repeated to the shape of `to`.
template <class To, class From, class F>
void map_pairs(const Array& a, const Array& b, Array& to, F f) {
  const From *x = a.as<From>(), *y = b.as<From>();
  To* out = to.as<To>();
  each_run<2>(to.dims, {broadcast_strides(a.dims, to.dims), broadcast_strides(b.dims, to.dims)},
              [&](const auto& at, int64_t count, const auto& step) {
                const From *p = x + at[0], *q = y + at[1];
                if (step[0] == 1 && step[1] == 1) {
                  for (int64_t i = 0; i < count; ++i) out[i] = f(p[i], q[i]);
                } else if (step[0] == 1 && step[1] == 0) {
                  const From same = *q;
                  for (int64_t i = 0; i < count; ++i) out[i] = f(p[i], same);
                } else if (step[0] == 0 && step[1] == 1) {
                  const From same = *p;
                  for (int64_t i = 0; i < count; ++i) out[i] = f(same, q[i]);
                } else {
                  for (int64_t i = 0; i < count; ++i) out[i] = f(p[i * step[0]], q[i * step[1]]);
                }
                out += count;
              });
}

}  // namespace trifold::graph
