#include "ops/cuda/gemm.h"

#include <cublasLt.h>

#include <bit>
#include <map>
#include <mutex>
#include <tuple>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "core/cuda/library.h"
#include "ops/launch_support.h"

namespace trifold::cuda {

namespace {

constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLAS itself takes on Hopper

// The functions of cuBLASLt that are used.
struct Lt {
  Library library{"libcublasLt.so.13", "cuBLASLt"};
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

// One product as cuBLASLt is asked for it: d[m, n] = alpha op(a)[m, k] op(b)[k, n] + beta d by columns.
struct Product {
  DType factors, result;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  const void* a;
  const void* b;
  void* d;
  double alpha, beta;
  const void* bias = nullptr;  // [m]
  bool relu = false;

  cublasLtEpilogue_t epilogue() const {
    if (bias == nullptr) return CUBLASLT_EPILOGUE_DEFAULT;
    return relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  }
};

// The power of two, at most 256, that an address is a multiple of.
uint32_t alignment_of(const void* pointer) {
  const auto bits = std::bit_cast<uintptr_t>(pointer) | 256U;
  return static_cast<uint32_t>(bits & -bits);
}

class Layout {
 public:
  Layout(DType dtype, int64_t rows, int64_t columns) {
    lt().check_status(lt().layout_create(&layout_, type_of(dtype), static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), rows),
                      "describing a matrix");
  }
  ~Layout() { lt().layout_destroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Description {
 public:
  explicit Description(const Product& p) {
    const bool wide = p.factors == DType::F64;
    lt().check_status(lt().desc_create(&desc_, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                       wide ? CUDA_R_64F : CUDA_R_32F),
                      "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue());
    if (p.bias == nullptr) return;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.factors));
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

class Preference {
 public:
  explicit Preference(const Product& p) {
    lt().check_status(lt().preference_create(&preference_), "choosing an algorithm");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspace});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.d));
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
    const Description description(p);
    const Layout a(p.factors, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k);
    const Layout b(p.factors, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n);
    const Layout d(p.result, p.m, p.n);
    const cublasLtMatmulAlgo_t algorithm = choose(p, description, a, b, d);
    const auto alpha = static_cast<float>(p.alpha);
    const auto beta = static_cast<float>(p.beta);
    const bool wide = p.factors == DType::F64;
    const auto number = [wide](const double& f64, const float& f32) -> const void* {
      if (wide) return &f64;
      return &f32;
    };
    lt().check_status(
        lt().matmul(handle_, description.get(), number(p.alpha, alpha), p.a, a.get(), p.b, b.get(),
                    number(p.beta, beta), p.d, d.get(), p.d, d.get(), &algorithm, queue.workspace(kWorkspace),
                    kWorkspace, static_cast<cudaStream_t>(queue.native())),
        "multiplying");
  }

 private:
  using Key =
      std::tuple<DType, DType, int64_t, int64_t, int64_t, bool, bool, int, uint32_t, uint32_t, uint32_t>;

  cublasLtMatmulAlgo_t choose(const Product& p, const Description& description, const Layout& a,
                              const Layout& b, const Layout& d) {
    const Key key{p.factors,
                  p.result,
                  p.m,
                  p.n,
                  p.k,
                  p.transpose_a,
                  p.transpose_b,
                  static_cast<int>(p.epilogue()),
                  alignment_of(p.a),
                  alignment_of(p.b),
                  alignment_of(p.d)};
    const std::lock_guard lock(mutex_);
    if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
    const Preference preference(p);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = lt().heuristic(handle_, description.get(), a.get(), b.get(), d.get(),
                                                 d.get(), preference.get(), 1, &result, &found);
    check(status == CUBLAS_STATUS_SUCCESS && found > 0,
          "cuBLASLt has no algorithm for a product [{}, {}] x [{}, {}] of {} into {} on {}: {}", p.n, p.k,
          p.k, p.m, name_of(p.factors), name_of(p.result), device_.name(), lt().text(status));
    return chosen_.emplace(key, result.algo).first->second;
  }

  CudaDevice& device_;
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;
  std::map<Key, cublasLtMatmulAlgo_t> chosen_;
};

// One for each device, until the process ends.
Engine& engine_of(CudaDevice& device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, Engine>();
  const std::lock_guard lock(mutex);
  return all.try_emplace(device.index(), device).first->second;
}

void enqueue_product(Stream& stream, const Product& product) {
  if (product.m == 0 || product.n == 0) return;
  stream.enqueue([queue = stream.queue(), product] {
    auto& on = static_cast<CudaQueue&>(*queue);
    engine_of(on.device()).run(product, on);
  });
}

}  // namespace

void gemm(Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
          double beta) {
  cpu::expect_matrix("gemm", "a", a);
  cpu::expect_matrix("gemm", "c", c);
  const int64_t m = c.row_count();
  const int64_t n = c.last_dim();
  const int64_t k = transpose_a ? a.row_count() : a.last_dim();
  cpu::expect("gemm", "a", a, a.dtype, m * k);
  cpu::expect("gemm", "b", b, a.dtype, k * n);
  check(c.dtype == a.dtype || c.dtype == accumulate_type(a.dtype),
        "gemm: {} factors cannot become a {} product", name_of(a.dtype), name_of(c.dtype));
  check(k > 0, "gemm: a product over no elements");
  // By columns the second factor comes first, and what was transposed still is.
  enqueue_product(stream, {.factors = a.dtype,
                           .result = c.dtype,
                           .m = n,
                           .n = m,
                           .k = k,
                           .transpose_a = transpose_b,
                           .transpose_b = transpose_a,
                           .a = b.data,
                           .b = a.data,
                           .d = c.data,
                           .alpha = alpha,
                           .beta = beta});
}

void linear(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu) {
  cpu::expect_matrix("linear", "x", x);
  cpu::expect_matrix("linear", "w", w);
  const int64_t rows = x.row_count();
  const int64_t depth = x.last_dim();
  const int64_t columns = w.row_count();
  cpu::expect("linear", "w", w, x.dtype, columns * depth);
  cpu::expect("linear", "y", y, x.dtype, rows * columns);
  cpu::expect("linear", "bias", bias, x.dtype, columns);
  enqueue_product(stream, {.factors = x.dtype,
                           .result = x.dtype,
                           .m = columns,
                           .n = rows,
                           .k = depth,
                           .transpose_a = true,
                           .transpose_b = false,
                           .a = w.data,
                           .b = x.data,
                           .d = y.data,
                           .alpha = 1,
                           .beta = 0,
                           .bias = bias.data,
                           .relu = relu});
}

}  // namespace trifold::cuda
