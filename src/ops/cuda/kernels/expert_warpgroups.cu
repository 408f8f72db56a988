// Products of the rows of experts with the experts' matrices by warpgroups (grouped_tiles.cuh has the words).
//
// A block has a warp that copies and two warpgroups that multiply. The first lane of the copying warp goes through the
// pieces of all of the block's tiles: it waits until a stage is `free` and starts six boxes, which make the stage `full`.
// Each warpgroup holds 64 x 256 sums in registers. It waits for a full stage, begins its products, and frees the stage of
// the piece before, whose products have ended by then. So copies run ahead of products by three stages, over the ends of
// tiles too, and the warpgroups wait for each other only through stages.
//
// Gradients leave through shared memory, in strips of 32 columns for each warpgroup, as boxes that the hardware adds to
// global memory: no thread waits for the gradients that they are added to. Every number belongs to one tile, so it is
// added to once and its bits repeat.
//
// Rows of an expert are a range of the rows of a tensor, so the box at the range's end holds rows of the next expert.
// Where they are summed over, they are cleared before they are multiplied; otherwise they only make results that are not
// stored.
#include <algorithm>

#include "ops/cuda/kernels/expert_warpgroups.cuh"
#include "ops/cuda/kernels/grouped_store.cuh"
#include "ops/cuda/kernels/tensor_copies.cuh"

namespace trifold::cuda {

namespace {

constexpr int kGroupThreads = 4 * kWarp;
constexpr int kMultiplying = kWarpsDown * kGroupThreads;
constexpr int kBlockThreads = kMultiplying + kWarp;

template <class T, class Out>
struct BoxedOperands {
  TensorMap left, right;
  TensorMap gradients;  // only where gradients are the results
  Operands<T, Out> operands;
};

#if defined(TRIFOLD_HAS_WARPGROUPS)

constexpr int kCopyingWarp = kMultiplying / kWarp;
constexpr int kStripColumns = kLineBytes / static_cast<int>(sizeof(float));
constexpr int kStrips = kTileColumns / kStripColumns;

// Numbers of await_threads: of all threads that multiply; of a warpgroup, its index more than this.
constexpr int kAllGroups = 1;
constexpr int kOneGroup = 2;

// The position in the ring of stages: copies and products advance through it in the same way.
struct Turn {
  int stage = 0;
  uint32_t parity = 0;  // parity of the number of earlier rounds
  __device__ void next() {
    if (++stage < kWarpgroupStages) return;
    stage = 0;
    parity ^= 1;
  }
};

struct Stages {
  SharedAddress memory;
  uint64_t* full;  // a barrier for each stage: one arrival, and the bytes of its boxes
  uint64_t* free;  // one arrival of each warp that multiplies
  __device__ SharedAddress at(const Turn& turn) const { return memory + turn.stage * kStageBytes; }
};

// The work of the thread that copies.
template <bool OverRows, bool RightAlong, class T, class Out>
__device__ inline void copy_pieces(const BoxedOperands<T, Out>& boxed, const Stages& stages) {
  Turn turn;
  for (Tiles<OverRows> tiles(boxed.operands.sizes, boxed.operands.first); !tiles.done(); tiles.next()) {
    const auto [row, column] = tiles.corner();
    const int expert = OverRows ? 0 : tiles.expert();
    int inner = tiles.from();
#pragma unroll 1
    for (int piece = tiles.pieces(); piece > 0; --piece) {
      await_phase(stages.free + turn.stage, turn.parity ^ 1);  // at once in the first round
      uint64_t* const full = stages.full + turn.stage;
      arrive_expecting(full, kStageBytes);
      SharedAddress to = stages.at(turn);
#pragma unroll
      for (int slab = 0; slab < kWarpsDown; ++slab, to += kSlabBytes) {
        const int other = row + slab * kSlab;
        copy_box(to, boxed.left, OverRows ? BoxPlace{other, inner, 0} : BoxPlace{inner, other, 0}, full);
      }
#pragma unroll
      for (int slab = 0; slab < kWarpsAcross; ++slab, to += kSlabBytes) {
        const int other = column + slab * kSlab;
        copy_box(to, boxed.right,
                 RightAlong ? BoxPlace{inner, other, expert} : BoxPlace{other, inner, expert}, full);
      }
      inner += kSlab;
      turn.next();
    }
  }
}

// Clears the rows of a stage's slabs from `first` on. All threads that multiply call it.
__device__ inline void clear_rows_from(SharedAddress stage, int first) {
  constexpr int kChunks = kRowBytes / 16;
  const int chunks = (kSlab - first) * kChunks;  // chunks to clear in a slab
#pragma unroll 1
  for (int slab = 0; slab < kWarpsDown + kWarpsAcross; ++slab)
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kMultiplying)
      store_shared(stage + slab * kSlabBytes + first * kRowBytes + i * 16, uint4{0, 0, 0, 0});
  publish_copies();
  await_threads<kMultiplying>(kAllGroups);
}

// Adds the products of a tile's pieces to `sums`.
template <class T, bool OverRows, bool RightAlong>
__device__ inline void multiply_pieces(WarpgroupSums& sums, const Tiles<OverRows>& tiles,
                                       const Stages& stages, Turn& turn, int group) {
  // Bytes from one step of 16 of the summed index to the next.
  constexpr int kLeftStep = OverRows ? 16 * kRowBytes : 32;
  constexpr int kRightStep = RightAlong ? 32 : 16 * kRowBytes;
  const auto release = [&](int stage) {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) arrive(stages.free + stage);
  };
  int last = -1;  // stage of the piece before
#pragma unroll 1
  for (int left = tiles.to() - tiles.from(); left > 0; left -= kSlab) {
    const SharedAddress stage = stages.at(turn);
    await_phase(stages.full + turn.stage, turn.parity);
    if (OverRows && left < kSlab) clear_rows_from(stage, left);
    __syncwarp();  // products need the whole warp, whose first lane may have taken a branch of its own
    begin_products();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      begin_product<T, !OverRows, RightAlong>(
          sums, {stage + group * kSlabBytes + step * kLeftStep, kSlabBytes},
          {stage + kWarpsDown * kSlabBytes + step * kRightStep, kSlabBytes});
    commit_products();
    await_products<1>();
    if (last >= 0) release(last);
    last = turn.stage;
    turn.next();
  }
  await_products<0>();
  if (last >= 0) release(last);
}

