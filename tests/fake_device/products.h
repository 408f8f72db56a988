// The choice of algorithms for products on a fake device: each product has eight names of algorithms, all of
// which compute the same; the product's name determines which counts as the fastest.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "core/tensor.h"
#include "ops/product_tuning.h"

namespace trifold::test {

class Products final : public ProductTuning {
 public:
  // The instance of this process.
  static Products& instance();

  std::string made_for() const override;
  void measure(bool on) override { measures_ = on; }
  std::vector<ProductChoice> choices() const override;
  void use(std::span<const ProductChoice> choices) override;

  // An operation was called with these tensors; only products count.
  void meet(std::string_view operation, std::span<const Tensor> tensors);
  // Products that were measured so far.
  int64_t measured() const { return measured_; }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> kept_;
  std::atomic<bool> measures_ = false;
  std::atomic<int64_t> measured_ = 0;
};

}  // namespace trifold::test
