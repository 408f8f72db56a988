// Layer norm: row functors over a group, and the column sums of its parameters' gradients.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/columns.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void layer_norm(T* y, T* mean, T* rstd, const T* x, const T* gain, const T* bias, int64_t rows,
                int64_t columns, double eps) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    T* out = y + r * columns;
    const T center = Lane::sum<T>(columns, [=](auto at) { return at(in); }) / T(columns);
    const T square = Lane::sum<T>(columns, [=](auto at) { return (at(in) - center) * (at(in) - center); });
    const T inverse = 1 / root_of(square / T(columns) + T(eps));
    Lane::each(columns, [=](int64_t c) { out[c] = (in[c] - center) * inverse * gain[c] + bias[c]; });
    mean[r] = center;
    rstd[r] = inverse;
  }
}

// With n = (x - mean) rstd and g = dy gain: dx = rstd (g - avg(g) - n avg(g n)).
template <class T>
void layer_norm_backward(T* dx, const T* dy, const T* x, const T* mean, const T* rstd, const T* gain,
                         int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    const T* grad = dy + r * columns;
    T* out = dx + r * columns;
    const T center = mean[r];
    const T inverse = rstd[r];
    const T avg = Lane::sum<T>(columns, [=](auto at) { return at(grad) * at(gain); }) / T(columns);
    const T along =
        Lane::sum<T>(columns, [=](auto at) { return at(grad) * at(gain) * ((at(in) - center) * inverse); }) /
        T(columns);
    Lane::each(columns, [=](int64_t c) {
      out[c] = inverse * (grad[c] * gain[c] - avg - (in[c] - center) * inverse * along);
    });
  }
}

template <class T>
void layer_norm_backward_weight(T* dgain, T* dbias, const T* dy, const T* x, const T* mean, const T* rstd,
                                int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  sum_columns<2>(
      rows, begin, end,
      [=](int64_t r, int64_t c, int64_t width, T* first, T* second) {
        const T* grad = dy + r * columns + c;
        const T* in = x + r * columns + c;
        const T center = mean[r];
        const T inverse = rstd[r];
        Lane::each(width, [=](int64_t i) {
          first[i] += grad[i] * ((in[i] - center) * inverse);
          second[i] += grad[i];
        });
      },
      dgain, dbias);
}

template <class T>
void column_sum(T* db, const T* dy, int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  sum_columns<1>(
      rows, begin, end,
      [=](int64_t r, int64_t c, int64_t width, T* first, T*) {
        const T* grad = dy + r * columns + c;
        Lane::each(width, [=](int64_t i) { first[i] += grad[i]; });
      },
      db, static_cast<T*>(nullptr));
}

}  // namespace
}  // namespace trifold::cpu
