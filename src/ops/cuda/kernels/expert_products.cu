// Products of the rows of experts with the experts' matrices on tensor cores (grouped_tiles.cuh), and the choice of the
// unit that computes them.
//
// Warps (sm_80 and newer), in this file: each of a block's eight warps holds 64 x 64 results in registers and loads
// fragments of the operands into registers. Warpgroups (sm_90a), in expert_warpgroups.cu: each of two warpgroups holds
// 64 x 256 results, and the tensor cores read both operands from shared memory. Both have the same slabs there.
#include <algorithm>
#include <optional>
#include <type_traits>

#include "ops/cuda/kernels/expert_warpgroups.cuh"
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/grouped_store.cuh"
#include "ops/cuda/kernels/grouped_tiles.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"

namespace trifold::cuda {

namespace {

// The largest numbers of stages that fit the shared memory of compute capability 8.6, 8.9 and 12.0; and of an A100.
constexpr int kFewWarpStages = 2;
constexpr int kWarpStages = 3;

// The offset in a slab that a lane passes to load_matrices for 16 x 16 elements. The order of the four 8 x 8 matrices,
// as they lie in memory, is upper left, lower left, upper right, lower right if `down`, else upper left, upper right,
// lower left, lower right.
__device__ inline int place_in_slab(bool down) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = down ? lane % 16 : lane % 8 + lane / 16 * 8;
  const int chunk = down ? lane / 16 : lane / 8 % 2;
  return row * kRowBytes + (chunk ^ row % 8) * 16;
}

// Loads the fragments of a slab for step `step`, which is 16 of the summed index: four fragments of 16 of the other
// index. `place` is the slab's address plus place_in_slab. The slab's address is a multiple of 128, so exclusive or
// adds chunks.
template <bool Along>
__device__ inline void load_fragments(uint32_t (&to)[4][4], SharedAddress place, int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int down = Along ? i : step;
    const int right = Along ? step : i;
    load_matrices<!Along>(to[i], (place ^ static_cast<SharedAddress>(right * 32)) + down * 16 * kRowBytes);
  }
}

struct alignas(8) Pair {
  float low, high;
};

// Gradients, which are added to y or replace it.
__device__ inline void store_gradients(float* y, const Sums& sums, int row, int end, int column, int columns,
                                       bool add) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = row + i * 16 + lane / 4;
    const int c = column + lane % 4 * 2;
    Pair* const to = reinterpret_cast<Pair*>(y + static_cast<int64_t>(r) * columns + c);
    const auto place = [&](int half, int j) { return to + half * 4 * static_cast<int64_t>(columns) + j * 4; };
    const auto exists = [&](int half, int j) { return r + half * 8 < end && c + j * 8 < columns; };
    Pair pairs[2][8] = {};
    if (add) {
#pragma unroll
      for (int n = 0; n < 16; ++n)  // all are in flight together
        if (exists(n / 8, n % 8)) pairs[n / 8][n % 8] = *place(n / 8, n % 8);
    }
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const int half = n / 8, j = n % 8;
      const Pair sum{pairs[half][j].low + sums[i][j][half * 2],
                     pairs[half][j].high + sums[i][j][half * 2 + 1]};
      if (exists(half, j)) *place(half, j) = sum;
    }
  }
}

// The results of a tile's expert, or of all experts.
template <bool OverRows, class T, class Out>
__device__ inline Out* results_of(const Operands<T, Out>& operands, const Tiles<OverRows>& tiles) {
  return operands.out +
         (OverRows ? int64_t{tiles.expert()} * operands.sizes.rows * operands.sizes.columns : 0);
}

