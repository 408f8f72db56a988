// The product of two factors in 8 bits, after they are rounded; for the tables of ops/cuda/fp8.h and fp8_blocks.h.
#pragma once

#include "core/cuda/cuda_queue.h"
#include "ops/cuda/lt_product.h"

namespace trifold::cuda {

// y [n, m] = b a^T + beta y, plus `bias` [m] unless it has no dims; the caller sets both factors.
Product narrow_product(const Tensor& y, const Tensor& bias, int64_t m, int64_t n, int64_t k, double beta);

// Enqueues it. If no algorithm adds the bias, that is put into y first.
void run_narrow_product(CudaQueue& queue, const char* op, Product asked, const Tensor& y, const Tensor& bias);

}  // namespace trifold::cuda
