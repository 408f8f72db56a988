#include "ops/round_blocks.h"

#include <algorithm>
#include <cmath>

#include "ops/kernels/fp8.h"
#include "ops/narrow.h"

namespace trifold::cpu {

namespace {

uint8_t code_of(Bfloat16 x, float to) { return round_fp8<Fp8::E4M3>(static_cast<float>(x) * to); }

Bfloat16 number_of(uint8_t code, float from) { return Bfloat16(value_of_fp8<Fp8::E4M3>(code) * from); }

}  // namespace

float largest_of(const Bfloat16* x, const ScaledBlock& block, int64_t stride) {
  float largest = 0;
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t c = 0; c < block.columns; ++c) {
      const float magnitude = std::abs(static_cast<float>(x[r * stride + c]));
      if (std::isnan(magnitude)) return magnitude;
      largest = std::max(largest, magnitude);
    }
  return largest;
}

void round_block(Bfloat16* y, const Bfloat16* x, const ScaledBlock& block, int64_t stride) {
  const BlockScale scale = block_scale(largest_of(x, block, stride));
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t c = 0; c < block.columns; ++c)
      y[r * stride + c] = number_of(code_of(x[r * stride + c], scale.to), scale.from);
}

void narrow_rows(uint8_t* codes, float* scales, const Bfloat16* x, int64_t rows, int64_t columns,
                 int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < columns; c += kScaleBlock) {
      const int64_t count = std::min(kScaleBlock, columns - c);
      const Bfloat16* in = x + r * columns + c;
      const BlockScale scale = block_scale(largest_of(in, {1, count}, columns));
      for (int64_t i = 0; i < count; ++i) codes[r * columns + c + i] = code_of(in[i], scale.to);
      scales[c / kScaleBlock * rows + r] = scale.from;
    }
}

void widen_rows(Bfloat16* y, const uint8_t* codes, const float* scales, int64_t rows, int64_t columns,
                int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < columns; ++c)
      y[r * columns + c] = number_of(codes[r * columns + c], scales[c / kScaleBlock * rows + r]);
}

}  // namespace trifold::cpu
