#include "ops/cuda/lt_product.h"

#include <cublasLt.h>

#include <array>
#include <bit>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "core/cuda/library.h"
#include "ops/cuda/workspace.h"

namespace trifold::cuda {

namespace {

// The functions of cuBLASLt that are used.
struct Lt {
  Library library{fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "cuBLASLt"};
  decltype(cublasLtCreate)* create;
  decltype(cublasLtGetStatusString)* text;
  decltype(cublasLtMatmulDescCreate)* desc_create;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set;
  decltype(cublasLtMatrixLayoutCreate)* layout_create;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic;
  decltype(cublasLtMatmul)* matmul;

  Lt() {
    library.find("cublasLtCreate", &create);
    library.find("cublasLtGetStatusString", &text);
    library.find("cublasLtMatmulDescCreate", &desc_create);
    library.find("cublasLtMatmulDescDestroy", &desc_destroy);
    library.find("cublasLtMatmulDescSetAttribute", &desc_set);
    library.find("cublasLtMatrixLayoutCreate", &layout_create);
    library.find("cublasLtMatrixLayoutDestroy", &layout_destroy);
    library.find("cublasLtMatmulPreferenceCreate", &preference_create);
    library.find("cublasLtMatmulPreferenceDestroy", &preference_destroy);
    library.find("cublasLtMatmulPreferenceSetAttribute", &preference_set);
    library.find("cublasLtMatmulAlgoGetHeuristic", &heuristic);
    library.find("cublasLtMatmul", &matmul);
  }

  void check_status(cublasStatus_t status, const char* what) const {
    check(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt failed while {}: {}", what, text(status));
  }
};

const Lt& lt() {
  static const Lt kLt;
  return kLt;
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return CUDA_R_64F;
    case DType::F32:
      return CUDA_R_32F;
    case DType::BF16:
      return CUDA_R_16BF;
    case DType::F16:
      return CUDA_R_16F;
    default:
      fail("gemm: a floating-point type is needed, not {}", name_of(dtype));
  }
}

cudaDataType_t type_of(const NarrowFactor& factor, DType otherwise) {
  if (factor.scale == nullptr) return type_of(otherwise);
  return factor.format == cpu::Fp8::E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

// The power of two that an address is a multiple of, at most the 128 bytes that arenas align to: beyond them
// it is a matter of chance, which should not choose algorithms.
uint32_t alignment_of(const void* pointer) {
  const auto bits = std::bit_cast<uintptr_t>(pointer) | 128U;
  return static_cast<uint32_t>(bits & -bits);
}

const void* c_of(const Product& product) { return product.c != nullptr ? product.c : product.d; }

class Layout {
 public:
  Layout(cudaDataType_t type, int64_t rows, int64_t columns) {
    lt().check_status(
        lt().layout_create(&layout_, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
        "describing a matrix");
  }
  ~Layout() { lt().layout_destroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::None:
      break;
    case Epilogue::Bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::ReluBias:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Epilogue::GeluAuxBias:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::DGelu:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::BiasGradient:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

class Description {
 public:
  explicit Description(const Product& p) {
    const bool wide = p.factors == DType::F64;
    lt().check_status(lt().desc_create(&desc_, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                       wide ? CUDA_R_64F : CUDA_R_32F),
                      "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p.epilogue));
    if (p.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
          type_of(p.epilogue == Epilogue::BiasGradient ? p.result : p.factors));
    }
    if (p.is_narrow()) {
      // Sums of gradients are kept exact; those of activations may be rounded on the way, as is usual.
      const bool forward = p.narrow_a.format == p.narrow_b.format;
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(forward ? 1 : 0));
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.narrow_a.scale);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.narrow_b.scale);
    }
    if (p.aux != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m);
    }
  }
  ~Description() { lt().desc_destroy(desc_); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  cublasLtMatmulDesc_t get() const { return desc_; }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    lt().check_status(lt().desc_set(desc_, attribute, &value, sizeof value), "describing a product");
  }
  cublasLtMatmulDesc_t desc_ = nullptr;
};

// A product in cuBLASLt's own terms.
struct Described {
  explicit Described(const Product& p)
      : how(p),
        a(type_of(p.narrow_a, p.factors), p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k),
        b(type_of(p.narrow_b, p.factors), p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n),
        d(type_of(p.result), p.m, p.n) {}
  Description how;
  Layout a, b, d;
};

class Preference {
 public:
  explicit Preference(const Product& p) {
    lt().check_status(lt().preference_create(&preference_), "choosing an algorithm");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kLtWorkspace});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c_of(p)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d));
  }
  ~Preference() { lt().preference_destroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
    lt().check_status(lt().preference_set(preference_, attribute, &value, sizeof value),
                      "choosing an algorithm");
  }
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// The handle of a device and the algorithms chosen there so far.
class Engine {
 public:
  explicit Engine(CudaDevice& device) : device_(device) {
    device.use();
    lt().check_status(lt().create(&handle_), "starting");
  }

