// Rounding to E4M3 with a scale for each block of a matrix (ops/narrow.h), on the host.
#pragma once

#include <cstdint>

#include "core/float16.h"

namespace trifold::cpu {

// Rows and columns of a matrix with one scale; the last blocks may be smaller.
struct ScaledBlock {
  int64_t rows, columns;
};

// A block whose upper left element is x[0], of rows of `stride` elements.
//
// Its largest magnitude; NaN if an element is NaN.
float largest_of(const Bfloat16* x, const ScaledBlock& block, int64_t stride);
// y = x rounded to 8 bits and multiplied by its scale again; y may be x.
void round_block(Bfloat16* y, const Bfloat16* x, const ScaledBlock& block, int64_t stride);

// round_block of each of `columns` columns, in the order in which they lie in memory.
void round_columns(Bfloat16* y, const Bfloat16* x, int64_t rows, int64_t columns, int64_t stride);

// Narrow form of rows [begin, end) of x [rows, columns]: codes and scales as in ops/narrow.h.
void narrow_rows(uint8_t* codes, float* scales, const Bfloat16* x, int64_t rows, int64_t columns,
                 int64_t begin, int64_t end);
// Turned form of rows [begin, end) of x, of which `begin` is a multiple of 128 and `end` is one too or `rows`: codes
// [columns, rows], scales [blocks of rows, columns]. x is rounded as by narrow_rows first.
void turn_rows(uint8_t* codes, float* scales, const Bfloat16* x, int64_t rows, int64_t columns, int64_t begin,
               int64_t end);
// sums[c] = the sum over r of x[r, c] for r in [begin, end).
void sum_rows(float* sums, const Bfloat16* x, int64_t columns, int64_t begin, int64_t end);
// The numbers of a turned form, as rows: rows [begin, end) of y [rows, columns].
void widen_turned(Bfloat16* y, const uint8_t* codes, const float* scales, int64_t rows, int64_t columns,
                  int64_t begin, int64_t end);
// The numbers of these rows.
void widen_rows(Bfloat16* y, const uint8_t* codes, const float* scales, int64_t rows, int64_t columns,
                int64_t begin, int64_t end);

}  // namespace trifold::cpu