// Gradients that a tile is added to at its end are fetched to the cache while it is computed: the block's threads share
// the lines of its rows.
template <class Out, class Tiles>
__device__ inline void prefetch_results(const Out* out, const Tiles& tiles, const Sizes& sizes) {
  constexpr int kLine = kLineBytes / static_cast<int>(sizeof(Out));
  constexpr int kLinesAcross = kTileColumns / kLine;
  const auto [row, column] = tiles.corner();
#pragma unroll 1
  for (int line = static_cast<int>(threadIdx.x); line < kTileRows * kLinesAcross; line += kThreads) {
    const int r = row + line / kLinesAcross;
    const int c = column + line % kLinesAcross * kLine;
    if (r < tiles.end() && c < sizes.columns)
      prefetch_line(out + static_cast<int64_t>(r) * sizes.columns + c);
  }
}

template <class T, class Out, bool OverRows, bool RightAlong, int Stages>
__global__ void __launch_bounds__(kThreads, 1) warps_kernel(const Operands<T, Out> operands) {
  static_assert(kThreads == kWarpsDown * kWarpsAcross * kWarp);
  constexpr bool kLeftAlong = !OverRows;
  const SharedAddress shared = dynamic_shared();
  const SharedAddress shared_end = shared + Stages * kStageBytes;
  Loader<T, Out, OverRows, RightAlong> loader(operands);
#pragma unroll
  for (int stage = 0; stage < Stages - 1; ++stage) loader.load(shared + stage * kStageBytes);

  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int down = warp / kWarpsAcross, across = warp % kWarpsAcross;
  const SharedAddress left = down * kSlabBytes + place_in_slab(kLeftAlong);
  const SharedAddress right = (kWarpsDown + across) * kSlabBytes + place_in_slab(!RightAlong);
  SharedAddress now = shared;                                // stage of the piece that is multiplied
  SharedAddress free = shared + (Stages - 1) * kStageBytes;  // stage whose piece has been used
  uint32_t a[2][4][4], b[2][4][4];
  await_copies<Stages - 2>();
  __syncthreads();
  load_fragments<kLeftAlong>(a[0], now + left, 0);
  load_fragments<RightAlong>(b[0], now + right, 0);
  for (Tiles<OverRows> tiles(operands.sizes, operands.first); !tiles.done(); tiles.next()) {
    Sums sums = {};
    Out* const out = results_of<OverRows>(operands, tiles);
    if (OverRows && operands.accumulate) prefetch_results(out, tiles, operands.sizes);
    for (int piece = tiles.pieces(); piece > 0; --piece) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        // The fragments of the next step are loaded while this step's are multiplied.
        if (step == kSteps - 1) {
          await_copies<Stages - 2>();
          __syncthreads();
          free = now;
          now = now + kStageBytes == shared_end ? shared : now + kStageBytes;
        }
        load_fragments<kLeftAlong>(a[(step + 1) % 2], now + left, (step + 1) % kSteps);
        load_fragments<RightAlong>(b[(step + 1) % 2], now + right, (step + 1) % kSteps);
        if (step == 0) loader.load(free);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 8; ++j)
            multiply<T>(sums[i][j], a[step % 2][i], b[step % 2][j / 2][j % 2 * 2],
                        b[step % 2][j / 2][j % 2 * 2 + 1]);
      }
    }
    const auto [row, column] = tiles.corner();
    if constexpr (OverRows)
      store_gradients(out, sums, row + down * kSlab, tiles.end(), column + across * kSlab,
                      operands.sizes.columns, operands.accumulate);
    else
      store_rounded<true>(out, sums, row + down * kSlab, tiles.end(), column + across * kSlab,
                          operands.sizes.columns);
  }
}

template <class T, class Out, bool OverRows, bool RightAlong>
void launch_warps(CudaStream stream, ProductUnit unit, const Operands<T, Out>& operands, int64_t most_tiles) {
  if (most_tiles == 0) return;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(multiprocessors(), most_tiles)));
  const auto with_stages = [&](auto stages) {
    constexpr int kStages = decltype(stages)::value;
    constexpr int kBytes = kStages * kStageBytes;
    allow_dynamic_shared(warps_kernel<T, Out, OverRows, RightAlong, kStages>, kBytes);
    TRIFOLD_LAUNCH((warps_kernel<T, Out, OverRows, RightAlong, kStages>), grid, dim3(kThreads), kBytes,
                   stream, operands);
  };
  if (unit == ProductUnit::WarpInLittleMemory)
    with_stages(std::integral_constant<int, kFewWarpStages>());
  else
    with_stages(std::integral_constant<int, kWarpStages>());
}