  void run(const Product& p, CudaQueue& queue) {
    const Described described(p);
    const std::optional<cublasLtMatmulAlgo_t> algorithm = choose(p, described);
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

  // Best first; none: no algorithm does it.
  std::vector<cublasLtMatmulHeuristicResult_t> propose(const Product& p, const Described& described,
                                                       int most) {
    const Preference preference(p);
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int found = 0;
    const cublasStatus_t status =
        lt().heuristic(handle_, described.how.get(), described.a.get(), described.b.get(), described.d.get(),
                       described.d.get(), preference.get(), most, results.data(), &found);
    // What it cannot do at all it may call an invalid value.
    if (status != CUBLAS_STATUS_NOT_SUPPORTED && status != CUBLAS_STATUS_INVALID_VALUE)
      lt().check_status(status, "choosing an algorithm");
    results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(found) : 0);
    return results;
  }

  bool takes(const Product& p) {
    device_.use();
    return choose(p, Described(p)).has_value();
  }

 private:
  struct Key {
    DType factors, result;
    int64_t m, n, k;
    bool transpose_a, transpose_b;
    Epilogue epilogue;
    cudaDataType_t type_a, type_b;
    bool other_c;
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
          alignments{alignment_of(p.a), alignment_of(p.b),    alignment_of(c_of(p)),
                     alignment_of(p.d), alignment_of(p.bias), alignment_of(p.aux)} {}
    auto operator<=>(const Key&) const = default;
  };

  // None: no algorithm does it.
  std::optional<cublasLtMatmulAlgo_t> choose(const Product& p, const Described& described) {
    const Key key(p);
    const std::lock_guard lock(mutex_);
    if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
    std::optional<cublasLtMatmulAlgo_t> algorithm;
    if (const auto proposed = propose(p, described, 1); !proposed.empty()) algorithm = proposed.front().algo;
    return chosen_.emplace(key, algorithm).first->second;
  }

  CudaDevice& device_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> chosen_;
};

// One for each device, until the process ends.
Engine& engine_of(CudaDevice& device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, Engine>();
  const std::lock_guard lock(mutex);
  return all.try_emplace(device.index(), device).first->second;
}

}  // namespace

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
  // Of a bias cuBLASLt asks no alignment, but its epilogues load whole vectors of it.
  constexpr uint32_t kVector = 16;
  if (alignment_of(product.bias) < kVector || alignment_of(product.aux) < kVector) return false;
  return engine_of(static_cast<CudaQueue&>(*stream.queue()).device()).takes(product);
}

void* bias_gradient_memory(Stream& stream, int64_t columns) {
  if (stream.mode() != Stream::Mode::Inline || columns > kMostBiasColumns) return nullptr;
  return static_cast<std::byte*>(stream.queue()->workspace(kProductWorkspace)) + kLtWorkspace;
}

}  // namespace trifold::cuda
