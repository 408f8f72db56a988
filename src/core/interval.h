// Interval: the half-open range [begin, end) of things that are counted: sequences, tokens, sentences, bytes.
#pragma once

#include <cstdint>

namespace trifold {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

}  // namespace trifold
