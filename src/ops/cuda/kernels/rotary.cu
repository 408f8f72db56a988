// Rotary position embedding. A block rotates one row: its threads compute the sines and cosines of the row's
// angles once, in f64 as the CPU does, and then all heads use them.
#include "ops/cuda/kernels/frequencies.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"
#include "ops/kernels/angle.h"

namespace trifold::cuda {

namespace {

constexpr int kRotaryThreads = 256;

template <class T, int64_t Most>
__global__ void __launch_bounds__(kRotaryThreads)
    rotary_kernel(T* y, const T* x, const int32_t* positions, cpu::RotaryShape shape,
                  Frequencies<Most> frequencies, bool aligned) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  __shared__ Wide sine[Most];
  __shared__ Wide cosine[Most];
  const int64_t r = blockIdx.x;
  const T* in = x + r * shape.x_stride;
  T* out = y + r * shape.y_stride;
  const auto pairs = static_cast<int>(shape.pairs);
  if (shape.heads > 0) {
    const double position = static_cast<double>(positions[r]) * (shape.inverse ? -1.0 : 1.0);
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kRotaryThreads) {
      double s = 0;
      double c = 0;
      cpu::sine_and_cosine(position * frequencies.at[i], s, c);
      sine[i] = static_cast<Wide>(s);
      cosine[i] = static_cast<Wide>(c);
    }
    __syncthreads();
    const auto head_packs = static_cast<int>((pairs + kPer - 1) / kPer);
    const auto all = static_cast<int>(shape.heads) * head_packs;
    for (int p = static_cast<int>(threadIdx.x); p < all; p += kRotaryThreads) {
      const int head = p / head_packs;
      const int first = p % head_packs * kPer;
      const int count = pairs - first < kPer ? pairs - first : kPer;
      const int64_t at = head * shape.width + first;
      FullPack<T> low;
      FullPack<T> high;
      low.load(in + at, count, aligned);
      high.load(in + at + pairs, count, aligned);
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        if (i >= count) continue;
        const Wide a = value(low.at[i]);
        const Wide b = value(high.at[i]);
        const Wide c = cosine[first + i];
        const Wide s = sine[first + i];
        put(low.at[i], a * c - b * s);
        put(high.at[i], b * c + a * s);
      }
      low.store(out + at, count, aligned);
      high.store(out + at + pairs, count, aligned);
    }
    const auto rest = static_cast<int>(shape.width) - 2 * pairs;
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(shape.heads) * rest;
         i += kRotaryThreads) {
      const int64_t at = i / rest * shape.width + 2 * pairs + i % rest;
      out[at] = in[at];
    }
  }
  const int64_t turned = shape.heads * shape.width;
  for (int64_t c = turned + threadIdx.x * kPer; c < shape.columns; c += kRotaryThreads * kPer) {
    FullPack<T> pack;
    const int count = count_at(c, shape.columns, kPer);
    pack.load(in + c, count, aligned);
    pack.store(out + c, count, aligned);
  }
}

template <class T, int64_t Most>
void launch(CudaStream stream, T* y, const T* x, const int32_t* positions, int64_t rows,
            const cpu::RotaryShape& shape) {
  const Frequencies<Most> frequencies(shape.frequencies, shape.pairs);
  const int64_t lengths = shape.x_stride | shape.y_stride | shape.width | shape.pairs;
  TRIFOLD_LAUNCH((rotary_kernel<T, Most>), dim3(static_cast<unsigned>(rows)), dim3(kRotaryThreads), 0, stream,
                 y, x, positions, shape, frequencies, packs<T>(lengths, y, x));
}

}  // namespace

template <class T>
void rotary(CudaStream stream, T* y, const T* x, const int32_t* positions, int64_t rows,
            const cpu::RotaryShape& shape) {
  if (rows == 0 || shape.columns == 0) return;
  if (shape.pairs <= kUsualPairs)
    launch<T, kUsualPairs>(stream, y, x, positions, rows, shape);
  else
    launch<T, cpu::kRotaryPairs>(stream, y, x, positions, rows, shape);
}

#define INSTANTIATE(T) \
  template void rotary<T>(CudaStream, T*, const T*, const int32_t*, int64_t, const cpu::RotaryShape&);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
