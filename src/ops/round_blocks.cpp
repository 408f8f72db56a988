#include "ops/round_blocks.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "ops/kernels/fp8.h"
#include "ops/kernels/number.h"
#include "ops/narrow.h"

namespace trifold::cpu {

namespace {

uint16_t magnitude_word(Bfloat16 x) { return std::bit_cast<uint16_t>(x) & 0x7fffU; }

uint8_t code_of(Bfloat16 x, float to) { return round_fp8<Fp8::E4M3>(value(x) * to); }

Bfloat16 number_of(uint8_t code, float from) {
  Bfloat16 number;
  put(number, value_of_fp8<Fp8::E4M3>(code) * from);
  return number;
}

}  // namespace

// The words of bf16 magnitudes are in the order of the magnitudes, and the words of NaN are above all others.
float largest_of(const Bfloat16* x, const ScaledBlock& block, int64_t stride) {
  uint16_t largest = 0;
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t c = 0; c < block.columns; ++c)
      largest = std::max(largest, magnitude_word(x[r * stride + c]));
  return value(std::bit_cast<Bfloat16>(largest));
}

void round_block(Bfloat16* y, const Bfloat16* x, const ScaledBlock& block, int64_t stride) {
  const BlockScale scale = block_scale(largest_of(x, block, stride));
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t c = 0; c < block.columns; ++c)
      y[r * stride + c] = number_of(code_of(x[r * stride + c], scale.to), scale.from);
}

void round_columns(Bfloat16* y, const Bfloat16* x, int64_t rows, int64_t columns, int64_t stride) {
  std::vector<uint16_t> largest(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      largest[static_cast<size_t>(c)] =
          std::max(largest[static_cast<size_t>(c)], magnitude_word(x[r * stride + c]));
  std::vector<BlockScale> scales;
  for (const uint16_t word : largest) scales.push_back(block_scale(value(std::bit_cast<Bfloat16>(word))));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const BlockScale& scale = scales[static_cast<size_t>(c)];
      y[r * stride + c] = number_of(code_of(x[r * stride + c], scale.to), scale.from);
    }
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

void turn_rows(uint8_t* codes, float* scales, const Bfloat16* x, int64_t rows, int64_t columns, int64_t begin,
               int64_t end) {
  std::vector<Bfloat16> rounded(static_cast<size_t>(std::min(kScaleBlock, end - begin) * columns));
  for (int64_t block = begin; block < end; block += kScaleBlock) {
    const int64_t count = std::min(kScaleBlock, end - block);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t c = 0; c < columns; c += kScaleBlock)
        round_block(rounded.data() + r * columns + c, x + (block + r) * columns + c,
                    {1, std::min(kScaleBlock, columns - c)}, columns);
    for (int64_t c = 0; c < columns; ++c) {
      const BlockScale scale = block_scale(largest_of(rounded.data() + c, {count, 1}, columns));
      for (int64_t r = 0; r < count; ++r)
        codes[c * rows + block + r] = code_of(rounded[static_cast<size_t>(r * columns + c)], scale.to);
      scales[block / kScaleBlock * columns + c] = scale.from;
    }
  }
}

void sum_rows(float* sums, const Bfloat16* x, int64_t columns, int64_t begin, int64_t end) {
  std::fill_n(sums, columns, 0.0F);
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < columns; ++c) sums[c] += value(x[r * columns + c]);
}

void widen_turned(Bfloat16* y, const uint8_t* codes, const float* scales, int64_t rows, int64_t columns,
                  int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < columns; ++c)
      y[r * columns + c] = number_of(codes[c * rows + r], scales[r / kScaleBlock * columns + c]);
}

void widen_rows(Bfloat16* y, const uint8_t* codes, const float* scales, int64_t rows, int64_t columns,
                int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < columns; ++c)
      y[r * columns + c] = number_of(codes[r * columns + c], scales[c / kScaleBlock * rows + r]);
}

}  // namespace trifold::cpu
