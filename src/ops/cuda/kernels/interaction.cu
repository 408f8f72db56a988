// Pairwise dot products of the vectors of a sample, and their backward.
//
// Forward, a block processes one sample: its vectors are copied to shared memory one strip of columns at a time, all
// copies in flight together, and threads keep tiles of products in registers: vectors in registers alone would be read
// again for each block of products and then exceed the caches. Samples of more than kMostVectors vectors use a plain
// kernel. Backward reads each vector once; the lanes of a warp keep gradients in registers.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/tensor_core.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 128;

HD constexpr int pair_place(int i, int j, bool self) { return i * (self ? i + 1 : i - 1) / 2 + j; }

struct Shape {
  int64_t rows, width, out_width;
  int vectors;
  bool aligned;  // vectors consist of whole, aligned packs
};

// ---- forward ----

constexpr int kMostVectors = 48;
template <class W>
constexpr int kStrip = sizeof(W) == sizeof(float) ? 128 : 64;  // columns in shared memory
template <class W>
constexpr int kStripStride = kStrip<W> + 4;  // adjacent rows begin in different banks
constexpr int kTile = 4;                     // products of 4 vectors with 4 vectors
constexpr int kSlices = 4;  // adjacent lanes share a tile, each every fourth group of four columns

template <class W>
struct Vectors {
  alignas(16) W at[kMostVectors][kStripStride<W>];

  // Copies columns [first, first + kStrip) of the sample's vectors, and zeros beyond their width.
  __device__ inline void load(const W* sample, int vectors, int64_t width, int64_t first, bool aligned) {
    constexpr int kPer = kPerPack<W>;
    constexpr int kRowPacks = kStrip<W> / kPer;
    const int padded = (vectors + kTile - 1) / kTile * kTile;
    for (int p = static_cast<int>(threadIdx.x); p < padded * kRowPacks; p += kThreads) {
      const int v = p / kRowPacks;
      const int c = p % kRowPacks * kPer;
      if (aligned) {  // then a pack is whole or not there
        copy_async(shared_address(&at[v][c]), sample + v * width + first + c,
                   v < vectors && first + c < width);
        continue;
      }
      FullPack<W> pack{};
      if (v < vectors) pack.load(sample + v * width + first + c, count_at(first + c, width, kPer), false);
      pack.store_shared(&at[v][c]);
    }
    commit_copies();
    await_copies<0>();
  }
};

// The tile with number t in the lower triangle, counted by rows.
__device__ inline void tile_of(int t, int& row, int& column) {
  row = 0;
  while (t > row) {
    t -= row + 1;
    ++row;
  }
  column = t;
}

template <class W>
__global__ void __launch_bounds__(kThreads) interaction_kernel(W* y, const W* x, Shape shape, bool self) {
  __shared__ Vectors<W> strip;
  const int vectors = shape.vectors;
  const int64_t width = shape.width;
  const W* sample = x + blockIdx.x * (vectors * width);
  W* out = y + blockIdx.x * shape.out_width;
  const int across = (vectors + kTile - 1) / kTile;
  const int tiles = across * (across + 1) / 2;
  const int slice = static_cast<int>(threadIdx.x) % kSlices;
  const int strips = static_cast<int>((width + kStrip<W> - 1) / kStrip<W>);
  for (int round = 0; round * (kThreads / kSlices) < tiles; ++round) {
    const int t = round * (kThreads / kSlices) + static_cast<int>(threadIdx.x) / kSlices;
    int row = 0;
    int column = 0;
    tile_of(t < tiles ? t : 0, row, column);
    W sum[kTile][kTile] = {};
    for (int s = 0; s < strips; ++s) {
      if (round + s > 0) __syncthreads();  // all reads of the previous strip are done
      strip.load(sample, vectors, width, static_cast<int64_t>(s) * kStrip<W>, shape.aligned);
      __syncthreads();
      if (round == 0) {  // the first vector is a part of the results
        const int64_t first = static_cast<int64_t>(s) * kStrip<W>;
        for (int64_t c = threadIdx.x; c < kStrip<W> && first + c < width; c += kThreads)
          out[first + c] = strip.at[0][c];
      }
      for (int c = slice * 4; c < kStrip<W>; c += kSlices * 4) {
        Numbers<W, 4> left[kTile];
        Numbers<W, 4> right[kTile];
#pragma unroll
        for (int i = 0; i < kTile; ++i) {
          left[i].load(&strip.at[row * kTile + i][c], 4, true);
          right[i].load(&strip.at[column * kTile + i][c], 4, true);
        }
#pragma unroll
        for (int i = 0; i < kTile; ++i)
#pragma unroll
          for (int j = 0; j < kTile; ++j)
#pragma unroll
            for (int k = 0; k < 4; ++k) sum[i][j] += left[i].at[k] * right[j].at[k];
      }
    }
#pragma unroll
    for (int i = 0; i < kTile; ++i)
#pragma unroll
      for (int j = 0; j < kTile; ++j) {
        const W total = combine_lanes(sum[i][j], Plus{}, kSlices);
        const int a = row * kTile + i;
        const int b = column * kTile + j;
        // Each of the lanes that share the tile writes one of its rows.
        if (t < tiles && i == slice && a < vectors && (b < a || (self && b == a)))
          out[width + pair_place(a, b, self)] = total;
      }
  }
}

