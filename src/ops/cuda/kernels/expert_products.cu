// Products of the rows of experts with the experts' matrices on tensor cores, for numbers of 16 bits.
//
// A block computes tiles of 128 x 256 results, one after another: the tiles of all experts are counted through, and
// block b takes b, b + gridDim.x, and so on. Its eight warps each hold 64 x 64 results in registers. Of both operands,
// pieces of 64 of the summed index pass through kStages buffers in shared memory; the copies run ahead of the products
// without a break from tile to tile. A result is the sum over the index in ascending order, 16 at a time,
// whatever else is computed: no bit depends on the other rows or on the number of blocks.
//
// In shared memory an operand's piece is in slabs of 64 x 64 numbers. A slab's rows are rows of the matrix in global
// memory, 128 bytes each, whose eight chunks of 16 bytes are permuted: chunk c of row r is in place c ^ (r % 8), so that
// the eight rows of a matrix that ldmatrix reads lie in different banks.
#include <algorithm>

#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"
#include "ops/cuda/kernels/tensor_core.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kSlab = 64;        // rows and columns
constexpr int kWarpsDown = 2;    // slabs of the left operand, and warps that share one of the right
constexpr int kWarpsAcross = 4;  // the reverse
constexpr int kTileRows = kWarpsDown * kSlab;
constexpr int kTileColumns = kWarpsAcross * kSlab;
constexpr int kRowBytes = kSlab * 2;
constexpr int kSlabBytes = kSlab * kRowBytes;
constexpr int kStageBytes = (kWarpsDown + kWarpsAcross) * kSlabBytes;
constexpr int kStages = 3;  // as many as fit into an A100's shared memory
constexpr int kSteps = kSlab / 16;
constexpr int kTogether =
    16;  // tiles below each other that are computed before their neighbours to the right

// result(i, j) = the sum over s of left(i, s) right(j, s). The summed index counts columns of an operand in memory if
// it is Along the rows, else rows.
struct Sizes {
  int experts;
  int rows;     // of an expert's results, if the sum is over the expert's rows
  int columns;  // of the results
  int inner;    // summed, unless the sum is over the expert's rows
};

// The tiles of results of a block. If OverRows, results are the experts' gradients, [rows, columns] each, and the sum is
// over the rows of the expert; otherwise results are the rows of the experts.
template <bool OverRows>
class Tiles {
 public:
  __device__ Tiles(const Sizes& sizes, const int32_t* first) : sizes_(sizes), first_(first) {
    enter(0);
    move(static_cast<int>(blockIdx.x));
  }

  __device__ bool done() const { return expert_ == sizes_.experts; }
  __device__ void next() { move(static_cast<int>(gridDim.x)); }

  __device__ int expert() const { return expert_; }
  // The first row and column, of all results or of the expert's matrix; and the end of rows.
  struct Corner {
    int row, column;
  };
  __device__ Corner corner() const {
    const int across = tiles_across();
    const int group = at_ / (kTogether * across);
    const int in_group = at_ - group * kTogether * across;
    const int rest = tiles_down() - group * kTogether;
    const int height = rest < kTogether ? rest : kTogether;
    return {(group * kTogether + in_group % height) * kTileRows + (OverRows ? 0 : begin_),
            in_group / height * kTileColumns};
  }
  __device__ int end() const { return OverRows ? sizes_.rows : end_; }
  // Of the summed index.
  __device__ int from() const { return OverRows ? begin_ : 0; }
  __device__ int to() const { return OverRows ? end_ : sizes_.inner; }
  __device__ int pieces() const { return (to() - from() + kSlab - 1) / kSlab; }

 private:
  __device__ int tiles_across() const { return (sizes_.columns + kTileColumns - 1) / kTileColumns; }
  __device__ int tiles_down() const {
    return ((OverRows ? sizes_.rows : end_ - begin_) + kTileRows - 1) / kTileRows;
  }
  __device__ void enter(int expert) {
    expert_ = expert;
    if (done()) return;
    begin_ = first_[expert];
    end_ = first_[expert + 1];
  }
  __device__ void move(int tiles) {
    at_ += tiles;
    while (!done() && at_ >= tiles_down() * tiles_across()) {
      at_ -= tiles_down() * tiles_across();
      enter(expert_ + 1);
    }
  }

