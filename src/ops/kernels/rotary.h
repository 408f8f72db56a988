// Rotary position embedding: every row rotates the pairs of its heads by angles that depend on its position.
//
// The angles of a row are the same for all its heads, so their sines and cosines are computed once per row,
// in f64: in f32, an angle of some thousands of radians would have errors far above the precision of its
// sine.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/angle.h"
#include "ops/kernels/lane.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T>
void rotary(T* y, const T* x, const int32_t* positions, int64_t rows, const RotaryShape& shape) {
  using Wide = Accumulate<T>;
  Wide sine[kRotaryPairs];
  Wide cosine[kRotaryPairs];
  const int64_t pairs = shape.pairs;
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * shape.x_stride;
    T* out = y + r * shape.y_stride;
    const auto position = static_cast<double>(positions[r]) * (shape.inverse ? -1.0 : 1.0);
    const double* frequencies = shape.frequencies;
    if (shape.heads > 0)
      Lane::each(pairs, [&](int64_t i) {
        double s = 0;
        double c = 0;
        sine_and_cosine(position * frequencies[i], s, c);
        sine[i] = static_cast<Wide>(s * shape.scale);
        cosine[i] = static_cast<Wide>(c * shape.scale);
      });
    for (int64_t h = 0; h < shape.heads; ++h) {
      const T* from = in + h * shape.width;
      T* to = out + h * shape.width;
      Lane::each(pairs, [&](int64_t i) {
        const Wide a = value(from[i]);
        const Wide b = value(from[i + pairs]);
        put(to[i], a * cosine[i] - b * sine[i]);
        put(to[i + pairs], b * cosine[i] + a * sine[i]);
      });
      for (int64_t i = 2 * pairs; i < shape.width; ++i) to[i] = from[i];
    }
    const int64_t turned = shape.heads * shape.width;
    Lane::each(shape.columns - turned, [=](int64_t i) { out[turned + i] = in[turned + i]; });
  }
}

}  // namespace
}  // namespace trifold::cpu
