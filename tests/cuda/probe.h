// The measurements of cuda_probe, their order and time limit, and the report. The device is behind ProbeDevice, so that
// all of this can be tested without one.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trifold::probe {

// A GPT-2, with as many positions in a micro-batch as tests/gpu.sh trains it with.
struct Model {
  std::string name;
  int64_t width, heads, batch;
  int64_t rows() const { return batch * kPositions; }
  static constexpr int64_t kPositions = 1024;
  static constexpr int64_t kVocabulary = 50304;  // padded
};

// The epilogue of a product: adds a bias; keeps that sum and also returns its GELU; multiplies by GELU's slope; or gives
// an f32 result, written or added.
enum class Variant : uint8_t { Plain, Bias, GeluAux, DGelu, F32, F32Added };
std::string name_of(Variant variant);

// One product of a layer, in cuBLASLt's terms (ops/cuda/lt_product.h): d[m, n] = op(a)[m, k] op(b)[k, n] by
// columns.
struct ProductCase {
  std::string model, layer;
  Variant variant;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  bool is_f32() const { return variant >= Variant::F32; }
  double flops() const {
    return 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

// The most valuable model first.
const std::vector<Model>& models();
// The products of a block's four linear layers: forward, gradients of inputs, gradients of weights.
std::vector<ProductCase> products_of(const Model& model);
// Rows of the output's logits that are in memory at once.
const std::vector<int64_t>& loss_chunks();

// Each returns the seconds of one call; all throw if the device cannot do it.
class ProbeDevice {
 public:
  virtual ~ProbeDevice() = default;
  virtual std::string name() = 0;
  virtual double copy(int64_t bytes) = 0;
  // Seconds for each proposed algorithm, best first by its own estimate; empty: there is none.
  virtual std::vector<double> product(const ProductCase& each, int most_algorithms) = 0;
  // The same result by a plain product and operations after it.
  virtual double unfused(const ProductCase& each) = 0;
  // `backward`: the gradients. They have the same bits each time if `deterministic`.
  virtual double attention(const Model& model, bool backward, bool deterministic) = 0;
  // The output layer, its loss and both gradients for all rows of a micro-batch, `rows` at a time.
  virtual double loss(const Model& model, int64_t rows) = 0;
};

struct Probe {
  double seconds;                                   // time limit, after which measurements are left out
  std::function<double()> clock;                    // seconds since the probe began
  std::function<void(const nlohmann::json&)> save;  // saves the report so far, after each model
};

// The report:
//   device, seconds, left_out    (how many measurements the time was too short for)
//   copies     [{bytes, seconds, bytes_per_second}]
//   products   [{model, layer, variant, m, n, k, seconds: [of each algorithm], best, flops_per_second, unfused}]
//   attention  [{model, forward, backward, backward_deterministic}]
//   loss       [{model, rows, seconds}]
//   failures   [{what, why}]     measurements that the device rejected; the others continue
nlohmann::json run(ProbeDevice& device, const Probe& probe);

// A few lines for people: for each model the cost of the first algorithm relative to the best of eight, of fusing, of
// the choice of attention, and the best chunk.
std::vector<std::string> summary(const nlohmann::json& report);

}  // namespace trifold::probe
