// Times in seconds of the kernels of a training step, on one device. Formulas and constants: docs/plan.md.
#pragma once

#include "plan/forecast/hardware.h"

namespace trifold {

// A matrix product [rows, inner] x [inner, columns], or `batch` independent ones.
struct ProductShape {
  double rows, columns, inner;
  double batch = 1;
};

// The factor in (0, 1] by which a product's shape lowers its rate: its tiles fill the multiprocessors in waves, and a
// short inner dimension means less computation per element loaded.
double shape_efficiency(const Hardware& hardware, const ProductShape& product);

// Seconds of a product of 16-bit operands (32-bit ones take twice as long), and of one whose operands are first rounded
// to 8 bits: each with one scale, or with scales of blocks, for which the passes move `rounded` bytes (Work::rounded).
double product_seconds(const Hardware& hardware, const ProductShape& product, double element_bytes = 2);
double product_8bit_seconds(const Hardware& hardware, const ProductShape& product);
double product_in_blocks_seconds(const Hardware& hardware, const ProductShape& product, double rounded);

// Seconds of an elementwise pass that reads and writes `bytes` in total.
double pass_seconds(const Hardware& hardware, double bytes);

// Forward of fused attention: `batch` heads with [rows, columns] scores each. A causal mask halves the work.
struct AttentionWork {
  double batch, rows, columns, width;
  double visible;  // the fraction of the scores that is computed
};
double fused_attention_seconds(const Hardware& hardware, const AttentionWork& attention, double share);

}  // namespace trifold
