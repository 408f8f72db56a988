// Dropout and other random factors by Philox4x32-10: the same words as core/random.h, for many counters at a time.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/formulas.h"
#include "ops/kernels/lane.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// words[4 i + j] = word j of counter `first + i`, for i in [0, counters).
inline void philox_words(uint32_t* words, const DropRule& rule, uint64_t first, int64_t counters) {
#pragma omp simd
  for (int64_t i = 0; i < counters; ++i) {
    const PhiloxWords block = philox_block(rule.key_lo, rule.key_hi, first + static_cast<uint64_t>(i));
    words[4 * i] = block.at[0];
    words[4 * i + 1] = block.at[1];
    words[4 * i + 2] = block.at[2];
    words[4 * i + 3] = block.at[3];
  }
}

constexpr int64_t kDropTile = 512;  // elements per batch of random words

// Calls body(begin, count, words) for tiles that cover [0, n); words[i] belongs to element begin + i, whose
// global index is first + begin + i.
template <class Body>
[[gnu::always_inline]] inline void for_drop_tiles(int64_t n, uint64_t first, const DropRule& rule,
                                                  Body body) {
  uint32_t words[kDropTile + 8];
  for (int64_t begin = 0; begin < n; begin += kDropTile) {
    const int64_t count = n - begin < kDropTile ? n - begin : kDropTile;
    const uint64_t element = first + static_cast<uint64_t>(begin);
    const auto skip = static_cast<int64_t>(element % 4);
    philox_words(words, rule, element / 4, (skip + count + 3) / 4);
    body(begin, count, words + skip);
  }
}

template <class T>
void dropout(T* y, const T* residual, const T* x, int64_t n, uint64_t first, const DropRule& rule) {
  using Wide = Accumulate<T>;
  if (!rule.active) {
    if (residual == nullptr) return Lane::each(n, [=](int64_t i) { y[i] = x[i]; });
    return Lane::each(n, [=](int64_t i) { put(y[i], value(residual[i]) + value(x[i])); });
  }
  const auto multiplier = Wide(rule.multiplier);
  const uint32_t threshold = rule.threshold;
  for_drop_tiles(n, first, rule, [=](int64_t begin, int64_t count, const uint32_t* words) {
    T* out = y + begin;
    const T* in = x + begin;
    const auto dropped = [=](int64_t i) {
      return words[i] >= threshold ? value(in[i]) * multiplier : Wide(0);
    };
    if (residual == nullptr) {
      Lane::each(count, [=](int64_t i) { put(out[i], dropped(i)); });
    } else {
      const T* base = residual + begin;
      Lane::each(count, [=](int64_t i) { put(out[i], value(base[i]) + dropped(i)); });
    }
  });
}

template <class T>
void scale_uniform(T* y, const T* x, int64_t n, uint64_t first, const UniformRule& rule) {
  using Wide = Accumulate<T>;
  for_drop_tiles(n, first, rule.words, [=](int64_t begin, int64_t count, const uint32_t* words) {
    T* out = y + begin;
    const T* in = x + begin;
    Lane::each(count, [=](int64_t i) { put(out[i], value(in[i]) * uniform_number<Wide>(rule, words[i])); });
  });
}

template <class T>
void round_randomly(Bfloat16* y, const T* x, int64_t n, uint64_t first, const DropRule& rule) {
  for_drop_tiles(n, first, rule, [=](int64_t begin, int64_t count, const uint32_t* words) {
    Bfloat16* out = y + begin;
    const T* in = x + begin;
    Lane::each(count,
               [=](int64_t i) { out[i].bits = random_bfloat16_bits(static_cast<float>(in[i]), words[i]); });
  });
}

template <class T>
void round_to_small(uint8_t* y, const T* x, int64_t n, uint64_t first, const DropRule& rule, bool is_signed) {
  for_drop_tiles(n, first, rule, [=](int64_t begin, int64_t count, const uint32_t* words) {
    uint8_t* out = y + begin;
    const T* in = x + begin;
    Lane::each(count, [=](int64_t i) {
      out[i] = random_small_code(static_cast<float>(in[i]), words[i], is_signed);
    });
  });
}

template <class T>
void widen_small(T* y, const uint8_t* x, int64_t n, bool is_signed) {
  Lane::each(n, [=](int64_t i) { y[i] = static_cast<T>(small_value(x[i], is_signed)); });
}

}  // namespace
}  // namespace trifold::cpu
