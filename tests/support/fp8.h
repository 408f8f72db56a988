// Rounds a tensor to 8 bits like the table of --fp8, step by step: scales it so that its largest magnitude becomes the
// format's largest number, rounds by the format's definition, and divides by the scale.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/kernels/fp8.h"

namespace trifold::test {

template <cpu::Fp8 Format>
void round_to_fp8(std::vector<float>& numbers) {
  float largest = 0;
  for (const float x : numbers) largest = std::max(largest, std::abs(x));
  if (largest == 0) return;
  const float to = cpu::Fp8Of<Format>::kLargest / largest;
  for (float& x : numbers) x = cpu::value_of_fp8<Format>(cpu::round_fp8<Format>(x * to)) * (1 / to);
}

inline void round_to_fp8(std::vector<float>& numbers, cpu::Fp8 format) {
  if (format == cpu::Fp8::E4M3)
    round_to_fp8<cpu::Fp8::E4M3>(numbers);
  else
    round_to_fp8<cpu::Fp8::E5M2>(numbers);
}

}  // namespace trifold::test
