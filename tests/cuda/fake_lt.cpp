#include "cuda/fake_lt.h"

#include <algorithm>
#include <cstring>

namespace trifold::test {

FakeLt fake_lt;

namespace {

template <class Opaque>
cublasStatus_t make(Opaque** made) {
  *made = new Opaque{};
  ++fake_lt.alive;
  return CUBLAS_STATUS_SUCCESS;
}
template <class Opaque>
cublasStatus_t destroy(Opaque* made) {
  delete made;
  --fake_lt.alive;
  return CUBLAS_STATUS_SUCCESS;
}

const char* text(cublasStatus_t status) {
  ++fake_lt.texts;
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "fake: not supported" : "fake: failed";
}
size_t version() { return 1; }

cublasStatus_t create(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t desc_create(cublasLtMatmulDesc_t* made, cublasComputeType_t, cudaDataType_t) {
  return make(made);
}
cublasStatus_t desc_set(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t attribute, const void* value,
                        size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ||
      attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER) {
    const void* scale = nullptr;
    std::memcpy(&scale, value, bytes);
    fake_lt.scales.push_back(scale);
  }
  if (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_MODE || attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE) {
    int32_t mode = 0;
    std::memcpy(&mode, value, bytes);
    fake_lt.scale_modes.push_back(mode);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t layout_create(cublasLtMatrixLayout_t* made, cudaDataType_t, uint64_t, uint64_t, int64_t) {
  return make(made);
}
cublasStatus_t preference_create(cublasLtMatmulPreference_t* made) { return make(made); }
cublasStatus_t preference_set(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void*,
                              size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t, int most, cublasLtMatmulHeuristicResult_t results[],
                         int* found) {
  fake_lt.asked.push_back(most);
  *found = std::min(most, static_cast<int>(fake_lt.proposed.size()));
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    results[i].algo.data[0] = fake_lt.proposed[static_cast<size_t>(i)];
  }
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t matmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                      cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void* beta,
                      const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                      const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  fake_lt.multiplied.push_back(algorithm->data[0]);
  return fake_lt.answer(algorithm->data[0], *static_cast<const float*>(beta));
}

}  // namespace

const cuda::blas::Lt& fake_lt_table() {
  static const cuda::blas::Lt kLt{.create = create,
                                  .text = text,
                                  .version = version,
                                  .desc_create = desc_create,
                                  .desc_destroy = destroy,
                                  .desc_set = desc_set,
                                  .layout_create = layout_create,
                                  .layout_destroy = destroy,
                                  .preference_create = preference_create,
                                  .preference_destroy = destroy,
                                  .preference_set = preference_set,
                                  .heuristic = heuristic,
                                  .matmul = matmul};
  return kLt;
}

}  // namespace trifold::test