// Writes a strip's sums of this thread to a buffer, in rows of 128 bytes with permuted chunks. Lanes of odd rows begin
// with the second of two pairs of columns, so that the lanes of a store are in different banks.
__device__ inline void write_strip(SharedAddress buffer, const float (&sums)[8][4], int first) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int odd = lane / 4 % 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + half * 8 + lane / 4;
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int turn = 0; turn < 2; ++turn) {
        const float(&one)[4] = sums[first + j + turn * 2];
        const float(&other)[4] = sums[first + j + (turn ^ 1) * 2];
        const int eight = j + (turn ^ odd) * 2;  // index of eight columns in the strip
        const int chunk = eight * 2 + lane % 4 / 2;
        store_shared(buffer + row * kLineBytes + (chunk ^ row % 8) * 16 + lane % 2 * 8,
                     odd != 0 ? other[half * 2] : one[half * 2],
                     odd != 0 ? other[half * 2 + 1] : one[half * 2 + 1]);
      }
  }
}

// The buffers of a warpgroup for strips, which it uses in turn, over the ends of tiles too.
struct StripBuffers {
  SharedAddress memory;
  int next = 0;
  __device__ SharedAddress take() {
    const SharedAddress buffer = memory + next * kStripBytes;
    next = next + 1 == kStripBuffers ? 0 : next + 1;
    return buffer;
  }
};

// Writes a warpgroup's 64 x 256 gradients at `at`, or adds them.
__device__ inline void write_gradients(const TensorMap& to, const WarpgroupSums& sums, const BoxPlace& at,
                                       const Sizes& sizes, bool add, StripBuffers& buffers, int group) {
  const bool writes = threadIdx.x % kGroupThreads == 0;
#pragma unroll
  for (int strip = 0; strip < kStrips; ++strip) {
    const BoxPlace place{at.column + strip * kStripColumns, at.row, at.matrix};
    if (place.column >= sizes.columns || place.row >= sizes.rows) continue;
    const SharedAddress buffer = buffers.take();
    if (writes) await_boxes_read<kStripBuffers - 1>();
    await_threads<kGroupThreads>(kOneGroup + group);
    write_strip(buffer, sums[strip / 2], strip % 2 * 4);
    publish_copies();
    await_threads<kGroupThreads>(kOneGroup + group);
    if (!writes) continue;
    if (add)
      write_box<true>(to, place, buffer);
    else
      write_box<false>(to, place, buffer);
    commit_boxes();
  }
}

