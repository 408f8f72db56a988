// Times in seconds of the kernels of a training step, on one device. Formulas and constants: docs/plan.md.
#pragma once

#include "plan/forecast/hardware.h"

namespace trifold {

// A matrix product [rows, inner] x [inner, columns], or `batch` independent ones.
struct ProductShape {
  double rows, columns, inner;
  double batch = 1;
};

// The share of the reached rate that a product's shape allows: its tiles fill the multiprocessors in waves,
// and a short inner dimension leaves less to compute for each number loaded.
double shape_efficiency(const Hardware& hardware, const ProductShape& product);

// With 16-bit operands (or 32-bit ones, which cost twice), and with operands that are rounded to 8 bits first.
double product_seconds(const Hardware& hardware, const ProductShape& product, double element_bytes = 2);
double product_8bit_seconds(const Hardware& hardware, const ProductShape& product);

// One pass that reads and writes `bytes` in all.
double pass_seconds(const Hardware& hardware, double bytes);

// Fused attention over `batch` heads, forward: [rows, columns] scores each. A causal mask halves the work.
struct AttentionWork {
  double batch, rows, columns, width;
  bool causal;
};
double fused_attention_seconds(const Hardware& hardware, const AttentionWork& attention, double share);

}  // namespace trifold