bool has(ProductUnit unit) {
  const std::optional<ProductUnit> best = best_product_unit();
  return best && unit <= *best;
}

Sizes sizes_of(int64_t experts, int64_t rows, int64_t columns, int64_t inner) {
  return {static_cast<int>(experts), static_cast<int>(rows), static_cast<int>(columns),
          static_cast<int>(inner)};
}

}  // namespace

std::optional<ProductUnit> unit_for(int major, int shared, bool for_90a) {
  if (major < 8) return std::nullopt;
  if (major == 9 && for_90a && shared >= kWarpgroupBytes + kOwnShared) return ProductUnit::Warpgroup;
  if (shared >= kWarpStages * kStageBytes) return ProductUnit::Warp;
  if (shared >= kFewWarpStages * kStageBytes) return ProductUnit::WarpInLittleMemory;
  return std::nullopt;
}

std::optional<ProductUnit> best_product_unit() {
#if defined(TRIFOLD_CUDA_EMULATION)
  return ProductUnit::Warpgroup;
#else
#if defined(TRIFOLD_COMPILED_FOR_90A)
  constexpr bool kFor90a = true;
#else
  constexpr bool kFor90a = false;
#endif
  int device = 0, major = 0, shared = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return unit_for(major, shared, kFor90a);
#endif
}

template <class T>
bool grouped_product(CudaStream stream, ProductUnit unit, T* y, const T* x, const T* w, const int32_t* first,
                     int64_t rows, int64_t experts, int64_t n, int64_t k, bool transposed) {
  if (!has(unit) || !packs<T>(n, y, x, w) || !packs<T>(k, x)) return false;
  const Operands<T, T> operands{y, x, w, first, sizes_of(experts, 0, n, k), false};
  // Each expert with rows may have one tile that is not full.
  const int64_t tiles = (rows / kTileRows + std::min(experts, rows)) * parts(n, kTileColumns);
  const bool by_warpgroups = unit == ProductUnit::Warpgroup && rows > 0;
  if (transposed) {
    if (!by_warpgroups || !warpgroup_product<T, true>(stream, operands, rows, tiles))
      launch_warps<T, T, false, true>(stream, unit, operands, tiles);
  } else if (!by_warpgroups || !warpgroup_product<T, false>(stream, operands, rows, tiles)) {
    launch_warps<T, T, false, false>(stream, unit, operands, tiles);
  }
  return true;
}

template <class T>
bool grouped_product_weight(CudaStream stream, ProductUnit unit, float* dw, const T* dy, const T* x,
                            const int32_t* first, int64_t rows, int64_t experts, int64_t m, int64_t n,
                            bool accumulate) {
  if (!has(unit) || !packs<T>(m, dy, x, dw) || !packs<T>(n, x)) return false;
  const Operands<T, float> operands{dw, dy, x, first, sizes_of(experts, m, n, 0), accumulate};
  const int64_t tiles = experts * parts(m, kTileRows) * parts(n, kTileColumns);
  if (unit != ProductUnit::Warpgroup || rows == 0 ||
      !warpgroup_product_weight<T>(stream, operands, rows, tiles))
    launch_warps<T, float, true, false>(stream, unit, operands, tiles);
  return true;
}

#define INSTANTIATE(T)                                                                                       \
  template bool grouped_product<T>(CudaStream, ProductUnit, T*, const T*, const T*, const int32_t*, int64_t, \
                                   int64_t, int64_t, int64_t, bool);                                         \
  template bool grouped_product_weight<T>(CudaStream, ProductUnit, float*, const T*, const T*,               \
                                          const int32_t*, int64_t, int64_t, int64_t, int64_t, bool);
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
