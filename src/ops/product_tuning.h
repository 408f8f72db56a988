// ProductTuning: the algorithm that a device's library uses for each matrix product. By default it is the one that the
// library estimates to be fastest. Algorithms differ in the order of their sums, so the choice affects bits: choices
// are stored, and reused by other ranks and later runs (train/tune_products.h).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trifold {

// One product and its algorithm, as texts that only the device interprets. `product` contains everything on which the
// set of algorithms depends: types, shape, transposes, fused operations, whether it accumulates, alignments.
struct ProductChoice {
  std::string product;
  std::string algorithm;

  auto operator<=>(const ProductChoice&) const = default;
};

// The choices of one device. Thread-safe, because ranks that are threads share a device.
class ProductTuning {
 public:
  virtual ~ProductTuning() = default;

  // The kind of device and the version of the library for which the choices are valid.
  virtual std::string made_for() const = 0;
  // Switches measuring on or off. While it is on, a product without a stored choice is computed with each proposed
  // algorithm when it first occurs, and the fastest is stored. Results that accumulate are invalid during that time.
  virtual void measure(bool on) = 0;
  // The stored choices, ascending by product.
  virtual std::vector<ProductChoice> choices() const = 0;
  // Replaces the stored choices. If one is not a valid algorithm, throws BadInput and changes nothing.
  virtual void use(std::span<const ProductChoice> choices) = 0;
};

}  // namespace trifold
