// Softmax and its logarithm: a group of threads for each row, which reads it once for each of maximum, sum and result.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kSoftmaxPacks = 4;  // that a thread reads, if there are enough threads

template <class T>
__global__ void __launch_bounds__(kMostRowThreads)
    softmax_kernel(T* y, const T* x, int64_t rows, int64_t columns, bool logarithm) {
  using Wide = Accumulate<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t end = row < rows ? columns : 0;  // a thread without a row has no columns
  const T* in = x + row * columns;
  Wide most[1] = {cpu::kLowest<Wide>};
  for (int64_t c = threadIdx.x; c < end; c += blockDim.x) most[0] = cpu::larger(value(in[c]), most[0]);
  combine_row(most, Most{});
  Wide total[1] = {0};
  for (int64_t c = threadIdx.x; c < end; c += blockDim.x) total[0] += cpu::exp_of(value(in[c]) - most[0]);
  combine_row(total, Plus{});
  const Wide share = total[0] == 0 ? Wide(0) : 1 / total[0];
  const Wide log_total = cpu::log_of(total[0]);
  for (int64_t c = threadIdx.x; c < end; c += blockDim.x) {
    const Wide distance = value(in[c]) - most[0];
    put(y[row * columns + c], logarithm ? distance - log_total : cpu::exp_of(distance) * share);
  }
}

template <class T>
__global__ void __launch_bounds__(kMostRowThreads)
    softmax_gradient_kernel(T* dx, const T* dy, const T* y, int64_t rows, int64_t columns, bool logarithm) {
  using Wide = Accumulate<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int64_t end = row < rows ? columns : 0;
  const T* grad = dy + row * columns;
  const T* saved = y + row * columns;
  Wide total[1] = {0};
  for (int64_t c = threadIdx.x; c < end; c += blockDim.x)
    total[0] += logarithm ? value(grad[c]) : value(grad[c]) * value(saved[c]);
  combine_row(total, Plus{});
  for (int64_t c = threadIdx.x; c < end; c += blockDim.x) {
    const Wide of_y = value(saved[c]);
    const Wide of_dy = value(grad[c]);
    put(dx[row * columns + c], logarithm ? of_dy - cpu::exp_of(of_y) * total[0] : of_y * (of_dy - total[0]));
  }
}

}  // namespace

template <class T>
void softmax(CudaStream stream, T* y, const T* x, int64_t rows, int64_t columns, bool logarithm) {
  if (rows == 0 || columns == 0) return;
  const RowBlocks blocks = row_blocks<T>(rows, columns, kSoftmaxPacks);
  TRIFOLD_LAUNCH((softmax_kernel<T>), blocks.grid, blocks.block, 0, stream, y, x, rows, columns, logarithm);
}

template <class T>
void softmax_backward(CudaStream stream, T* dx, const T* dy, const T* y, int64_t rows, int64_t columns,
                      bool logarithm) {
  if (rows == 0 || columns == 0) return;
  const RowBlocks blocks = row_blocks<T>(rows, columns, kSoftmaxPacks);
  TRIFOLD_LAUNCH((softmax_gradient_kernel<T>), blocks.grid, blocks.block, 0, stream, dx, dy, y, rows, columns,
                 logarithm);
}

#define INSTANTIATE(T)                                                        \
  template void softmax<T>(CudaStream, T*, const T*, int64_t, int64_t, bool); \
  template void softmax_backward<T>(CudaStream, T*, const T*, const T*, int64_t, int64_t, bool);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
