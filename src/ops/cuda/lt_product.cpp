#include "ops/cuda/lt_product.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "ops/cuda/lt_description.h"

namespace trifold::cuda {

namespace {

using namespace blas;

constexpr int kMostWays = 8;  // the most algorithms measured for one product

std::string text_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F:
      return "f64";
    case CUDA_R_32F:
      return "f32";
    case CUDA_R_16BF:
      return "bf16";
    case CUDA_R_16F:
      return "f16";
    case CUDA_R_8F_E4M3:
      return "e4m3";
    case CUDA_R_8F_E5M2:
      return "e5m2";
    default:
      return std::to_string(static_cast<int>(type));
  }
}

// 16 hexadecimal digits for each word.
std::string text_of(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

cublasLtMatmulAlgo_t algorithm_of(const ProductChoice& choice) {
  constexpr size_t kDigits = 16;
  cublasLtMatmulAlgo_t algorithm{};
  const std::string& text = choice.algorithm;
  bool sound = text.size() == kDigits * std::size(algorithm.data);
  for (size_t i = 0; sound && i < std::size(algorithm.data); ++i) {
    const char* begin = text.data() + i * kDigits;
    const auto read = std::from_chars(begin, begin + kDigits, algorithm.data[i], 16);
    sound = read.ec == std::errc() && read.ptr == begin + kDigits;
  }
  if (!sound)
    bad_input("the algorithm of the product \"{}\" is \"{}\": 128 hexadecimal digits are needed",
              choice.product, text);
  return algorithm;
}

// The handle of a device and the algorithms chosen there so far.
class Engine final : public ProductTuning {
 public:
  explicit Engine(CudaDevice& device) : device_(device) {
    device.use();
    lt().check_status(lt().create(&handle_), "starting");
  }

  void run(const Product& p, CudaQueue& queue) {
    const Described described(p);
    const std::optional<cublasLtMatmulAlgo_t> algorithm = choose(p, described, queue);
    check(algorithm.has_value(),
          "cuBLASLt has no algorithm for a product [{}, {}] x [{}, {}] of {}{} into {} on {}", p.n, p.k, p.k,
          p.m, name_of(p.factors), p.is_narrow() ? " rounded to 8 bits" : "", name_of(p.result),
          device_.name());
    run(p, described, *algorithm, queue);
  }

  void run(const Product& p, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
           CudaQueue& queue) {
    const auto alpha = static_cast<float>(p.alpha);
    const auto beta = static_cast<float>(p.beta);
    const bool wide = p.factors == DType::F64;
    const auto number = [wide](const double& f64, const float& f32) -> const void* {
      if (wide) return &f64;
      return &f32;
    };
    lt().check_status(
        lt().matmul(handle_, described.how.get(), number(p.alpha, alpha), p.a, described.a.get(), p.b,
                    described.b.get(), number(p.beta, beta), c_of(p), described.d.get(), p.d,
                    described.d.get(), &algorithm, queue.workspace(kProductWorkspace), kLtWorkspace,
                    static_cast<cudaStream_t>(queue.native())),
        "multiplying");
  }

  // Best first; empty if no algorithm supports the product.
  std::vector<cublasLtMatmulHeuristicResult_t> propose(const Product& p, const Described& described,
                                                       int most) {
    const Preference preference(p);
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int found = 0;
    const cublasStatus_t status =
        lt().heuristic(handle_, described.how.get(), described.a.get(), described.b.get(), described.d.get(),
                       described.d.get(), preference.get(), most, results.data(), &found);
    // Products that it does not support at all may be reported as an invalid value.
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE)
      lt().check_status(status, "choosing an algorithm");
    results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
    return results;
  }

  bool takes(const Product& p, CudaQueue& queue) {
    device_.use();
    return choose(p, Described(p), queue).has_value();
  }

  std::string made_for() const override {
    const Properties& found = device_.properties();
    return fmt::format("{} ({}.{}), cuBLASLt {}", found.name, found.major, found.minor, lt().version());
  }
  void measure(bool on) override {
    const std::lock_guard lock(mutex_);
    measures_ = on;
  }
  std::vector<ProductChoice> choices() const override {
    const std::lock_guard lock(mutex_);
    std::vector<ProductChoice> all;
    for (const auto& [product, algorithm] : kept_) all.push_back({product, text_of(algorithm)});
    return all;
  }
  void use(std::span<const ProductChoice> choices) override {
    std::map<std::string, cublasLtMatmulAlgo_t> named;
    for (const ProductChoice& choice : choices) named.insert_or_assign(choice.product, algorithm_of(choice));
    const std::lock_guard lock(mutex_);
    kept_ = std::move(named);
    chosen_.clear();
  }

 private:
  struct Key {
    DType factors, result;
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    Epilogue epilogue;
    cudaDataType_t type_a, type_b;
    bool other_c, tf32;
    std::array<uint32_t, 6> alignments;  // of a, b, c, d, bias, aux

    explicit Key(const Product& p)
        : factors(p.factors),
          result(p.result),
          m(p.m),
          n(p.n),
          k(p.k),
          transpose_a(p.transpose_a),
          transpose_b(p.transpose_b),
          epilogue(p.epilogue),
          type_a(type_of(p.narrow_a, p.factors)),
          type_b(type_of(p.narrow_b, p.factors)),
          other_c(p.c != nullptr),
          tf32(p.tf32),
          alignments{alignment_of(p.a), alignment_of(p.b),    alignment_of(c_of(p)),
                     alignment_of(p.d), alignment_of(p.bias), alignment_of(p.aux)} {}
    auto operator<=>(const Key&) const = default;

    // The text in a ProductChoice.
    std::string text() const {
      constexpr const char* kEpilogues[] = {"plain",         "bias",         "bias and ReLU",
                                            "bias and GELU", "GELU's slope", "bias gradient"};
      return fmt::format("{} x {} of {}{} into {}, m {} n {} k {}, {}{}, {}{}, aligned to {}",
                         text_of(type_a), text_of(type_b), name_of(factors), tf32 ? " in TF32" : "",
                         name_of(result), m, n, k, transpose_a ? "T" : "N", transpose_b ? "T" : "N",
                         kEpilogues[static_cast<size_t>(epilogue)], other_c ? ", c apart" : "",
                         fmt::join(alignments, " "));
    }
  };

  // Empty if no algorithm supports the product.
  std::optional<cublasLtMatmulAlgo_t> choose(const Product& p, const Described& described, CudaQueue& queue) {
    const Key key(p);
    const std::lock_guard lock(mutex_);
    if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
    std::optional<cublasLtMatmulAlgo_t> algorithm;
    if (const auto kept = kept_.find(key.text()); kept != kept_.end()) {
      algorithm = kept->second;
    } else if (measures_) {
      algorithm = fastest(p, described, queue);
      if (algorithm) kept_.emplace(key.text(), *algorithm);
    } else if (const auto proposed = propose(p, described, 1); !proposed.empty()) {
      algorithm = proposed.front().algo;
    }
    return chosen_.emplace(key, algorithm).first->second;
  }

  // The fastest of the proposed algorithms; a later one only if it is clearly faster.
  std::optional<cublasLtMatmulAlgo_t> fastest(const Product& p, const Described& described,
                                              CudaQueue& queue) {
    constexpr double kClearly = 0.99;
    std::optional<cublasLtMatmulAlgo_t> best;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& proposed : propose(p, described, kMostWays)) {
      if (proposed.state != CUBLAS_STATUS_SUCCESS) continue;
      const double seconds = seconds_of(p, described, proposed.algo, queue);
      if (seconds >= kClearly * least) continue;
      least = seconds;
      best = proposed.algo;
    }
    return best;
  }

  // The minimum over several rounds.
  double seconds_of(const Product& p, const Described& described, const cublasLtMatmulAlgo_t& algorithm,
                    CudaQueue& queue) {
    constexpr int kRounds = 5;
    constexpr int kTimes = 4;  // runs per round: enough to hide launches
    run(p, described, algorithm, queue);
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      queue.synchronize();
      const Clock::time_point start = Clock::now();
      for (int time = 0; time < kTimes; ++time) run(p, described, algorithm, queue);
      queue.synchronize();
      least = std::min(least, seconds_since(start));
    }
    return least;
  }

  CudaDevice& device_;
  cublasLtHandle_t handle_ = nullptr;
  mutable std::mutex mutex_;
  bool measures_ = false;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> chosen_;
  std::map<std::string, cublasLtMatmulAlgo_t> kept_;  // set or measured, by Key::text
};

