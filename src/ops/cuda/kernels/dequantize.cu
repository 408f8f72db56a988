// Elements of quantized matrices (ops/quantized.h). A thread computes kEach consecutive elements of a row, whose codes
// it reads byte by byte, and stores them in few words if rows begin at words.
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kEach = 8;

template <class T>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(T* y, const uint8_t* codes, const Bfloat16* scales, int64_t packs, int64_t row_packs,
                      bool aligned, cpu::QuantizedRows form) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int64_t row = pack / row_packs;
  const int64_t first = pack % row_packs * kEach;
  const int64_t left = form.columns - first;
  const int count = left < kEach ? static_cast<int>(left) : kEach;
  const uint8_t* const from = codes + row * form.row_bytes;
  const Bfloat16* const scale = scales + cpu::first_scale(form, row);
  Numbers<T, kEach> numbers;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t column = i < count ? first + i : first;
    const float code = form.four_bits ? cpu::nf4_value(cpu::nf4_code(from[column / 2], column))
                                      : cpu::int8_value(from[column]);
    cpu::put_rounded(numbers.at[i], code * value(scale[column >> form.scale_shift]));
  }
  numbers.store(y + row * form.columns + first, count, aligned);
}

}  // namespace

template <class T>
void dequantize(CudaStream stream, T* y, const uint8_t* codes, const Bfloat16* scales, int64_t rows,
                const cpu::QuantizedRows& form) {
  const int64_t row_packs = (form.columns + kEach - 1) / kEach;
  const int64_t packs = rows * row_packs;
  if (packs == 0) return;
  const bool aligned = form.columns % kEach == 0 && reinterpret_cast<uintptr_t>(y) % 16 == 0;
  const auto blocks = static_cast<unsigned>((packs + kThreads - 1) / kThreads);
  TRIFOLD_LAUNCH((dequantize_kernel<T>), dim3(blocks), dim3(kThreads), 0, stream, y, codes, scales, packs,
                 row_packs, aligned, form);
}

#define INSTANTIATE(T)                                                                  \
  template void dequantize<T>(CudaStream, T*, const uint8_t*, const Bfloat16*, int64_t, \
                              const cpu::QuantizedRows&);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)

}  // namespace trifold::cuda