// One thread for each element of y.
template <class W>
__global__ void __launch_bounds__(kThreads) plain_interaction(W* y, const W* x, Shape shape, bool self) {
  const int vectors = shape.vectors;
  const int64_t width = shape.width;
  const W* sample = x + blockIdx.x * (vectors * width);
  W* out = y + blockIdx.x * shape.out_width;
  for (int64_t c = threadIdx.x; c < shape.out_width; c += kThreads) {
    if (c < width) {
      out[c] = sample[c];
      continue;
    }
    int64_t left = c - width;
    int64_t i = self ? 0 : 1;
    for (; left >= (self ? i + 1 : i); ++i) left -= self ? i + 1 : i;
    W sum = 0;
    for (int64_t d = 0; d < width; ++d) sum += sample[i * width + d] * sample[left * width + d];
    out[c] = sum;
  }
}

// ---- backward ----

// Prefetches vectors [first, last) of a sample, which its lanes load later. The vectors of all samples that a GPU
// processes at a time would not fit its cache, so a sample's are not prefetched all at once.
template <class W>
__device__ inline void prefetch_vectors(const W* sample, int first, int last, const Shape& shape,
                                        unsigned lane, unsigned lanes) {
  const int64_t end = (last < shape.vectors ? last : shape.vectors) * shape.width;
  constexpr int kLine = kLineBytes / static_cast<int>(sizeof(W));
#pragma unroll 1
  for (int64_t at = first * shape.width + lane * kLine; at < end; at += lanes * kLine)
    prefetch_line(sample + at);
}

// dV = (S + S^T) V for the lower triangle S of dZ, plus the first vector's own gradient. A lane keeps its columns of
// the gradients of kRows vectors in registers, and takes each vector from memory once for all of them.
constexpr int kRows = 28;
constexpr int kFar = 8;  // vectors prefetched ahead

// A square of S + S^T, whose elements a sample's lanes all read at once; samples begin in different banks.
template <class W>
struct alignas(16) Square {
  W at[kRows][kRows];
  W apart[kPerPack<W>];

  // Columns are the vectors from `row` on, whose gradients are computed, rows those from `column` on.
  __device__ inline void load(const W* grad, int row, int column, int vectors, bool self) {
    for (int i = static_cast<int>(threadIdx.x); i < kRows; i += static_cast<int>(blockDim.x)) {
      const int a = row + i;
#pragma unroll 7
      for (int j = 0; j < kRows; ++j) {
        const int b = column + j;
        W g = 0;
        if (a < vectors && b < vectors && (self || a != b))
          g = grad[pair_place(a > b ? a : b, a > b ? b : a, self)];
        at[j][i] = a == b ? 2 * g : g;
      }
    }
  }
};

// sums[i] += square[j][i] * vector j, for the `count` vectors at `from`; the first is already loaded, and the next is
// in flight during each addition. Whole: all columns exist, and packs are aligned.
template <bool Whole, class W>
__device__ inline void add_products(FullPack<W> (&sums)[kRows], FullPack<W> ahead, const Square<W>& square,
                                    const W* from, int count, int64_t width, int columns) {
  constexpr int kPer = kPerPack<W>;
#pragma unroll 1
  for (int j = 0; j < count; ++j) {
    const FullPack<W> vector = ahead;
    if (j + kFar < count) prefetch_line(from + (j + kFar) * width);
    if (j + 1 < count) ahead.template load<Whole>(from + (j + 1) * width, columns);
#pragma unroll
    for (int i = 0; i < kRows; i += kPer) {
      FullPack<W> factors;
      factors.load(&square.at[j][i]);
#pragma unroll
      for (int k = 0; k < kPer * kPer; ++k)
        sums[i + k / kPer].at[k % kPer] += factors.at[k / kPer] * vector.at[k % kPer];
    }
  }
}

