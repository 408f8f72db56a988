// Rotary position embedding. A block rotates one row: while its first elements are in flight, its threads compute
// the sines and cosines of the row's angles, in f64 as the CPU does, and all heads use them.
#include "ops/cuda/kernels/frequencies.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"
#include "ops/kernels/angle.h"

namespace trifold::cuda {

namespace {

constexpr int kRotaryThreads = 256;  // maximum per block

// The elements that a thread rotates at a time: a pack of the first elements of some pairs of a head, and the pack of
// their second elements. Whole: heads and their pairs consist of whole, aligned packs.
template <class T, bool Whole>
struct Turn {
  int first, count;  // pairs
  int64_t at;        // offset of the first elements; the second elements are `pairs` further
  FullPack<T> low, high;

  __device__ inline void load(const T* in, const cpu::RotaryShape& shape, int p, int head_packs) {
    constexpr int kPer = kPerPack<T>;
    const auto pairs = static_cast<int>(shape.pairs);
    const int head = p / head_packs;
    first = (p - head * head_packs) * kPer;
    count = pairs - first < kPer ? pairs - first : kPer;
    at = head * shape.width + first;
    low.template load<Whole>(in + at, count);
    high.template load<Whole>(in + at + pairs, count);
  }
  // Rotates by the angles in shared memory.
  __device__ inline void turn(const Accumulate<T>* sine, const Accumulate<T>* cosine) {
    using Wide = Accumulate<T>;
    constexpr int kPer = kPerPack<T>;
    Numbers<Wide, kPer> s;
    Numbers<Wide, kPer> c;
    s.template load<Whole>(sine + first, count);
    c.template load<Whole>(cosine + first, count);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (!Whole && i >= count) continue;
      const Wide a = value(low.at[i]);
      const Wide b = value(high.at[i]);
      put(low.at[i], a * c.at[i] - b * s.at[i]);
      put(high.at[i], b * c.at[i] + a * s.at[i]);
    }
  }
  __device__ inline void store(T* out, int64_t pairs) const {
    low.template store<Whole>(out + at, count);
    high.template store<Whole>(out + at + pairs, count);
  }
};

template <class T, int64_t Most, bool Whole>
__global__ void __launch_bounds__(kRotaryThreads)
    rotary_kernel(T* y, const T* x, const int32_t* positions, cpu::RotaryShape shape,
                  Frequencies<Most> frequencies) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  alignas(16) __shared__ Wide sine[Most];
  alignas(16) __shared__ Wide cosine[Most];
  const int64_t r = blockIdx.x;
  const T* in = x + r * shape.x_stride;
  T* out = y + r * shape.y_stride;
  const auto pairs = static_cast<int>(shape.pairs);
  const auto threads = static_cast<int>(blockDim.x);
  if (shape.heads > 0) {
    const double position = static_cast<double>(positions[r]) * (shape.inverse ? -1.0 : 1.0);
    const auto head_packs = static_cast<int>((pairs + kPer - 1) / kPer);
    const auto all = static_cast<int>(shape.heads) * head_packs;
    int p = static_cast<int>(threadIdx.x);
    Turn<T, Whole> now;
    if (p < all) now.load(in, shape, p, head_packs);
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += threads) {
      double s = 0;
      double c = 0;
      cpu::sine_and_cosine(position * frequencies.at[i], s, c);
      sine[i] = static_cast<Wide>(s * shape.scale);
      cosine[i] = static_cast<Wide>(c * shape.scale);
    }
    __syncthreads();
    while (p < all) {
      now.turn(sine, cosine);
      now.store(out, pairs);
      p += threads;
      if (p < all) now.load(in, shape, p, head_packs);
    }
    const auto rest = static_cast<int>(shape.width) - 2 * pairs;
    for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(shape.heads) * rest; i += threads) {
      const int64_t at = i / rest * shape.width + 2 * pairs + i % rest;
      out[at] = in[at];
    }
  }
  const int64_t turned = shape.heads * shape.width;
  for (int64_t c = turned + threadIdx.x * kPer; c < shape.columns; c += threads * kPer) {
    FullPack<T> pack;
    const int count = count_at(c, shape.columns, kPer);
    pack.template load<Whole>(in + c, count);
    pack.template store<Whole>(out + c, count);
  }
}

template <class T, int64_t Most>
void launch(CudaStream stream, T* y, const T* x, const int32_t* positions, int64_t rows,
            const cpu::RotaryShape& shape) {
  const Frequencies<Most> frequencies(shape.frequencies, shape.pairs);
  const int64_t lengths = shape.x_stride | shape.y_stride | shape.width | shape.pairs;
  // No more threads than a row has work for: idle threads would occupy registers of another row's block.
  const int64_t work = parts(shape.columns, 2 * kPerPack<T>);
  unsigned threads = 32;
  while (threads < work && threads < kRotaryThreads) threads += 32;
  // Whole packs of a row: of its heads, and of what is behind them.
  const bool whole = packs<T>(lengths | shape.columns, y, x);
  const auto kernel = whole ? rotary_kernel<T, Most, true> : rotary_kernel<T, Most, false>;
  TRIFOLD_LAUNCH(kernel, dim3(static_cast<unsigned>(rows)), dim3(threads), 0, stream, y, x, positions, shape,
                 frequencies);
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
