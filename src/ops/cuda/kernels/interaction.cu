// Pairwise dot products of the vectors of a sample, and their backward. Some lanes of a warp process one sample: each
// has the same columns of every vector, so that vectors go from memory to registers in whole packs, and no thread waits
// for another warp.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 128;

HD constexpr int pair_place(int i, int j, bool self) { return i * (self ? i + 1 : i - 1) / 2 + j; }

struct Shape {
  int64_t rows, width, out_width;
  int vectors;
  bool aligned;  // vectors consist of whole, aligned packs
};

// Packs of `Count` consecutive vectors of a sample from vector `first` on, for `columns` columns at `from`; zeros in
// other columns, and the last vector for those that the sample does not have. Whole: all columns are there, and
// aligned. A sample's numbers are counted in 32 bits, for addresses in 64 would take longer than the products.
template <bool Whole, int Count, class W>
__device__ inline void load_vectors(FullPack<W> (&packs)[Count], const W* from, int first, int columns,
                                    const Shape& shape) {
  const auto width = static_cast<unsigned>(shape.width);
  const int last = shape.vectors - 1;
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    const auto vector = static_cast<unsigned>(first + i < last ? first + i : last);
    if constexpr (!Whole) packs[i] = FullPack<W>{};
    packs[i].template load<Whole>(from + vector * width, columns);
  }
}

// Asks for vectors [first, last) of a sample, which its lanes load later. Not for all vectors at once: those of all
// samples that a GPU works on would not fit its cache.
template <class W>
__device__ inline void prefetch_vectors(const W* sample, int first, int last, const Shape& shape,
                                        unsigned lane, unsigned lanes) {
  const int64_t end = (last < shape.vectors ? last : shape.vectors) * shape.width;
  constexpr int kLine = kLineBytes / static_cast<int>(sizeof(W));
#pragma unroll 1
  for (int64_t at = first * shape.width + lane * kLine; at < end; at += lanes * kLine)
    prefetch_line(sample + at);
}

// ---- forward ----

// Products are computed for blocks of kSide by kSide vectors, of which a lane holds its columns in registers. 27
// vectors, those of the public click data, are four blocks with one place to spare.
constexpr int kSide = 7;

// A block's products: of the vectors of one side with those of another, or among each other.
enum class Products { Others, Earlier, EarlierAndSelf };

HD constexpr int count_of(Products which) {
  if (which == Products::Others) return kSide * kSide;
  return pair_place(kSide, 0, which == Products::EarlierAndSelf);
}
// The vectors of product t: the one on the left, and the one on the right.
HD constexpr int left_of(int t, Products which) {
  if (which == Products::Others) return t / kSide;
  int row = 0;
  for (int r = 1; r < kSide; ++r) row += t >= pair_place(r, 0, which == Products::EarlierAndSelf) ? 1 : 0;
  return row;
}
HD constexpr int right_of(int t, Products which) {
  if (which == Products::Others) return t % kSide;
  return t - pair_place(left_of(t, which), 0, which == Products::EarlierAndSelf);
}

// Count sums over Lanes lanes, divided among these: half of the lanes get one half of the sums, of which half of them
// get one half, and so on. Where sums have no other half, both halves of the lanes have them.
HD constexpr int half_of(int count) { return (count + 1) / 2; }
HD constexpr int left_after(int lanes, int count) {
  return lanes == 1 ? count : left_after(lanes / 2, half_of(count));
}
template <int Lanes, int Count, class W>
__device__ inline void divide_sums(W* sums, unsigned lane) {
  if constexpr (Lanes > 1) {
    constexpr int kHalf = half_of(Count);
    const bool is_upper = (lane & (Lanes / 2)) != 0;
#pragma unroll
    for (int k = 0; k < kHalf; ++k) {
      const W lower = sums[k];
      const W upper = k + kHalf < Count ? sums[k + kHalf] : lower;
      sums[k] = (is_upper ? upper : lower) + __shfl_xor_sync(kAllLanes, is_upper ? lower : upper, Lanes / 2);
    }
    divide_sums<Lanes / 2, kHalf>(sums, lane);
  }
}
// Which of the Count sums is the k-th that this lane has in the end; -1 if it is a lower lane's as well.
template <int Lanes, int Count>
__device__ inline int sum_at(int k, unsigned lane) {
  if constexpr (Lanes == 1) {
    return k;
  } else {
    constexpr int kHalf = half_of(Count);
    const int at = sum_at<Lanes / 2, kHalf>(k, lane);
    if (at < 0 || (lane & (Lanes / 2)) == 0) return at;
    return at + kHalf < Count ? at + kHalf : -1;
  }
}