  const Sizes& sizes_;
  const int32_t* first_;
  int at_ = 0;  // among the tiles of the expert
  int expert_ = 0;
  int begin_ = 0, end_ = 0;  // rows of the expert
};

// One operand on its way to shared memory, as seen by a thread, which copies chunk threadIdx.x % 8 of every 32nd row of
// each slab. If Along, slabs lie below each other, otherwise beside each other.
template <class T, int Slabs, bool Along>
class Source {
 public:
  // Of a matrix with rows of `width` numbers: from this row and column on, without those from `rows` or `columns` on.
  __device__ void set(const T* matrix, int64_t width, int row, int rows, int column, int columns) {
    const int r = row + static_cast<int>(threadIdx.x) / 8;
    const int c = column + static_cast<int>(threadIdx.x) % 8 * 8;
    at_ = matrix + r * width + c;
    rows_ = rows - r;
    columns_ = columns - c;
  }
  // Starts the copies of a piece, to the thread's place in the first slab, and goes to the next.
  __device__ void copy(SharedAddress to, int64_t width) {
#pragma unroll
    for (int slab = 0; slab < Slabs; ++slab)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int down = half * kSlab / 2 + (Along ? slab * kSlab : 0);
        const int right = Along ? 0 : slab * kSlab;
        copy_async(to + slab * kSlabBytes + half * kSlabBytes / 2, at_ + down * width + right,
                   down < rows_ && right < columns_);
      }
    at_ += Along ? kSlab : kSlab * width;
    (Along ? columns_ : rows_) -= kSlab;
  }

 private:
  const T* at_;
  int rows_, columns_;  // that there are from here on
};

template <class T, class Out>
struct Operands {
  Out* out;
  const T* left;
  const T* right;
  const int32_t* first;
  Sizes sizes;
  bool accumulate;  // of gradients
};

// A lane's place in a slab, for load_matrices of 16 x 16 numbers. Those of 8 x 8 come in the order upper left, lower
// left, upper right, lower right as they lie in memory if `down`, else upper left, upper right, lower left, lower right.
__device__ inline int place_in_slab(bool down) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = down ? lane % 16 : lane % 8 + lane / 16 * 8;
  const int chunk = down ? lane / 16 : lane / 8 % 2;
  return row * kRowBytes + (chunk ^ row % 8) * 16;
}

// The fragments of a slab for one step of 16 of the summed index: four times 16 of the other index. `place` is the
// lane's in the slab; since its address is a multiple of 128 without it, chunks are counted on by exclusive or.
template <bool Along>
__device__ inline void load_fragments(uint32_t (&to)[4][4], SharedAddress place, int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int down = Along ? i : step;
    const int right = Along ? step : i;
    load_matrices<!Along>(to[i], (place ^ static_cast<SharedAddress>(right * 32)) + down * 16 * kRowBytes);
  }
}

template <class T>
__device__ inline uint32_t rounded(float low, float high) {
  T pair[2];
  put(pair[0], low);
  put(pair[1], high);
  return static_cast<uint32_t>(pair[0].bits) | static_cast<uint32_t>(pair[1].bits) << 16;
}

// Of four registers of each lane of a quad, lane t receives register t of every lane, in their order.
__device__ inline void exchange_in_quad(uint32_t (&x)[4]) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = (threadIdx.x & static_cast<unsigned>(bit)) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      uint32_t& low = x[i];
      uint32_t& high = x[i | bit];
      const uint32_t got = __shfl_xor_sync(kAllLanes, upper ? low : high, bit);
      low = upper ? got : low;
      high = upper ? high : got;
    }
  }
}

struct alignas(8) Pair {
  float low, high;
};

