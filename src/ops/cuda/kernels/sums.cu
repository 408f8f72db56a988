// Sums to a scalar in f64, in two stages whose extents depend on the count only, and sums of squares by
// chunk, in exactly the CPU's order (ops/kernels/optimizer.h: SquareSum).
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

constexpr int kSumThreads = 256;
constexpr int64_t kSumParts = kSumScratch / sizeof(double);

template <class T>
struct Squares {
  const T* x;
  __device__ inline double sum(int64_t at, int count, bool aligned) const {
    FullPack<T> xs;
    xs.load(x + at, count, aligned);
    double total = 0;
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i) {
      if (i >= count) continue;
      const auto number = static_cast<double>(value(xs.at[i]));
      total += number * number;
    }
    return total;
  }
};

template <class W>
struct Weighted {
  const W* x;
  const float* weight;
  __device__ inline double sum(int64_t at, int count, bool) const {
    double total = 0;
    for (int i = 0; i < count; ++i)
      total += static_cast<double>(x[at + i]) * static_cast<double>(weight[at + i]);
    return total;
  }
};

template <class T, class Terms>
__global__ void __launch_bounds__(kSumThreads)
    sum_parts(double* sums, Terms terms, int64_t n, int64_t part, bool aligned) {
  constexpr int kPer = kPerPack<T>;
  const int64_t first = blockIdx.x * part;
  const int64_t last = first + part < n ? first + part : n;
  double total[1] = {0};
  for (int64_t at = first + threadIdx.x * kPer; at < last; at += kSumThreads * kPer)
    total[0] += terms.sum(at, count_at(at, last, kPer), aligned);
  combine_row(total, Plus{});
  if (threadIdx.x == 0) sums[blockIdx.x] = total[0];
}

__global__ void __launch_bounds__(kSumThreads) sum_total(double* total, const double* sums, int count) {
  double sum[1] = {0};
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSumThreads) sum[0] += sums[i];
  combine_row(sum, Plus{});
  if (threadIdx.x == 0) *total += sum[0];
}

template <class T, class Terms>
void sum_all(CudaStream stream, void* scratch, double* total, const Terms& terms, int64_t n, bool aligned) {
  if (n == 0) return;
  constexpr int64_t kUnit = kSumThreads * kPerPack<T> * 4;
  auto* sums = static_cast<double*>(scratch);
  const int64_t part = parts(parts(n, kSumParts), kUnit) * kUnit;
  const int64_t count = parts(n, part);
  TRIFOLD_LAUNCH((sum_parts<T, Terms>), dim3(static_cast<unsigned>(count)), dim3(kSumThreads), 0, stream,
                 sums, terms, n, part, aligned);
  TRIFOLD_LAUNCH((sum_total), dim3(1), dim3(kSumThreads), 0, stream, total, sums, static_cast<int>(count));
}

// ---- exact sums ----

constexpr int64_t kExactParts = static_cast<int64_t>(kExactScratch / (kExactLimbs * sizeof(int64_t)));
constexpr int kExactAtOnce = 4;

// Sums of the digits of one thread's elements: four consecutive limbs in registers, because most elements are about as
// large as the previous one, and the other limbs in shared memory. Limbs are integers, so the order of the atomic
// additions does not matter.
class DigitWindow {
 public:
  __device__ inline explicit DigitWindow(int64_t* limbs) : limbs_(limbs) {}

  __device__ inline void add(uint64_t bits) {
    const ExactDigits digits = exact_digits(bits);
    if (digits.count == 1) {
      add_to_shared(limbs_ + digits.first, 1);
      return;
    }
    if (digits.first != base_ && digits.first != base_ + 1) {
      flush();
      base_ = digits.first > 0 ? digits.first - 1 : 0;
    }
    const bool upper = digits.first != base_;
    at_[0] += upper ? 0 : digits.at[0];
    at_[1] += upper ? digits.at[0] : digits.at[1];
    at_[2] += upper ? digits.at[1] : digits.at[2];
    at_[3] += upper ? digits.at[2] : 0;
  }
  __device__ inline void flush() {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (at_[i] != 0) add_to_shared(limbs_ + base_ + i, at_[i]);
      at_[i] = 0;
    }
  }

 private:
  int64_t* limbs_;
  int base_ = 0;
  int64_t at_[4] = {0, 0, 0, 0};
};

