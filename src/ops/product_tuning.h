// ProductTuning: the choice among a library's algorithms for the matrix products of a device. By default it
// is the library's own estimate of the fastest. Algorithms differ in the order of their sums, so the choice
// affects bits: choices are kept, and shared with other ranks and later runs (train/tune_products.h).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trifold {

// One product and its algorithm, as texts that are meaningful only to the device. `product` describes
// everything on which the set of algorithms depends: types, shape, transposes, fused operations, whether it
// adds, alignments.
struct ProductChoice {
  std::string product;
  std::string algorithm;

  auto operator<=>(const ProductChoice&) const = default;
};

// For one device. Calls may come from any thread, because ranks that are threads share a device.
class ProductTuning {
 public:
  virtual ~ProductTuning() = default;

  // The kind of device and the version of the library for which choices are valid.
  virtual std::string made_for() const = 0;
  // Switches measuring on or off. While it is on, a product that occurs for the first time, and for which no
  // choice is kept, is computed with each proposed algorithm, and the fastest is kept. Results that are
  // accumulated meanwhile are invalid.
  virtual void measure(bool on) = 0;
  // The kept choices, ascending by product.
  virtual std::vector<ProductChoice> choices() const = 0;
  // Keeps these choices and no others. If one is not a valid algorithm, throws BadInput and changes nothing.
  virtual void use(std::span<const ProductChoice> choices) = 0;
};

}  // namespace trifold
