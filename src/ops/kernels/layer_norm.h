// Layer norm, its backward pass, and the gradients of its parameters as sums over rows.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/columns.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void layer_norm(T* y, Accumulate<T>* mean, Accumulate<T>* rstd, const T* x, const T* gain, const T* bias,
                int64_t rows, int64_t columns, double eps, double gain_offset) {
  using Wide = Accumulate<T>;
  const auto offset = static_cast<Wide>(gain_offset);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    T* out = y + r * columns;
    const Wide center = Lane::sum<Wide>(columns, [=](auto at) { return at(in); }) / Wide(columns);
    const Wide square =
        Lane::sum<Wide>(columns, [=](auto at) { return (at(in) - center) * (at(in) - center); });
    const Wide inverse = 1 / root_of(square / Wide(columns) + Wide(eps));
    Lane::each(columns, [=](int64_t c) {
      put(out[c], (value(in[c]) - center) * inverse * (value(gain[c]) + offset) + value(bias[c]));
    });
    mean[r] = center;
    rstd[r] = inverse;
  }
}

// With n = (x - mean) rstd and g = dy gain: dx = rstd (g - avg(g) - n avg(g n)).
template <class T>
void layer_norm_backward(T* dx, const T* dy, const T* x, const Accumulate<T>* mean, const Accumulate<T>* rstd,
                         const T* gain, int64_t rows, int64_t columns, double gain_offset) {
  using Wide = Accumulate<T>;
  const auto offset = static_cast<Wide>(gain_offset);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    const T* grad = dy + r * columns;
    T* out = dx + r * columns;
    const Wide center = mean[r];
    const Wide inverse = rstd[r];
    const Wide avg =
        Lane::sum<Wide>(columns, [=](auto at) { return at(grad) * (at(gain) + offset); }) / Wide(columns);
    const Wide along =
        Lane::sum<Wide>(
            columns,
            [=](auto at) { return at(grad) * (at(gain) + offset) * ((at(in) - center) * inverse); }) /
        Wide(columns);
    Lane::each(columns, [=](int64_t c) {
      const Wide normal = (value(in[c]) - center) * inverse;
      put(out[c], inverse * (value(grad[c]) * (value(gain[c]) + offset) - avg - normal * along));
    });
  }
}

template <class T>
void layer_norm_backward_weight(Accumulate<T>* dgain, Accumulate<T>* dbias, const T* dy, const T* x,
                                const Accumulate<T>* mean, const Accumulate<T>* rstd, int64_t rows,
                                int64_t columns, int64_t begin, int64_t end) {
  using Wide = Accumulate<T>;
  sum_columns<2>(
      rows, begin, end,
      [=](int64_t r, int64_t c, int64_t width, Wide* first, Wide* second) {
        const T* grad = dy + r * columns + c;
        const T* in = x + r * columns + c;
        const Wide center = mean[r];
        const Wide inverse = rstd[r];
        Lane::each(width, [=](int64_t i) {
          first[i] += value(grad[i]) * ((value(in[i]) - center) * inverse);
          second[i] += value(grad[i]);
        });
      },
      dgain, dbias);
}

template <class T>
void column_sum(Accumulate<T>* db, const T* dy, int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  using Wide = Accumulate<T>;
  sum_columns<1>(
      rows, begin, end,
      [=](int64_t r, int64_t c, int64_t width, Wide* first, Wide*) {
        const T* grad = dy + r * columns + c;
        Lane::each(width, [=](int64_t i) { first[i] += value(grad[i]); });
      },
      db, static_cast<Wide*>(nullptr));
}

}  // namespace
}  // namespace trifold::cpu