__global__ void __launch_bounds__(kSumThreads)
    exact_parts(int64_t* sums, const double* x, int64_t n, int64_t part) {
  __shared__ int64_t limbs[kExactLimbs];
  for (int i = static_cast<int>(threadIdx.x); i < kExactLimbs; i += kSumThreads) limbs[i] = 0;
  __syncthreads();
  const int64_t first = blockIdx.x * part;
  const int64_t last = first + part < n ? first + part : n;
  DigitWindow window(limbs);
  for (int64_t at = first + threadIdx.x; at < last; at += kSumThreads * kExactAtOnce) {
    double numbers[kExactAtOnce];
#pragma unroll
    for (int j = 0; j < kExactAtOnce; ++j)
      numbers[j] = at + j * kSumThreads < last ? x[at + j * kSumThreads] : 0;
#pragma unroll
    for (int j = 0; j < kExactAtOnce; ++j) window.add(__double_as_longlong(numbers[j]));
  }
  window.flush();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kExactLimbs; i += kSumThreads)
    sums[blockIdx.x * kExactLimbs + i] = limbs[i];
}

__global__ void __launch_bounds__(kSumThreads) exact_total(int64_t* limbs, const int64_t* sums, int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= kExactLimbs) return;
  int64_t sum = 0;
#pragma unroll 8
  for (int part = 0; part < count; ++part) sum += sums[part * kExactLimbs + i];
  limbs[i] += sum;
}

// Sixteen lanes sum a chunk, each of them every sixteenth element in f64. Lanes 8 to 15 are the upper half of
// the CPU's sums, and the halves are combined as on the CPU.
constexpr int kSlots = 16;
constexpr int kSteps = static_cast<int>(cpu::kSquaresChunk) / kSlots;
constexpr int kChunkThreads = 256;
constexpr int kChunksAtOnce = kChunkThreads / kSlots;

__device__ inline double total_of_slots(double sum) {
  for (int distance = kSlots / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  return sum;
}

template <class W>
__global__ void __launch_bounds__(kChunkThreads)
    chunk_squares_kernel(double* partials, const W* x, int64_t n) {
  const int slot = static_cast<int>(threadIdx.x) % kSlots;
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kChunksAtOnce + threadIdx.x / kSlots;
  const int64_t first = chunk * cpu::kSquaresChunk + slot;
  W numbers[kSteps];
#pragma unroll
  for (int j = 0; j < kSteps; ++j) numbers[j] = first + j * kSlots < n ? x[first + j * kSlots] : W(0);
  double sum = 0;
#pragma unroll
  for (int j = 0; j < kSteps; ++j) {
    const auto number = static_cast<double>(numbers[j]);
    sum += number * number;
  }
  sum = total_of_slots(sum);
  if (slot == 0 && first < n) partials[chunk] = sum;
}

// Steps whose four arrays are loaded before the first of them is stored, because the compiler must assume
// that a store changes what is loaded after it.
constexpr int kLambSteps = 4;

template <class W>
__global__ void __launch_bounds__(kChunkThreads)
    lamb_moments_kernel(double* p_squares, double* u_squares, W* m, W* v, const W* p, const W* g, int64_t n,
                        cpu::LateRule<cpu::LambRule> rule) {
  const cpu::LambDirection<W> direction(rule.now());
  const int slot = static_cast<int>(threadIdx.x) % kSlots;
  const int64_t chunk = static_cast<int64_t>(blockIdx.x) * kChunksAtOnce + threadIdx.x / kSlots;
  const int64_t first = chunk * cpu::kSquaresChunk + slot;
  double weights = 0;
  double directions = 0;
  for (int begin = 0; begin < kSteps; begin += kLambSteps) {
    W moment[kLambSteps];
    W square[kLambSteps];
    W weight[kLambSteps];
    W grad[kLambSteps];
#pragma unroll
    for (int j = 0; j < kLambSteps; ++j) {
      const int64_t i = first + (begin + j) * kSlots;
      if (i >= n) continue;
      moment[j] = m[i];
      square[j] = v[i];
      weight[j] = p[i];
      grad[j] = g[i];
    }
#pragma unroll
    for (int j = 0; j < kLambSteps; ++j) {
      const int64_t i = first + (begin + j) * kSlots;
      if (i >= n) continue;
      direction.moments.move(moment[j], square[j], grad[j]);
      m[i] = moment[j];
      v[i] = square[j];
      const auto u = static_cast<double>(direction(weight[j], moment[j], square[j]));
      const auto wide = static_cast<double>(weight[j]);
      weights += wide * wide;
      directions += u * u;
    }
  }
  weights = total_of_slots(weights);
  directions = total_of_slots(directions);
  if (slot != 0 || first >= n) return;
  p_squares[chunk] = weights;
  u_squares[chunk] = directions;
}

unsigned chunk_blocks(int64_t n) {
  return static_cast<unsigned>(parts(parts(n, cpu::kSquaresChunk), kChunksAtOnce));
}

}  // namespace

