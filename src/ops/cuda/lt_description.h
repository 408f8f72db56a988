// The functions of cuBLASLt, and owners of the objects by which it describes a Product. Internal to lt_engine.h.
#pragma once

#include <cublasLt.h>

#include <bit>
#include <cstdint>

#include "core/error.h"
#include "ops/cuda/lt_product.h"
#include "ops/cuda/workspace.h"

namespace trifold::cuda::blas {

// The cuBLASLt functions in use. Tests substitute their own.
struct Lt {
  decltype(cublasLtCreate)* create = nullptr;
  decltype(cublasLtGetStatusString)* text = nullptr;
  decltype(cublasLtGetVersion)* version = nullptr;
  decltype(cublasLtMatmulDescCreate)* desc_create = nullptr;
  decltype(cublasLtMatmulDescDestroy)* desc_destroy = nullptr;
  decltype(cublasLtMatmulDescSetAttribute)* desc_set = nullptr;
  decltype(cublasLtMatrixLayoutCreate)* layout_create = nullptr;
  decltype(cublasLtMatrixLayoutDestroy)* layout_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceCreate)* preference_create = nullptr;
  decltype(cublasLtMatmulPreferenceDestroy)* preference_destroy = nullptr;
  decltype(cublasLtMatmulPreferenceSetAttribute)* preference_set = nullptr;
  decltype(cublasLtMatmulAlgoGetHeuristic)* heuristic = nullptr;
  decltype(cublasLtMatmul)* matmul = nullptr;

  void check_status(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS) fail("cuBLASLt failed while {}: {}", what, text(status));
  }
};

// The functions of the installed library, which is opened on first use.
const Lt& installed_lt();

inline cudaDataType_t type_of(DType dtype) {
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

inline cudaDataType_t type_of(const NarrowFactor& factor, DType otherwise) {
  if (factor.scale == nullptr) return type_of(otherwise);
  return factor.format == cpu::Fp8::E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

inline cublasLtMatmulMatrixScale_t mode_of(ScaleForm form) {
  switch (form) {
    case ScaleForm::One:
      break;
    case ScaleForm::Rows:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case ScaleForm::Squares:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

// The largest power of two that divides an address, at most the 128 bytes to which arenas align: beyond that,
// alignment is accidental, and should not affect the choice of algorithms.
inline uint32_t alignment_of(const void* pointer) {
  const auto bits = std::bit_cast<uintptr_t>(pointer) | 128U;
  return static_cast<uint32_t>(bits & -bits);
}

inline const void* c_of(const Product& product) { return product.c != nullptr ? product.c : product.d; }

class Layout {
 public:
  Layout(const Lt& lt, cudaDataType_t type, int64_t rows, int64_t columns) : lt_(lt) {
    lt.check_status(
        lt.layout_create(&layout_, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows),
        "describing a matrix");
  }
  ~Layout() { lt_.layout_destroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  const Lt& lt_;
  cublasLtMatrixLayout_t layout_ = nullptr;
};

inline cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
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
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

class Description {
 public:
  Description(const Lt& lt, const Product& p) : lt_(lt) {
    for (const NarrowFactor& factor : {p.narrow_a, p.narrow_b})
      check(alignment_of(factor.scale) >= kScaleAlignment,
            "the scale of a factor in 8 bits is {} bytes past a multiple of {}, which cuBLASLt needs",
            std::bit_cast<uintptr_t>(factor.scale) % kScaleAlignment, kScaleAlignment);
    const bool wide = p.factors == DType::F64;
    const cublasComputeType_t f32 = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    lt.check_status(lt.desc_create(&desc_, wide ? CUBLAS_COMPUTE_64F : f32, wide ? CUDA_R_64F : CUDA_R_32F),
                    "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p.epilogue));
    if (p.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.factors));
    }
    if (p.is_narrow()) {
      // Products of gradients are summed in f32; in forward, sums may be rounded in between, as is usual.
      // Products with scales of blocks are always summed in f32, block by block.
      const bool one_scale = p.narrow_a.form == ScaleForm::One;
      const bool forward = one_scale && p.narrow_a.format == p.narrow_b.format;
      set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(forward ? 1 : 0));
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.narrow_a.scale);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.narrow_b.scale);
      if (!one_scale) {
        set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(p.narrow_a.form));
        set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(p.narrow_b.form));
      }
    }
    if (p.aux != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m);
    }
  }
  ~Description() { lt_.desc_destroy(desc_); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  cublasLtMatmulDesc_t get() const { return desc_; }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    lt_.check_status(lt_.desc_set(desc_, attribute, &value, sizeof value), "describing a product");
  }
  const Lt& lt_;
  cublasLtMatmulDesc_t desc_ = nullptr;
};

// A product as cuBLASLt describes it: the operation, and the layouts of its matrices.
struct Described {
  Described(const Lt& lt, const Product& p)
      : operation(lt, p),
        a(lt, type_of(p.narrow_a, p.factors), p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k),
        b(lt, type_of(p.narrow_b, p.factors), p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n),
        d(lt, type_of(p.result), p.m, p.n) {}
  Description operation;
  Layout a, b, d;
};

class Preference {
 public:
  Preference(const Lt& lt, const Product& p) : lt_(lt) {
    lt.check_status(lt.preference_create(&preference_), "choosing an algorithm");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kProductWorkspace});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c_of(p)));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.d));
  }
  ~Preference() { lt_.preference_destroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
    lt_.check_status(lt_.preference_set(preference_, attribute, &value, sizeof value),
                     "choosing an algorithm");
  }
  const Lt& lt_;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace trifold::cuda::blas
