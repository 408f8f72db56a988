// ProductTuning: which of a library's ways to compute a matrix product a device takes. Left alone, it takes
// the one that the library estimates to be the fastest. The ways differ in the order of their sums, so what
// was chosen decides bits: choices are kept, and shared with other ranks and later runs (train/tune_products.h).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trifold {

// One product and the way it is computed, as texts that mean something to the device alone. `product` names
// all that decides which ways there are: types, shape, transposes, what is done beside it, alignments.
struct ProductChoice {
  std::string product;
  std::string algorithm;

  auto operator<=>(const ProductChoice&) const = default;
};

// Of one device. Calls may come from any thread: ranks that are threads share a device.
class ProductTuning {
 public:
  virtual ~ProductTuning() = default;

  // The kind of device and the version of the library that choices are good for.
  virtual std::string made_for() const = 0;
  // From now on, or no longer: a product that is met for the first time, and of which nothing is kept, is
  // computed in each of the ways that the library proposes, and the fastest is kept. What it is added to is
  // then worth nothing.
  virtual void measure(bool on) = 0;
  // What is kept, ascending by product.
  virtual std::vector<ProductChoice> choices() const = 0;
  // Keeps these and nothing else. Throws BadInput, and keeps what it kept, where an algorithm is none.
  virtual void use(std::span<const ProductChoice> choices) = 0;
};

}  // namespace trifold