// x of a block: the lanes of a sample; y: samples.
template <class W, int Samples, bool Whole>
__global__ void __launch_bounds__(kThreads, sizeof(W) == 4 ? 3 : 1)
    interaction_backward_kernel(W* dx, const W* dy, const W* x, Shape shape, bool self) {
  constexpr int kPer = kPerPack<W>;
  __shared__ Square<W> squares[Samples];
  Square<W>& square = squares[threadIdx.y];
  const int64_t sample = static_cast<int64_t>(blockIdx.x) * Samples + threadIdx.y;
  const bool here = sample < shape.rows;  // other lanes only wait
  const W* grad = dy + (here ? sample : 0) * shape.out_width;
  const W* in = x + (here ? sample : 0) * shape.vectors * shape.width;
  const int strip = static_cast<int>(blockDim.x) * kPer;
  prefetch_vectors(in, 0, kFar, shape, threadIdx.x, blockDim.x);
  for (int row = 0; row < shape.vectors; row += kRows) {
    for (int64_t first = 0; first < shape.width; first += strip) {
      const int64_t c = first + threadIdx.x * kPer;
      const int columns = count_at(c, shape.width, kPer);
      FullPack<W> sums[kRows] = {};
      for (int column = 0; column < shape.vectors; column += kRows) {
        const W* from = in + column * shape.width + (columns > 0 ? c : 0);
        const int count = shape.vectors - column < kRows ? shape.vectors - column : kRows;
        FullPack<W> ahead;
        ahead.template load<Whole>(from, columns);  // in flight while the square is written
        if (shape.vectors > kRows || first == 0) {
          __syncwarp();
          square.load(grad + shape.width, row, column, shape.vectors, self);
          __syncwarp();
        }
        add_products<Whole>(sums, ahead, square, from, count, shape.width, columns);
      }
      if (columns == 0 || !here) continue;
      W* out = dx + (in - x) + row * shape.width + c;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (row + i >= shape.vectors) break;
        if (i == 0 && row == 0) {
#pragma unroll
          for (int k = 0; k < kPer; ++k)
            if (Whole || k < columns) sums[i].at[k] += grad[c + k];
        }
        sums[i].template store<Whole>(out + i * shape.width, columns);
      }
    }
  }
}

// The lanes of a sample: enough for its columns, but at most `most`.
template <class W>
unsigned lanes_of(int64_t width, unsigned least, unsigned most) {
  unsigned lanes = least;
  while (lanes < most && static_cast<int64_t>(lanes) * kPerPack<W> < width) lanes *= 2;
  return lanes;
}

Shape shape_of(int64_t rows, int64_t vectors, int64_t width, bool self, bool aligned) {
  return {rows, width, width + pair_place(static_cast<int>(vectors), 0, self), static_cast<int>(vectors),
          aligned};
}

template <class W, int Samples>
void launch_backward(CudaStream stream, W* dx, const W* dy, const W* x, const Shape& shape, bool self) {
  const unsigned lanes = lanes_of<W>(shape.width, kWarp / Samples, kWarp);
  const auto kernel = shape.aligned ? interaction_backward_kernel<W, Samples, true>
                                    : interaction_backward_kernel<W, Samples, false>;
  TRIFOLD_LAUNCH(kernel, dim3(static_cast<unsigned>(parts(shape.rows, Samples))), dim3(lanes, Samples), 0,
                 stream, dx, dy, x, shape, self);
}

}  // namespace

template <class W>
void dot_interaction(CudaStream stream, W* y, const W* x, int64_t rows, int64_t vectors, int64_t width,
                     bool self) {
  if (rows == 0) return;
  const Shape shape = shape_of(rows, vectors, width, self, packs<W>(width, x));
  const auto kernel = vectors <= kMostVectors ? interaction_kernel<W> : plain_interaction<W>;
  TRIFOLD_LAUNCH(kernel, dim3(static_cast<unsigned>(rows)), dim3(kThreads), 0, stream, y, x, shape, self);
}

// Samples of few columns share a warp, as many as their squares leave room for.
template <class W>
void dot_interaction_backward(CudaStream stream, W* dx, const W* dy, const W* x, int64_t rows,
                              int64_t vectors, int64_t width, bool self) {
  if (rows == 0) return;
  const Shape shape = shape_of(rows, vectors, width, self, packs<W>(width, dx, x));
  if constexpr (sizeof(W) == sizeof(float)) {
    if (lanes_of<W>(width, 4, kWarp) < kWarp) {
      launch_backward<W, 8>(stream, dx, dy, x, shape, self);
      return;
    }
  }
  launch_backward<W, 4>(stream, dx, dy, x, shape, self);
}

#define INSTANTIATE(W)                                                                                     \
  template void dot_interaction<W>(CudaStream, W*, const W*, int64_t, int64_t, int64_t, bool);             \
  template void dot_interaction_backward<W>(CudaStream, W*, const W*, const W*, int64_t, int64_t, int64_t, \
                                            bool);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace trifold::cuda