// The products of the vectors from `row` on, before `vectors`, with those from `column` on. A lane adds up those of its
// columns, and then the lanes add up theirs.
template <bool Whole, int Lanes, Products Which, bool Self, class W>
__device__ inline void multiply_block(W* products, const W* sample, int row, int column, const Shape& shape,
                                      unsigned lane, int vectors) {
  constexpr int kPer = kPerPack<W>;
  constexpr int kCount = count_of(Which);
  const auto width = static_cast<int>(shape.width);
  W sums[kCount] = {};
#pragma unroll 1
  for (int first = 0; first < width; first += Lanes * kPer) {
    const int c = first + static_cast<int>(lane) * kPer;
    const int columns = count_at(c, shape.width, kPer);
    FullPack<W> left[kSide];
    FullPack<W> right[kSide];
    load_vectors<Whole>(left, sample + c, row, columns, shape);
    if (Which == Products::Others) load_vectors<Whole>(right, sample + c, column, columns, shape);
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
      const FullPack<W>& a = left[left_of(t, Which)];
      const FullPack<W>& b = (Which == Products::Others ? right : left)[right_of(t, Which)];
#pragma unroll
      for (int i = 0; i < kPer; ++i) sums[t] += a.at[i] * b.at[i];
    }
  }
  divide_sums<Lanes, kCount>(sums, lane);
#pragma unroll
  for (int k = 0; k < left_after(Lanes, kCount); ++k) {
    const int t = sum_at<Lanes, kCount>(k, lane);
    const int i = row + left_of(t, Which);
    const int j = column + right_of(t, Which);
    if (t >= 0 && i < vectors) products[pair_place(i, j, Self)] = sums[k];
  }
}

template <class W, int Lanes, bool Self, bool Whole>
__global__ void __launch_bounds__(kThreads, 2) interaction_kernel(W* y, const W* x, Shape shape) {
  constexpr Products kAmong = Self ? Products::EarlierAndSelf : Products::Earlier;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const unsigned lane = threadIdx.x % Lanes;
  const bool here = thread / Lanes < shape.rows;
  const int64_t row = here ? thread / Lanes : shape.rows - 1;  // all lanes take part in exchanges
  const int vectors = here ? shape.vectors : 0;
  const W* sample = x + row * shape.vectors * shape.width;
  W* out = y + row * shape.out_width;
  for (int i = 0; i < shape.vectors; i += kSide) {
    prefetch_vectors(sample, i + kSide, i + 2 * kSide, shape, lane, Lanes);
    multiply_block<Whole, Lanes, kAmong, Self>(out + shape.width, sample, i, i, shape, lane, vectors);
    for (int j = 0; j < i; j += kSide)
      multiply_block<Whole, Lanes, Products::Others, Self>(out + shape.width, sample, i, j, shape, lane,
                                                           vectors);
  }
  if (here)
    for (int64_t c = lane; c < shape.width; c += Lanes) out[c] = sample[c];
}

// ---- backward ----

// dV = (S + S^T) V for the lower triangle S of dZ, plus the first vector's own gradient. A lane keeps its columns of
// the gradients of kRows vectors in registers, and takes each vector from memory once for all of them.
constexpr int kRows = 28;
constexpr int kFar = 8;  // vectors ahead that are asked for

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

// sums[i] += square[j][i] * vector j, for the `count` vectors at `from`, of which the first is loaded already. The
// next one is in flight meanwhile. Whole: all columns are there, and aligned.
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

// Forward, a quarter of a warp at most: the fewer lanes, the less there is to add up over them. f64 has no registers for the
// sums of fewer than 8.
template <class W>
unsigned forward_lanes(int64_t width) {
  return lanes_of<W>(width, sizeof(W) == 4 ? 4 : 8, 8);
}

template <class W, bool Self, bool Whole>
void launch_forward(CudaStream stream, W* y, const W* x, const Shape& shape) {
  const unsigned lanes = forward_lanes<W>(shape.width);
  auto kernel = interaction_kernel<W, 8, Self, Whole>;
  if constexpr (sizeof(W) == 4) kernel = lanes == 4 ? interaction_kernel<W, 4, Self, Whole> : kernel;
  const int64_t blocks = parts(shape.rows, static_cast<int64_t>(kThreads / lanes));
  TRIFOLD_LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, stream, y, x, shape);
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
  const bool whole = shape.aligned && width % (forward_lanes<W>(width) * kPerPack<W>) == 0;
  const auto launch = self ? (whole ? launch_forward<W, true, true> : launch_forward<W, true, false>)
                           : (whole ? launch_forward<W, false, true> : launch_forward<W, false, false>);
  launch(stream, y, x, shape);
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