using Sums = float[4][8][4];  // of a warp's 64 x 64: 16 rows, 8 columns, as `multiply` distributes them

// y has rows of `columns` numbers, of which those before `end` are written.
template <class T>
__device__ inline void store(T* y, const Sums& sums, int row, int end, int column, int columns,
                             bool /*add*/) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int four = 0; four < 2; ++four) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float(&pair)[4] = sums[i][four * 4 + j];
          words[j] = rounded<T>(pair[half * 2], pair[half * 2 + 1]);
        }
        exchange_in_quad(words);  // eight neighbouring numbers
        const int r = row + i * 16 + half * 8 + lane / 4;
        const int c = column + (four * 4 + lane % 4) * 8;
        if (r < end && c < columns)
          *reinterpret_cast<uint4*>(y + static_cast<int64_t>(r) * columns + c) = {words[0], words[1],
                                                                                  words[2], words[3]};
      }
}
__device__ inline void store(float* y, const Sums& sums, int row, int end, int column, int columns,
                             bool add) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int c = column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int r = row + i * 16 + lane / 4;
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

// What a block copies: the pieces of all of its tiles, one after another.
template <class T, class Out, bool OverRows, bool RightAlong>
class Loader {
 public:
  __device__ explicit Loader(const Operands<T, Out>& of)
      : of_(of), tiles_(of.sizes, of.first), to_(place_of_thread()) {
    if (!tiles_.done()) begin();
  }
  // Starts the copies of the next piece to the buffer at `stage`, as one group; without a piece, an empty one.
  __device__ void load(SharedAddress stage) {
    if (!tiles_.done()) {
      left_.copy(stage + to_, OverRows ? of_.sizes.rows : of_.sizes.inner);
      right_.copy(stage + kWarpsDown * kSlabBytes + to_, RightAlong ? of_.sizes.inner : of_.sizes.columns);
      if (--pieces_ == 0) {
        tiles_.next();
        if (!tiles_.done()) begin();
      }
    }
    commit_copies();
  }

 private:
  __device__ static int place_of_thread() {
    const auto row = static_cast<int>(threadIdx.x) / 8, chunk = static_cast<int>(threadIdx.x) % 8;
    return row * kRowBytes + (chunk ^ row % 8) * 16;
  }
  __device__ void begin() {
    while (tiles_.pieces() == 0) {  // experts without rows have gradients of zero
      tiles_.next();
      if (tiles_.done()) return;
    }
    pieces_ = tiles_.pieces();
    const Sizes& sizes = of_.sizes;
    const int from = tiles_.from(), to = tiles_.to();
    const auto [row, column] = tiles_.corner();
    if constexpr (OverRows) {
      left_.set(of_.left, sizes.rows, from, to, row, sizes.rows);
      right_.set(of_.right, sizes.columns, from, to, column, sizes.columns);
    } else {
      const T* matrix = of_.right + int64_t{tiles_.expert()} * sizes.inner * sizes.columns;
      left_.set(of_.left, sizes.inner, row, tiles_.end(), from, to);
      if constexpr (RightAlong)
        right_.set(matrix, sizes.inner, column, sizes.columns, from, to);
      else
        right_.set(matrix, sizes.columns, from, to, column, sizes.columns);
    }
  }

  const Operands<T, Out>& of_;
  Tiles<OverRows> tiles_;
  Source<T, kWarpsDown, !OverRows> left_;
  Source<T, kWarpsAcross, RightAlong> right_;
  int to_;
  int pieces_ = 0;  // of the tile that are still to be copied
};