// One per device, until the process ends.
Engine& engine_of(CudaDevice& device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, Engine>();
  const std::lock_guard lock(mutex);
  return all.try_emplace(device.index(), device).first->second;
}

}  // namespace

ProductTuning& product_tuning(CudaDevice& device) { return engine_of(device); }

void run_product(CudaQueue& queue, const Product& product) { engine_of(queue.device()).run(product, queue); }

std::vector<ProductAlgorithm> proposed_algorithms(CudaQueue& queue, const Product& product, int most) {
  queue.device().use();
  std::vector<ProductAlgorithm> algorithms;
  for (const auto& result : engine_of(queue.device()).propose(product, Described(product), most))
    if (result.state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(std::bit_cast<ProductAlgorithm>(result.algo));
  return algorithms;
}

void run_product(CudaQueue& queue, const Product& product, const ProductAlgorithm& algorithm) {
  engine_of(queue.device())
      .run(product, Described(product), std::bit_cast<cublasLtMatmulAlgo_t>(algorithm), queue);
}

void enqueue_product(Stream& stream, const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  stream.enqueue(
      [queue = stream.queue(), product] { run_product(static_cast<CudaQueue&>(*queue), product); });
}

std::byte* factor_memory(CudaQueue& queue, size_t bytes) {
  return static_cast<std::byte*>(queue.workspace(kProductWorkspace + bytes)) + kProductWorkspace;
}

bool is_taken(Stream& stream, const Product& product) {
  if (stream.mode() == Stream::Mode::Dry || product.m == 0 || product.n == 0) return true;
  if (stream.mode() == Stream::Mode::Worker) return false;
  // cuBLASLt does not require an alignment of a bias, but its epilogues load whole vectors of it.
  constexpr uint32_t kVector = 16;
  if (alignment_of(product.bias) < kVector || alignment_of(product.aux) < kVector) return false;
  auto& queue = static_cast<CudaQueue&>(*stream.queue());
  return engine_of(queue.device()).takes(product, queue);
}

void* bias_gradient_memory(Stream& stream, int64_t columns) {
  if (stream.mode() != Stream::Mode::Inline || columns > kMostBiasColumns) return nullptr;
  return static_cast<std::byte*>(stream.queue()->workspace(kProductWorkspace)) + kLtWorkspace;
}

}  // namespace trifold::cuda
