// Copies, sums and functions of strided views: a thread computes the place of each element from its index.
#include <algorithm>

#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"
#include "ops/kernels/map_formulas.h"
#include "ops/kernels/walk.h"

namespace trifold::cuda {

namespace {

constexpr int kStridedThreads = 256;

template <class Y, class X>
__global__ void __launch_bounds__(kStridedThreads)
    strided_copy_kernel(Y* y, const X* x, cpu::StridedWalk<2> walk, int64_t elements) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kStridedThreads + threadIdx.x;
  if (i >= elements) return;
  cpu::Move<Y, X>::one(y[cpu::distance_of(walk, 0, i)], x[cpu::distance_of(walk, 1, i)]);
}

// ---- sums ----

// How the terms of a sum are divided: into `parts` parts of `length` terms. The parts of an element are added in order
// by add_parts_kernel. With one part there is no scratch.
struct SumParts {
  int64_t parts, length;
  bool by_blocks;  // a block computes a part, its threads read neighbours; otherwise a thread does
};

constexpr int64_t kMostSums = int64_t{1} << 18;  // parts of all elements
constexpr int64_t kMostParts = 4096;
static_assert(kMostSums * sizeof(double) <= kProductWorkspace);

SumParts parts_of(const StridedSums& sums) {
  const bool by_blocks = sums.kept.strides[1][sums.kept.rank - 1] != 1 && sums.terms >= 2 * kWarp &&
                         sums.summed.strides[0][sums.summed.rank - 1] == 1;
  const int64_t fewest_terms = by_blocks ? 4096 : 32;
  const int64_t wanted = (by_blocks ? 1024 : kMostSums) / (sums.elements + 1);
  const int64_t most = std::min(sums.terms / fewest_terms, kMostParts);
  const int64_t count = std::min(wanted, most);
  if (count <= 1) return {1, sums.terms, by_blocks};
  const int64_t length = parts(sums.terms, count);
  return {parts(sums.terms, length), length, by_blocks};
}

template <class Y>
__device__ inline void store_sum(Y* y, const StridedSums& sums, int64_t element, double total) {
  Y& out = y[cpu::distance_of(sums.kept, 0, element)];
  const auto sum = static_cast<Accumulate<Y>>(sums.factor * total);
  put(out, sums.accumulate ? sum + value(out) : sum);
}

// Element blockIdx.x of y if by blocks, else one for each thread; part blockIdx.y.
template <class Y, class T, bool ByBlocks>
__global__ void __launch_bounds__(kStridedThreads)
    strided_sum_kernel(Y* y, double* partial, const T* x, StridedSums sums, int64_t length) {
  const int64_t element =
      ByBlocks ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * kStridedThreads + threadIdx.x;
  const int64_t begin = blockIdx.y * length;
  const int64_t end = begin + length < sums.terms ? begin + length : sums.terms;
  double total[1] = {0};
  if (element < sums.elements) {
    const T* from = x + cpu::distance_of(sums.kept, 1, element);
    for (int64_t i = begin + (ByBlocks ? threadIdx.x : 0); i < end; i += ByBlocks ? kStridedThreads : 1)
      total[0] += static_cast<double>(value(from[cpu::distance_of(sums.summed, 0, i)]));
  }
  if constexpr (ByBlocks) combine_row(total, Plus{});
  if (element >= sums.elements || (ByBlocks && threadIdx.x != 0)) return;
  if (partial == nullptr)
    store_sum(y, sums, element, total[0]);
  else
    partial[blockIdx.y * sums.elements + element] = total[0];
}

template <class Y>
__global__ void __launch_bounds__(kStridedThreads)
    add_parts_kernel(Y* y, const double* partial, StridedSums sums, int64_t count) {
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kStridedThreads + threadIdx.x;
  if (element >= sums.elements) return;
  double total = 0;
  for (int64_t part = 0; part < count; ++part) total += partial[part * sums.elements + element];
  store_sum(y, sums, element, total);
}

// ---- maps ----

constexpr int kMapEach =
    2;  // elements of a thread, which chooses the formula once; four would spill registers

template <class Wide, class Line>
__device__ inline bool apply_line(MapOp op, Wide (&y)[kMapEach],
                                  const cpu::MapArguments<Wide> (&in)[kMapEach]) {
  if (op != Line::kOp) return false;
#pragma unroll
  for (int k = 0; k < kMapEach; ++k) y[k] = Line::Of::of(in[k]);
  return true;
}
template <class Wide, class... Lines>
__device__ inline void apply(cpu::MapLines<Lines...>, MapOp op, Wide (&y)[kMapEach],
                             const cpu::MapArguments<Wide> (&in)[kMapEach]) {
  (apply_line<Wide, Lines>(op, y, in) || ...);
}

template <class T>
__global__ void __launch_bounds__(kStridedThreads)
    map_views_kernel(T* y, MapViews<T> views, int64_t n, MapOp op, Accumulate<T> a, Accumulate<T> b) {
  using Wide = Accumulate<T>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kStridedThreads * kMapEach) + threadIdx.x;
  cpu::MapArguments<Wide> in[kMapEach];
  Wide results[kMapEach] = {};
#pragma unroll
  for (int k = 0; k < kMapEach; ++k) {
    const int64_t i = first + k * kStridedThreads;
    in[k] = {0, 0, 0, a, b};
    if (i >= n) continue;
    in[k].x0 = value(views.x[0][cpu::distance_of(views.walks[0], 0, i)]);
    if (views.inputs > 1) in[k].x1 = value(views.x[1][cpu::distance_of(views.walks[1], 0, i)]);
    if (views.inputs > 2) in[k].x2 = value(views.x[2][cpu::distance_of(views.walks[2], 0, i)]);
  }
  apply(cpu::MapList(), op, results, in);
#pragma unroll
  for (int k = 0; k < kMapEach; ++k)
    if (first + k * kStridedThreads < n) put(y[first + k * kStridedThreads], results[k]);
}

}  // namespace

