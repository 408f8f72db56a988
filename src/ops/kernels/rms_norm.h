// Root-mean-square norm, its backward pass, and the gradient of its gain as a sum over rows.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/columns.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/math.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void rms_norm(T* y, Accumulate<T>* rstd, const T* x, const T* gain, int64_t rows, int64_t columns, double eps,
              double gain_offset) {
  using Wide = Accumulate<T>;
  const auto offset = static_cast<Wide>(gain_offset);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    T* out = y + r * columns;
    const Wide square = Lane::sum<Wide>(columns, [=](auto at) { return at(in) * at(in); });
    const Wide inverse = 1 / root_of(square / Wide(columns) + Wide(eps));
    Lane::each(columns, [=](int64_t c) { put(out[c], value(in[c]) * inverse * (value(gain[c]) + offset)); });
    rstd[r] = inverse;
  }
}

// With n = x rstd and g = dy gain: dx = rstd (g - n avg(g n)).
template <class T>
void rms_norm_backward(T* dx, const T* dy, const T* x, const Accumulate<T>* rstd, const T* gain, int64_t rows,
                       int64_t columns, double gain_offset) {
  using Wide = Accumulate<T>;
  const auto offset = static_cast<Wide>(gain_offset);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    const T* grad = dy + r * columns;
    T* out = dx + r * columns;
    const Wide inverse = rstd[r];
    const Wide along =
        Lane::sum<Wide>(columns,
                        [=](auto at) { return at(grad) * (at(gain) + offset) * (at(in) * inverse); }) /
        Wide(columns);
    Lane::each(columns, [=](int64_t c) {
      put(out[c], inverse * (value(grad[c]) * (value(gain[c]) + offset) - value(in[c]) * inverse * along));
    });
  }
}

// ---- rows of which only some columns are here (OpTable::rms_part_sums) ----

template <class T>
void rms_part_sums(Accumulate<T>* sums, const T* x, const T* dy, const T* gain, int64_t rows, int64_t columns,
                   double gain_offset) {
  using Wide = Accumulate<T>;
  const auto offset = static_cast<Wide>(gain_offset);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    if (dy == nullptr) {
      sums[r] = Lane::sum<Wide>(columns, [=](auto at) { return at(in) * at(in); });
      continue;
    }
    const T* grad = dy + r * columns;
    sums[r] = Lane::sum<Wide>(columns, [=](auto at) { return at(in) * at(grad) * (at(gain) + offset); });
  }
}

template <class T>
void rms_part(T* y, const T* x, const Accumulate<T>* rstd, const T* gain, int64_t rows, int64_t columns,
              double gain_offset) {
  using Wide = Accumulate<T>;
  const auto offset = static_cast<Wide>(gain_offset);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    T* out = y + r * columns;
    const Wide inverse = rstd[r];
    Lane::each(columns, [=](int64_t c) { put(out[c], value(in[c]) * inverse * (value(gain[c]) + offset)); });
  }
}

template <class T>
void rms_part_backward(T* dx, const T* dy, const T* x, const Accumulate<T>* rstd, const Accumulate<T>* along,
                       const T* gain, int64_t rows, int64_t columns, double gain_offset) {
  using Wide = Accumulate<T>;
  const auto offset = static_cast<Wide>(gain_offset);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * columns;
    const T* grad = dy + r * columns;
    T* out = dx + r * columns;
    const Wide inverse = rstd[r];
    const Wide along_x = inverse * inverse * along[r];
    Lane::each(columns, [=](int64_t c) {
      put(out[c], inverse * (value(grad[c]) * (value(gain[c]) + offset) - value(in[c]) * along_x));
    });
  }
}

template <class T>
void rms_norm_backward_weight(Accumulate<T>* dgain, const T* dy, const T* x, const Accumulate<T>* rstd,
                              int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  using Wide = Accumulate<T>;
  sum_columns<1>(
      rows, begin, end,
      [=](int64_t r, int64_t c, int64_t width, Wide* first, Wide*) {
        const T* grad = dy + r * columns + c;
        const T* in = x + r * columns + c;
        const Wide inverse = rstd[r];
        Lane::each(width, [=](int64_t i) { first[i] += value(grad[i]) * (value(in[i]) * inverse); });
      },
      dgain, static_cast<Wide*>(nullptr));
}

}  // namespace
}  // namespace trifold::cpu
