// Interval: a half-open range [begin, end) of indices (of sequences, tokens, sentences, bytes).
#pragma once

#include <cstdint>

namespace trifold {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

}  // namespace trifold