template <class Y, class X>
void strided_copy(CudaStream stream, Y* y, const X* x, const cpu::StridedWalk<2>& walk, int64_t elements) {
  if (elements == 0) return;
  TRIFOLD_LAUNCH((strided_copy_kernel<Y, X>), dim3(static_cast<unsigned>(parts(elements, kStridedThreads))),
                 dim3(kStridedThreads), 0, stream, y, x, walk, elements);
}

size_t strided_sum_scratch(const StridedSums& sums) {
  const SumParts division = parts_of(sums);
  return division.parts == 1 ? 0 : static_cast<size_t>(division.parts * sums.elements) * sizeof(double);
}

template <class Y, class T>
void strided_sum(CudaStream stream, void* scratch, Y* y, const T* x, const StridedSums& sums) {
  if (sums.elements == 0) return;
  const SumParts division = parts_of(sums);
  auto* partial = division.parts == 1 ? nullptr : static_cast<double*>(scratch);
  const auto thread_blocks = static_cast<unsigned>(parts(sums.elements, kStridedThreads));
  const auto count = static_cast<unsigned>(division.parts);
  if (division.by_blocks)
    TRIFOLD_LAUNCH((strided_sum_kernel<Y, T, true>), dim3(static_cast<unsigned>(sums.elements), count),
                   dim3(kStridedThreads), 0, stream, y, partial, x, sums, division.length);
  else
    TRIFOLD_LAUNCH((strided_sum_kernel<Y, T, false>), dim3(thread_blocks, count), dim3(kStridedThreads), 0,
                   stream, y, partial, x, sums, division.length);
  if (partial != nullptr)
    TRIFOLD_LAUNCH((add_parts_kernel<Y>), dim3(thread_blocks), dim3(kStridedThreads), 0, stream, y, partial,
                   sums, division.parts);
}

template <class T>
void map_views(CudaStream stream, T* y, const MapViews<T>& views, int64_t n, MapOp op, double a, double b) {
  using Wide = Accumulate<T>;
  if (n == 0) return;
  TRIFOLD_LAUNCH((map_views_kernel<T>), dim3(static_cast<unsigned>(parts(n, kStridedThreads * kMapEach))),
                 dim3(kStridedThreads), 0, stream, y, views, n, op, static_cast<Wide>(a),
                 static_cast<Wide>(b));
}

#define INSTANTIATE(Y, X) \
  template void strided_copy<Y, X>(CudaStream, Y*, const X*, const cpu::StridedWalk<2>&, int64_t);
INSTANTIATE(uint16_t, uint16_t)
INSTANTIATE(uint32_t, uint32_t)
INSTANTIATE(uint64_t, uint64_t)
INSTANTIATE(double, float)
INSTANTIATE(float, double)
INSTANTIATE(Bfloat16, float)
INSTANTIATE(Bfloat16, double)
INSTANTIATE(float, Bfloat16)
INSTANTIATE(double, Bfloat16)
INSTANTIATE(Float16, float)
INSTANTIATE(Float16, double)
INSTANTIATE(float, Float16)
INSTANTIATE(double, Float16)
#undef INSTANTIATE

#define INSTANTIATE(Y, T) \
  template void strided_sum<Y, T>(CudaStream, void*, Y*, const T*, const StridedSums&);
INSTANTIATE(double, double)
INSTANTIATE(float, float)
INSTANTIATE(double, float)
INSTANTIATE(Bfloat16, Bfloat16)
INSTANTIATE(float, Bfloat16)
INSTANTIATE(double, Bfloat16)
INSTANTIATE(Float16, Float16)
INSTANTIATE(float, Float16)
INSTANTIATE(double, Float16)
#undef INSTANTIATE

#define INSTANTIATE(T) \
  template void map_views<T>(CudaStream, T*, const MapViews<T>&, int64_t, MapOp, double, double);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
