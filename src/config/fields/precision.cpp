#include "config/fields/config.h"

namespace trifold {

DType compute_type(const PrecisionConfig& config) {
  if (config.bf16) return DType::BF16;
  if (config.fp16) return DType::F16;
  return config.f64 ? DType::F64 : DType::F32;
}

DType reduce_type(const PrecisionConfig& config) {
  return config.grad_reduce_in_bf16 ? DType::BF16 : accumulate_type(compute_type(config));
}

}  // namespace trifold
