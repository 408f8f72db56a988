// LtEngine chooses an algorithm of cuBLASLt for each product of a device, and runs products. Internal to
// lt_product.cpp; tests substitute cuBLASLt's functions.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "ops/cuda/lt_description.h"

namespace trifold::cuda::blas {

// Thread-safe.
//
// cuBLASLt may reject an algorithm that it proposed when it is called to multiply. A rejected call enqueues nothing, so
// it is harmless within a graph's capture and for a result that accumulates; the next proposal is tried at once, and
// the first algorithm that runs is stored. Proposals and rejections depend only on the product, the kind of device and
// the library's version, so all ranks and runs arrive at the same algorithm.
//
// Two rejections are errors, also for try_run: of a choice that was set by `use` or measured (BadInput), because
// another algorithm would have other bits; and of all proposals as invalid values, because then the description is
// wrong.
class LtEngine final : public ProductTuning {
 public:
  // For the current device. `device` is its name in messages, `made_for` as in ProductTuning. `lt` must outlive
  // this object.
  LtEngine(const Lt& lt, std::string device, std::string made_for);

  // Enqueues the product and returns true; returns false if no algorithm runs it.
  bool try_run(const Product& product, DeviceQueue& queue);
  // Enqueues the product; throws, with the reason, if no algorithm runs it.
  void run(const Product& product, DeviceQueue& queue);
  // Enqueues the product with this algorithm; throws if it is rejected.
  void run(const Product& product, const cublasLtMatmulAlgo_t& algorithm, DeviceQueue& queue);
  // At most `most` proposals, the best by cuBLASLt's estimate first; empty if it has none.
  std::vector<cublasLtMatmulAlgo_t> propose(const Product& product, int most);

  std::string made_for() const override { return made_for_; }
  void measure(bool on) override;
  std::vector<ProductChoice> choices() const override;
  void use(std::span<const ProductChoice> choices) override;

 private:
  // Everything on which the choice depends.
  struct Key {
    DType factors, result;
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    Epilogue epilogue;
    cudaDataType_t type_a, type_b;
    ScaleForm scales_a, scales_b;
    bool other_c, tf32;
    bool adds;                           // beta is not 0; proposals ignore it, multiplication may reject it
    std::array<uint32_t, 6> alignments;  // alignments of a, b, c, d, bias, aux

    explicit Key(const Product& p);
    auto operator<=>(const Key&) const = default;
    // ProductChoice::product.
    std::string text() const;
  };
  struct Choice {
    std::optional<cublasLtMatmulAlgo_t> algorithm;
    std::string why_none;
  };

  Choice enqueue(const Product& p, DeviceQueue& queue);
  Choice enqueue_first(const Product& p, const Described& described, const Key& key, DeviceQueue& queue);
  cublasStatus_t multiply(const Product& p, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
                          DeviceQueue& queue) const;
  bool runs(const Product& p, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
            DeviceQueue& queue, cublasStatus_t& status) const;
  void must_run(const Product& p, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
                DeviceQueue& queue) const;
  std::vector<cublasLtMatmulAlgo_t> propose(const Product& p, const Described& described, int most) const;
  std::optional<cublasLtMatmulAlgo_t> kept_or_measured(const Product& p, const Described& described,
                                                       const Key& key, DeviceQueue& queue);
  std::optional<cublasLtMatmulAlgo_t> fastest(const Product& p, const Described& described,
                                              DeviceQueue& queue) const;
  double seconds_of(const Product& p, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
                    DeviceQueue& queue) const;

  const Lt& lt_;
  const std::string device_, made_for_;
  cublasLtHandle_t handle_ = nullptr;
  mutable std::mutex mutex_;  // guards the members below
  bool measures_ = false;
  int64_t uses_ = 0;  // calls of `use`: a choice in progress during one is not stored
  std::map<Key, Choice> chosen_;
  std::map<std::string, cublasLtMatmulAlgo_t> kept_;  // choices set or measured, by Key::text
};

}  // namespace trifold::cuda::blas
