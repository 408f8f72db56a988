#include "plan/forecast/kernels.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace trifold {

namespace {

// The tile sizes of products, with the rate that each reaches relative to the largest.
struct Tile {
  double rows, columns, rate;
};
constexpr Tile kTiles[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.93},
                           {128, 64, 0.80}, {64, 128, 0.80}, {64, 64, 0.65}};

bool divides(double unit, double value) { return std::fmod(value, unit) == 0; }

// Rows of a tensor that do not start at multiples of 16 bytes cannot feed the tensor cores at full rate.
double alignment(const ProductShape& product) {
  double rate = 1;
  for (const double extent : {product.rows, product.columns, product.inner}) {
    if (!divides(8, extent)) return 1.0 / 8;
    if (!divides(64, extent)) rate = 0.84;
  }
  return rate;
}

double operations(const ProductShape& product) {
  return 2 * product.batch * product.rows * product.columns * product.inner;
}

double factors(const ProductShape& product) {
  return product.batch * product.inner * (product.rows + product.columns);
}

}  // namespace

double shape_efficiency(const Hardware& hardware, const ProductShape& product) {
  double best = 0;
  for (const Tile& tile : kTiles) {
    double tiles =
        product.batch * std::ceil(product.rows / tile.rows) * std::ceil(product.columns / tile.columns);
    double inner = product.inner;
    if (tiles < hardware.processors) {  // split along the inner dimension, so that no multiprocessor idles
      const double splits = std::max(1.0, std::floor(hardware.processors / tiles));
      tiles *= splits;
      inner /= splits;
    }
    const double waves = std::ceil(tiles / hardware.processors);
    const double whole_waves = tiles / hardware.processors;
    const double covered = (whole_waves + hardware.wave_loss * (waves - whole_waves)) * hardware.processors *
                           tile.rows * tile.columns;
    const double useful = product.batch * product.rows * product.columns * (product.inner / inner);
    best = std::max(best, tile.rate * useful / covered * inner / (inner + hardware.product_depth));
  }
  // A device with one processor has no waves of tiles.
  if (hardware.processors == 1) best = product.inner / (product.inner + hardware.product_depth);
  return best * alignment(product);
}

double product_seconds(const Hardware& hardware, const ProductShape& product, double element_bytes) {
  const double computing = operations(product) * (element_bytes / 2) /
                           (hardware.product_rate() * shape_efficiency(hardware, product));
  const double written = product.batch * product.rows * product.columns;
  const double moving = element_bytes * (factors(product) + written) / hardware.memory_rate();
  return std::max(computing, moving) + hardware.launch * 1e-6;
}

double product_8bit_seconds(const Hardware& hardware, const ProductShape& product) {
  return product_in_blocks_seconds(hardware, product, hardware.rounding_bytes * factors(product));
}

double product_in_blocks_seconds(const Hardware& hardware, const ProductShape& product, double rounded) {
  const double rate = hardware.tflops_8bit * 1e12 * hardware.product_share_8bit;
  return operations(product) / (rate * shape_efficiency(hardware, product)) +
         rounded / hardware.memory_rate() + hardware.launch * 1e-6;
}

double pass_seconds(const Hardware& hardware, double bytes) {
  return bytes / hardware.memory_rate() + hardware.kernel_floor * 1e-6;
}

double fused_attention_seconds(const Hardware& hardware, const AttentionWork& attention, double share) {
  const double work =
      4 * attention.batch * attention.rows * attention.columns * attention.width * attention.visible;
  const double reached = share * attention.columns / (attention.columns + hardware.attention_length) *
                         std::min(1.0, 0.5 + attention.width / 256);
  return work / (hardware.tflops * 1e12 * reached) + hardware.launch * 1e-6;
}

}  // namespace trifold
