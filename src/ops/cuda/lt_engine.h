// The algorithms of a device's products: which of them cuBLASLt proposes, which run, and which one is chosen for
// each product. Internal to lt_product.cpp; tests give it functions of their own in place of cuBLASLt's.
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

// Calls may come from any thread.
//
// cuBLASLt's proposals for a product are no promise: it may still reject one when it is to multiply. A rejected
// call enqueues nothing, so it is harmless within a graph's capture and for a result that is added to, and the
// next proposal is tried at once. The algorithm that runs is kept. Proposals and rejections depend only on the
// product, the kind of device and the library's version, so all ranks and runs arrive at the same algorithm.
//
// Two kinds of rejection are errors, also for try_run: that of a choice given by `use` or measured (BadInput),
// since another algorithm would have other bits; and that of all proposals as invalid values, since then the
// description is wrong.
class LtEngine final : public ProductTuning {
 public:
  // For the current device; `device` is its name for people, `made_for` as in ProductTuning. `lt` must outlive
  // this.
  LtEngine(const Lt& lt, std::string device, std::string made_for);

  // Enqueues the product, unless no algorithm runs it; returns whether it did.
  bool try_run(const Product& product, DeviceQueue& queue);
  // The same; throws, with the reason, if no algorithm runs it.
  void run(const Product& product, DeviceQueue& queue);
  // With this algorithm, which must run.
  void run(const Product& product, const cublasLtMatmulAlgo_t& algorithm, DeviceQueue& queue);
  // At most `most`, best first by cuBLASLt's own estimate; empty if it has none.
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
    bool other_c, tf32;
    bool adds;                           // beta is not 0: unknown to proposals, known when it multiplies
    std::array<uint32_t, 6> alignments;  // of a, b, c, d, bias, aux

    explicit Key(const Product& p);
    auto operator<=>(const Key&) const = default;
    // The text in a ProductChoice.
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
  int64_t uses_ = 0;  // calls of `use`: a choice that was begun before one is not kept
  std::map<Key, Choice> chosen_;
  std::map<std::string, cublasLtMatmulAlgo_t> kept_;  // set or measured, by Key::text
};

}  // namespace trifold::cuda::blas