// The work of the threads that multiply.
template <bool OverRows, bool RightAlong, class T, class Out>
__device__ inline void compute_tiles(const BoxedOperands<T, Out>& boxed, const Stages& stages) {
  const Operands<T, Out>& operands = boxed.operands;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  Turn turn;
  [[maybe_unused]] StripBuffers buffers{stages.memory + kWarpgroupStages * kStageBytes +
                                        group * kStripBuffers * kStripBytes};
  for (Tiles<OverRows> tiles(operands.sizes, operands.first); !tiles.done(); tiles.next()) {
    if (OverRows && operands.accumulate && tiles.pieces() == 0) continue;  // nothing to add
    WarpgroupSums sums = {};
    hold(sums);
    multiply_pieces<T, OverRows, RightAlong>(sums, tiles, stages, turn, group);
    hold(sums);
    const auto [row, column] = tiles.corner();
    if constexpr (OverRows)
      write_gradients(boxed.gradients, sums, {column, row + group * kSlab, tiles.expert()}, operands.sizes,
                      operands.accumulate, buffers, group);
    else
      store_rounded<false>(operands.out, sums, row + group * kSlab + warp * 16, tiles.end(), column,
                           operands.sizes.columns);
  }
  if constexpr (OverRows) await_boxes();
}

#endif

template <class T, class Out, bool OverRows, bool RightAlong>
__global__ void __launch_bounds__(kBlockThreads, 1)
    warpgroups_kernel(const __grid_constant__ BoxedOperands<T, Out> boxed) {
#if defined(TRIFOLD_HAS_WARPGROUPS)
  __shared__ uint64_t full[kWarpgroupStages];
  __shared__ uint64_t free[kWarpgroupStages];
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kWarpgroupStages; ++stage) {
      init_phases(full + stage, 1);
      init_phases(free + stage, kMultiplying / kWarp);
    }
    publish_phases();
  }
  __syncthreads();
  const Stages stages{dynamic_shared(), full, free};
  if (threadIdx.x < kMultiplying)
    compute_tiles<OverRows, RightAlong>(boxed, stages);
  else if (threadIdx.x == kCopyingWarp * kWarp)
    copy_pieces<OverRows, RightAlong>(boxed, stages);
#else
  static_cast<void>(boxed);
  __trap();  // rather than leave results uncomputed
#endif
}

template <bool OverRows, bool RightAlong, class T, class Out>
void launch(CudaStream stream, const BoxedOperands<T, Out>& boxed, int64_t most_tiles) {
  if (most_tiles == 0) return;
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(multiprocessors(), most_tiles)));
  allow_dynamic_shared(warpgroups_kernel<T, Out, OverRows, RightAlong>, kWarpgroupBytes);
  TRIFOLD_LAUNCH((warpgroups_kernel<T, Out, OverRows, RightAlong>), grid, dim3(kBlockThreads),
                 kWarpgroupBytes, stream, boxed);
}

}  // namespace

template <class T, bool RightAlong>
bool warpgroup_product(CudaStream stream, const Operands<T, T>& operands, int64_t rows, int64_t most_tiles) {
  const Sizes& sizes = operands.sizes;
  BoxedOperands<T, T> boxed{{}, {}, {}, operands};
  const TensorExtents weights{RightAlong ? sizes.inner : sizes.columns,
                              RightAlong ? sizes.columns : sizes.inner, sizes.experts};
  if (make_tensor_map(boxed.left, operands.left, {sizes.inner, rows, 1}, kSlab) != 0 ||
      make_tensor_map(boxed.right, operands.right, weights, kSlab) != 0)
    return false;
  launch<false, RightAlong>(stream, boxed, most_tiles);
  return true;
}

template <class T>
bool warpgroup_product_weight(CudaStream stream, const Operands<T, float>& operands, int64_t rows,
                              int64_t most_tiles) {
  const Sizes& sizes = operands.sizes;
  BoxedOperands<T, float> boxed{{}, {}, {}, operands};
  if (make_tensor_map(boxed.left, operands.left, {sizes.rows, rows, 1}, kSlab) != 0 ||
      make_tensor_map(boxed.right, operands.right, {sizes.columns, rows, 1}, kSlab) != 0 ||
      make_tensor_map(boxed.gradients, operands.out, {sizes.columns, sizes.rows, sizes.experts}, kSlab) != 0)
    return false;
  launch<true, false>(stream, boxed, most_tiles);
  return true;
}

template <class T>
int tensor_map_error(const T* data, int64_t columns, int64_t rows, int64_t matrices) {
  TensorMap map;
  return make_tensor_map(map, data, {columns, rows, matrices}, kSlab);
}
template int tensor_map_error<Bfloat16>(const Bfloat16*, int64_t, int64_t, int64_t);
template int tensor_map_error<float>(const float*, int64_t, int64_t, int64_t);

#define INSTANTIATE(T)                                                                            \
  template bool warpgroup_product<T, true>(CudaStream, const Operands<T, T>&, int64_t, int64_t);  \
  template bool warpgroup_product<T, false>(CudaStream, const Operands<T, T>&, int64_t, int64_t); \
  template bool warpgroup_product_weight<T>(CudaStream, const Operands<T, float>&, int64_t, int64_t);
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
