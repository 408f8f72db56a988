#include "ops/cuda/fp8_product.h"

#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

Product narrow_product(const Tensor& y, const Tensor& bias, int64_t m, int64_t n, int64_t k, double beta) {
  return {.factors = DType::BF16,
          .result = y.dtype,
          .m = m,
          .n = n,
          .k = k,
          .transpose_a = true,
          .transpose_b = false,
          .a = nullptr,
          .b = nullptr,
          .d = y.data,
          .alpha = 1,
          .beta = beta,
          .epilogue = bias.rank() > 0 ? Epilogue::Bias : Epilogue::None,
          .bias = bias.data};
}

void run_narrow_product(CudaQueue& queue, const char* op, Product asked, const Tensor& y,
                        const Tensor& bias) {
  if (asked.bias != nullptr) {
    if (try_product(queue, asked)) return;
    // Put into the result first, it is rounded together with the sum, as by the epilogue.
    fill_rows(static_cast<CudaStream>(queue.native()), y.as<Bfloat16>(), bias.as<Bfloat16>(), y.row_count(),
              y.last_dim());
    queue.check_launch(op);
    asked.epilogue = Epilogue::None;
    asked.bias = nullptr;
    asked.beta = 1;
  }
  run_product(queue, asked);
}

}  // namespace trifold::cuda