template <class T, class Out, bool OverRows, bool RightAlong>
__global__ void __launch_bounds__(kThreads, 1) grouped_product_kernel(const Operands<T, Out> of) {
  static_assert(kThreads == kWarpsDown * kWarpsAcross * kWarp);
  constexpr bool kLeftAlong = !OverRows;
  const SharedAddress shared = dynamic_shared();
  const SharedAddress shared_end = shared + kStages * kStageBytes;
  Loader<T, Out, OverRows, RightAlong> loader(of);
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) loader.load(shared + stage * kStageBytes);

  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int down = warp / kWarpsAcross, across = warp % kWarpsAcross;
  const SharedAddress left = down * kSlabBytes + place_in_slab(kLeftAlong);
  const SharedAddress right = (kWarpsDown + across) * kSlabBytes + place_in_slab(!RightAlong);
  SharedAddress now = shared;                                 // the buffer of the piece that is multiplied
  SharedAddress free = shared + (kStages - 1) * kStageBytes;  // whose piece has been used
  uint32_t a[2][4][4], b[2][4][4];
  await_copies<kStages - 2>();
  __syncthreads();
  load_fragments<kLeftAlong>(a[0], now + left, 0);
  load_fragments<RightAlong>(b[0], now + right, 0);
  for (Tiles<OverRows> tiles(of.sizes, of.first); !tiles.done(); tiles.next()) {
    Sums sums = {};
    for (int piece = tiles.pieces(); piece > 0; --piece) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        // The fragments of the next step are loaded while this step's are multiplied.
        if (step == kSteps - 1) {
          await_copies<kStages - 2>();
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
    Out* out = of.out + (OverRows ? int64_t{tiles.expert()} * of.sizes.rows * of.sizes.columns : 0);
    store(out, sums, row + down * kSlab, tiles.end(), column + across * kSlab, of.sizes.columns,
          of.accumulate);
  }
}

template <class T, class Out, bool OverRows, bool RightAlong>
void launch(CudaStream stream, const Operands<T, Out>& of, int64_t most_tiles) {
  if (most_tiles == 0) return;
  constexpr int kBytes = kStages * kStageBytes;
  allow_dynamic_shared(grouped_product_kernel<T, Out, OverRows, RightAlong>, kBytes);
  const int64_t blocks = std::min<int64_t>(multiprocessors(), most_tiles);
  TRIFOLD_LAUNCH((grouped_product_kernel<T, Out, OverRows, RightAlong>), dim3(static_cast<unsigned>(blocks)),
                 dim3(kThreads), kBytes, stream, of);
}

Sizes sizes_of(int64_t experts, int64_t rows, int64_t columns, int64_t inner) {
  return {static_cast<int>(experts), static_cast<int>(rows), static_cast<int>(columns),
          static_cast<int>(inner)};
}

}  // namespace

template <class T>
bool grouped_product(CudaStream stream, T* y, const T* x, const T* w, const int32_t* first, int64_t rows,
                     int64_t experts, int64_t n, int64_t k, bool transposed) {
  if (!packs<T>(n, y, x, w) || !packs<T>(k, x)) return false;
  const Operands<T, T> of{y, x, w, first, sizes_of(experts, 0, n, k), false};
  // Each expert with rows may have one tile that is not full.
  const int64_t tiles = (rows / kTileRows + std::min(experts, rows)) * parts(n, kTileColumns);
  if (transposed)
    launch<T, T, false, true>(stream, of, tiles);
  else
    launch<T, T, false, false>(stream, of, tiles);
  return true;
}

template <class T>
bool grouped_product_weight(CudaStream stream, float* dw, const T* dy, const T* x, const int32_t* first,
                            int64_t experts, int64_t m, int64_t n, bool accumulate) {
  if (!packs<T>(m, dy, x, dw) || !packs<T>(n, x)) return false;
  const Operands<T, float> of{dw, dy, x, first, sizes_of(experts, m, n, 0), accumulate};
  launch<T, float, true, false>(stream, of, experts * parts(m, kTileRows) * parts(n, kTileColumns));
  return true;
}

#define INSTANTIATE(T)                                                                                     \
  template bool grouped_product<T>(CudaStream, T*, const T*, const T*, const int32_t*, int64_t, int64_t,   \
                                   int64_t, int64_t, bool);                                                \
  template bool grouped_product_weight<T>(CudaStream, float*, const T*, const T*, const int32_t*, int64_t, \
                                          int64_t, int64_t, bool);
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
