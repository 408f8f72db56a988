// The frequencies of rotary position embedding, copied from host memory into a launch's arguments.
#pragma once

#include <cstdint>

namespace trifold::cuda {

constexpr int64_t kUsualPairs = 64;  // enough for head_dim 128

template <int64_t Most>
struct Frequencies {
  double at[Most];

  Frequencies(const double* from, int64_t pairs) : at() {
    for (int64_t i = 0; i < pairs; ++i) at[i] = from[i];
  }
};

}  // namespace trifold::cuda
