// NumpyRandom: the shuffle of NumPy's legacy RandomState, which defines Megatron-LM's sample order.
//
// The generator is MT19937 seeded with one 32-bit integer, exactly std::mt19937. An integer in [0, i] is drawn by
// masking: the low bits of a 32-bit draw (two draws, the high word first, if i needs more than 32 bits), repeated until
// the value is at most i.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace trifold {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : engine_(seed) {}

  uint32_t next_u32() { return static_cast<uint32_t>(engine_()); }

  // Uniform in [0, most].
  uint64_t below_or_equal(uint64_t most) {
    if (most == 0) return 0;
    uint64_t mask = most;
    for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
    uint64_t value = 0;
    do {
      value = next_u32();
      if (most > 0xffffffffULL) value = value << 32 | next_u32();
      value &= mask;
    } while (value > most);
    return value;
  }

  // Fisher-Yates from the end, as numpy.random.RandomState.shuffle does.
  template <class T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i-- > 1;) {
      const auto j = static_cast<size_t>(below_or_equal(i));
      std::swap(values[i], values[j]);
    }
  }

 private:
  std::mt19937 engine_;
};

}  // namespace trifold
