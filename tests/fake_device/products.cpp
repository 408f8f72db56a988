#include "fake_device/products.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>

#include "core/error.h"

namespace trifold::test {

namespace {

constexpr std::string_view kWay = "way ";

bool is_product(std::string_view operation) {
  return operation == "gemm" || operation == "linear" || operation.starts_with("affine");
}

// As cuBLASLt's choice depends on it (ops/cuda/lt_description.h).
uintptr_t alignment_of(const void* address) {
  const auto bits = std::bit_cast<uintptr_t>(address) | 128U;
  return bits & -bits;
}

}  // namespace

Products& Products::instance() {
  static auto& products = *new Products();
  return products;
}

// Tests may give it another library.
std::string Products::made_for() const {
  const char* library = std::getenv("TRIFOLD_FAKE_DEVICE_LIBRARY");
  return fmt::format("fake device, library {}", library == nullptr ? "1" : library);
}

std::vector<ProductChoice> Products::choices() const {
  const std::lock_guard lock(mutex_);
  std::vector<ProductChoice> all;
  for (const auto& [product, algorithm] : kept_) all.push_back({product, algorithm});
  return all;
}

void Products::use(std::span<const ProductChoice> choices) {
  for (const ProductChoice& choice : choices)
    if (!choice.algorithm.starts_with(kWay))
      bad_input("the algorithm of the product \"{}\" is \"{}\", and not one of this device", choice.product,
                choice.algorithm);
  const std::lock_guard lock(mutex_);
  kept_.clear();
  for (const ProductChoice& choice : choices) kept_[choice.product] = choice.algorithm;
}

void Products::meet(std::string_view operation, std::span<const Tensor> tensors) {
  if (!measures_ || !is_product(operation)) return;
  std::string product(operation);
  for (const Tensor& tensor : tensors)
    product += fmt::format(" {} {} aligned to {}", name_of(tensor.dtype), to_string(tensor.shape),
                           alignment_of(tensor.data));
  const std::lock_guard lock(mutex_);
  if (kept_.contains(product)) return;
  kept_[product] = fmt::format("{}{}", kWay, std::hash<std::string>()(product) % 8);
  ++measured_;
}

}  // namespace trifold::test
