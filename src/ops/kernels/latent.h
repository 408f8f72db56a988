// The heads of multi-head latent attention (ops/rotary.h: LatentHeads): packing the results of three products, and the
// adjoint. As in rotary.h, the sines and cosines of a row are computed once, in f64.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/angle.h"
#include "ops/kernels/lane.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// The rotation of the turned parts of one row; elements 2i and 2i + 1 are pair i.
template <class Wide>
struct Turn {
  Wide sine[kRotaryPairs];
  Wide cosine[kRotaryPairs];

  void set(const LatentShape& shape, int32_t at, double direction) {
    const double position = static_cast<double>(at) * direction;
    Lane::each(shape.pairs, [&](int64_t i) {
      double s = 0;
      double c = 0;
      sine_and_cosine(position * shape.frequencies[i], s, c);
      sine[i] = static_cast<Wide>(s);
      cosine[i] = static_cast<Wide>(c);
    });
  }
  // to = factor * the rotated `from`.
  template <class To, class From>
  void apply(To* to, const From* from, int64_t pairs, Wide factor) const {
    Lane::each(pairs, [&](int64_t i) {
      const Wide a = value(from[2 * i]);
      const Wide b = value(from[2 * i + 1]);
      put(to[2 * i], factor * (a * cosine[i] - b * sine[i]));
      put(to[2 * i + 1], factor * (b * cosine[i] + a * sine[i]));
    });
  }
};

template <class T>
void latent_heads(T* packed, const T* q, const T* kv, const T* key, const int32_t* positions, int64_t rows,
                  const LatentShape& shape) {
  using Wide = Accumulate<T>;
  const int64_t turned = 2 * shape.pairs, query_width = shape.plain + turned,
                kv_width = shape.plain + shape.value;
  const int64_t row_width = shape.heads * shape.width;
  const auto copy = [](T* to, const T* from, int64_t n) {
    Lane::each(n, [=](int64_t i) { to[i] = from[i]; });
  };
  const auto clear = [](T* to, int64_t n) { Lane::each(n, [=](int64_t i) { put(to[i], Wide(0)); }); };
  Turn<Wide> turn;
  T shared[2 * kRotaryPairs];
  for (int64_t r = 0; r < rows; ++r) {
    turn.set(shape, positions[r], 1);
    turn.apply(shared, key + r * turned, shape.pairs, static_cast<Wide>(shape.key_scale));
    for (int64_t h = 0; h < shape.heads; ++h) {
      T* query = packed + r * 3 * row_width + h * shape.width;
      T *keys = query + row_width, *values = keys + row_width;
      const T* from = q + (r * shape.heads + h) * query_width;
      const T* from_pair = kv + (r * shape.heads + h) * kv_width;
      copy(query, from, shape.plain);
      turn.apply(query + shape.plain, from + shape.plain, shape.pairs, Wide(1));
      clear(query + query_width, shape.width - query_width);
      copy(keys, from_pair, shape.plain);
      copy(keys + shape.plain, shared, turned);
      clear(keys + query_width, shape.width - query_width);
      copy(values, from_pair + shape.plain, shape.value);
      clear(values + shape.value, shape.width - shape.value);
    }
  }
}

template <class T>
void latent_heads_backward(T* dq, T* dkv, T* dkey, const T* dpacked, const int32_t* positions, int64_t rows,
                           const LatentShape& shape) {
  using Wide = Accumulate<T>;
  const int64_t turned = 2 * shape.pairs, query_width = shape.plain + turned,
                kv_width = shape.plain + shape.value;
  const int64_t row_width = shape.heads * shape.width;
  const auto copy = [](T* to, const T* from, int64_t n) {
    Lane::each(n, [=](int64_t i) { to[i] = from[i]; });
  };
  Turn<Wide> turn;
  Wide sum[2 * kRotaryPairs];
  for (int64_t r = 0; r < rows; ++r) {
    turn.set(shape, positions[r], -1);
    Lane::each(turned, [&](int64_t i) { sum[i] = 0; });
    for (int64_t h = 0; h < shape.heads; ++h) {
      const T* query = dpacked + r * 3 * row_width + h * shape.width;
      const T *keys = query + row_width, *values = keys + row_width;
      T* to = dq + (r * shape.heads + h) * query_width;
      T* to_pair = dkv + (r * shape.heads + h) * kv_width;
      copy(to, query, shape.plain);
      turn.apply(to + shape.plain, query + shape.plain, shape.pairs, Wide(1));
      copy(to_pair, keys, shape.plain);
      copy(to_pair + shape.plain, values, shape.value);
      Lane::each(turned, [&](int64_t i) { sum[i] += value(keys[shape.plain + i]); });
    }
    turn.apply(dkey + r * turned, sum, shape.pairs, static_cast<Wide>(shape.key_scale));
  }
}

}  // namespace
}  // namespace trifold::cpu
