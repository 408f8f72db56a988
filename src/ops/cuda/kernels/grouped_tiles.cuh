// Grouped matrix products in 16-bit types (rows of experts with the experts' matrices): the assignment of results to
// blocks, and the copies of operands to shared memory.
//
//   tile   128 x 256 results. The tiles of all experts are numbered consecutively; block b computes tiles b,
//          b + gridDim.x, ...
//   piece  64 consecutive values of the summed index of one operand. A tile is computed piece by piece.
//   stage  a buffer in shared memory for a piece of both operands. There are several, so that copies run ahead of the
//          products, also from tile to tile.
//   slab   64 x 64 elements of a piece in shared memory. Its rows are rows of the matrix in global memory, 128 bytes
//          each. The eight 16-byte chunks of a row are permuted: chunk c of row r is at chunk c ^ (r % 8), so that
//          eight rows lie in different banks.
//
// A result is summed over the index in ascending order, 16 at a time, so its bits do not depend on other rows or on the
// number of blocks.
#pragma once

#include "ops/cuda/kernels/tensor_core.cuh"

namespace trifold::cuda {

constexpr int kThreads = 256;
constexpr int kSlab = 64;        // rows and columns
constexpr int kWarpsDown = 2;    // slabs of the left operand = warps that share a slab of the right operand
constexpr int kWarpsAcross = 4;  // slabs of the right operand = warps that share a slab of the left operand
constexpr int kTileRows = kWarpsDown * kSlab;
constexpr int kTileColumns = kWarpsAcross * kSlab;
constexpr int kRowBytes = kSlab * 2;
constexpr int kSlabBytes = kSlab * kRowBytes;
constexpr int kStageBytes = (kWarpsDown + kWarpsAcross) * kSlabBytes;
constexpr int kSteps = kSlab / 16;
// Tiles are numbered down a column of kTogether tiles, then down the next column to the right, so that consecutive
// tiles share operands in the cache.
constexpr int kTogether = 16;

// result(i, j) = the sum over s of left(i, s) right(j, s). An operand is Along if its rows in memory run along s, that
// is, if s is the column; otherwise s is the row.
struct Sizes {
  int experts;
  int rows;     // rows of an expert's gradient; only if the sum is over the expert's rows
  int columns;  // columns of the results
  int inner;    // extent of the sum, unless it is over the expert's rows
};

// Iterates over the tiles that a block computes. With OverRows the results are the experts' gradients, [rows, columns]
// each, and sums are over the rows of an expert; otherwise the results are the rows of the experts.
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
  // The tile's first row and column; end() is the end of the rows. With OverRows they are relative to the
  // expert's gradient, otherwise to all results.
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
  // The range of the summed index, and its number of pieces.
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
  int at_ = 0;  // index among the tiles of the expert
  int expert_ = 0;
  int begin_ = 0, end_ = 0;  // rows of the expert
};

// Copies one operand to shared memory, piece by piece. A thread copies chunk threadIdx.x % 8 of every 32nd row of each
// slab. If Along, the slabs of a piece are consecutive rows of the matrix, otherwise consecutive columns.
template <class T, int Slabs, bool Along>
class Source {
 public:
  // Starts at (row, column) of a matrix whose rows are `width` elements apart. Elements from row `rows` or column
  // `columns` on are read as zeros.
  __device__ void set(const T* matrix, int64_t width, int row, int rows, int column, int columns) {
    const int r = row + static_cast<int>(threadIdx.x) / 8;
    const int c = column + static_cast<int>(threadIdx.x) % 8 * 8;
    at_ = matrix + r * width + c;
    rows_ = rows - r;
    columns_ = columns - c;
  }
  // Starts the copies of a piece and moves to the next. `to` is the thread's chunk in the first slab.
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
  int rows_, columns_;  // rows and columns left from at_ on
};

template <class T, class Out>
struct Operands {
  Out* out;
  const T* left;
  const T* right;
  const int32_t* first;
  Sizes sizes;
  bool accumulate;  // whether gradients are added to `out`
};

// Copies the pieces of all tiles of a block, one after another.
template <class T, class Out, bool OverRows, bool RightAlong>
class Loader {
 public:
  __device__ explicit Loader(const Operands<T, Out>& operands)
      : operands_(operands), tiles_(operands.sizes, operands.first), to_(place_of_thread()) {
    if (!tiles_.done()) begin();
  }
  // Starts the copies of the next piece to the buffer at `stage`, as one group; the group is empty after the last
  // piece.
  __device__ void load(SharedAddress stage) {
    if (!tiles_.done()) {
      left_.copy(stage + to_, OverRows ? operands_.sizes.rows : operands_.sizes.inner);
      right_.copy(stage + kWarpsDown * kSlabBytes + to_,
                  RightAlong ? operands_.sizes.inner : operands_.sizes.columns);
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
    const Sizes& sizes = operands_.sizes;
    const int from = tiles_.from(), to = tiles_.to();
    const auto [row, column] = tiles_.corner();
    if constexpr (OverRows) {
      left_.set(operands_.left, sizes.rows, from, to, row, sizes.rows);
      right_.set(operands_.right, sizes.columns, from, to, column, sizes.columns);
    } else {
      const T* matrix = operands_.right + int64_t{tiles_.expert()} * sizes.inner * sizes.columns;
      left_.set(operands_.left, sizes.inner, row, tiles_.end(), from, to);
      if constexpr (RightAlong)
        right_.set(matrix, sizes.inner, column, sizes.columns, from, to);
      else
        right_.set(matrix, sizes.columns, from, to, column, sizes.columns);
    }
  }

  const Operands<T, Out>& operands_;
  Tiles<OverRows> tiles_;
  Source<T, kWarpsDown, !OverRows> left_;
  Source<T, kWarpsAcross, RightAlong> right_;
  int to_;
  int pieces_ = 0;  // pieces of the tile that are still to be copied
};

}  // namespace trifold::cuda
