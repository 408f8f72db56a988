// The angles of rotary position embedding as an argument of a launch: the table is in host memory, and small.
#pragma once

#include <cstdint>

namespace trifold::cuda {

constexpr int64_t kUsualPairs = 64;  // enough for heads of 128 numbers

template <int64_t Most>
struct Frequencies {
  double at[Most];

  Frequencies(const double* from, int64_t pairs) : at() {
    for (int64_t i = 0; i < pairs; ++i) at[i] = from[i];
  }
};

}  // namespace trifold::cuda