template <class T>
void sum_squares(CudaStream stream, void* scratch, double* total, const T* x, int64_t n) {
  sum_all<T>(stream, scratch, total, Squares<T>{x}, n, packs<T>(0, x));
}
template <class W>
void weighted_sum(CudaStream stream, void* scratch, double* total, const W* x, const float* weight,
                  int64_t n) {
  sum_all<W>(stream, scratch, total, Weighted<W>{x, weight}, n, false);
}
void exact_sum(CudaStream stream, void* scratch, int64_t* limbs, const double* x, int64_t n) {
  if (n == 0) return;
  constexpr int64_t kUnit = kSumThreads * kExactAtOnce;
  auto* sums = static_cast<int64_t*>(scratch);
  const int64_t part = parts(parts(n, kExactParts), kUnit) * kUnit;
  const int64_t count = parts(n, part);
  TRIFOLD_LAUNCH((exact_parts), dim3(static_cast<unsigned>(count)), dim3(kSumThreads), 0, stream, sums, x, n,
                 part);
  TRIFOLD_LAUNCH((exact_total), dim3(1), dim3(kSumThreads), 0, stream, limbs, sums, static_cast<int>(count));
}
template <class W>
void chunk_squares(CudaStream stream, double* partials, const W* x, int64_t n) {
  if (n == 0) return;
  TRIFOLD_LAUNCH((chunk_squares_kernel<W>), dim3(chunk_blocks(n)), dim3(kChunkThreads), 0, stream, partials,
                 x, n);
}
template <class W>
void lamb_moments(CudaStream stream, double* p_squares, double* u_squares, W* m, W* v, const W* p, const W* g,
                  int64_t n, const cpu::LateRule<cpu::LambRule>& rule) {
  if (n == 0) return;
  TRIFOLD_LAUNCH((lamb_moments_kernel<W>), dim3(chunk_blocks(n)), dim3(kChunkThreads), 0, stream, p_squares,
                 u_squares, m, v, p, g, n, rule);
}

#define INSTANTIATE(T) template void sum_squares<T>(CudaStream, void*, double*, const T*, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE
#define INSTANTIATE(W)                                                                             \
  template void weighted_sum<W>(CudaStream, void*, double*, const W*, const float*, int64_t);      \
  template void chunk_squares<W>(CudaStream, double*, const W*, int64_t);                          \
  template void lamb_moments<W>(CudaStream, double*, double*, W*, W*, const W*, const W*, int64_t, \
                                const cpu::LateRule<cpu::LambRule>&);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace trifold::cuda
