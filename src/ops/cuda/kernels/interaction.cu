// Pairwise dot products of the vectors of a sample, and their backward. A block processes one sample: its
// vectors are loaded into shared memory one strip of columns at a time, and threads keep tiles of products in
// registers. Samples of more than kMostVectors vectors use the plain kernels at the end.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kMostVectors = 48;
constexpr int kStrip = 64;                // columns in shared memory
constexpr int kStripStride = kStrip + 4;  // adjacent rows begin in different banks
constexpr int kTile = 4;                  // products of 4 vectors with 4 vectors
constexpr int kSlices = 4;  // adjacent lanes share a tile, each every fourth group of four columns

template <class W>
struct Vectors {
  alignas(16) W at[kMostVectors][kStripStride];

  // Columns [first, first + kStrip) of the sample's vectors; zeros where there are none.
  __device__ inline void load(const W* sample, int vectors, int64_t width, int64_t first, bool aligned) {
    constexpr int kPer = kPerPack<W>;
    constexpr int kRowPacks = kStrip / kPer;
    const int padded = (vectors + kTile - 1) / kTile * kTile;
    for (int p = static_cast<int>(threadIdx.x); p < padded * kRowPacks; p += kThreads) {
      const int v = p / kRowPacks;
      const int c = p % kRowPacks * kPer;
      FullPack<W> pack{};
      if (v < vectors) pack.load(sample + v * width + first + c, count_at(first + c, width, kPer), aligned);
      pack.store(&at[v][c], kPer, true);
    }
  }
};

__device__ inline int64_t pair_place(int i, int j, bool self) {
  return static_cast<int64_t>(i) * (self ? i + 1 : i - 1) / 2 + j;
}

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
__global__ void __launch_bounds__(kThreads) interaction_kernel(W* y, const W* x, int vectors, int64_t width,
                                                               int64_t out_width, bool self, bool aligned) {
  __shared__ Vectors<W> strip;
  const W* sample = x + blockIdx.x * (vectors * width);
  W* out = y + blockIdx.x * out_width;
  for (int64_t c = threadIdx.x; c < width; c += kThreads) out[c] = sample[c];
  const int across = (vectors + kTile - 1) / kTile;
  const int tiles = across * (across + 1) / 2;
  const int slice = static_cast<int>(threadIdx.x) % kSlices;
  const int strips = static_cast<int>((width + kStrip - 1) / kStrip);
  for (int round = 0; round * (kThreads / kSlices) < tiles; ++round) {
    const int t = round * (kThreads / kSlices) + static_cast<int>(threadIdx.x) / kSlices;
    int row = 0;
    int column = 0;
    tile_of(t < tiles ? t : 0, row, column);
    W sum[kTile][kTile] = {};
    for (int s = 0; s < strips; ++s) {
      __syncthreads();  // all reads of the previous strip are done
      strip.load(sample, vectors, width, static_cast<int64_t>(s) * kStrip, aligned);
      __syncthreads();
      for (int c = slice * 4; c < kStrip; c += kSlices * 4) {
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

// dV = (S + S^T) V for the lower triangle S of dZ, plus the first vector's own gradient.
template <class W>
__global__ void __launch_bounds__(kThreads)
    interaction_backward_kernel(W* dx, const W* dy, const W* x, int vectors, int64_t width, int64_t out_width,
                                bool self, bool aligned) {
  constexpr int kAcross = kStrip / 4;          // threads across, four columns each
  constexpr int kDown = kThreads / kAcross;    // rows in parallel
  constexpr int kRows = kMostVectors / kDown;  // per thread
  __shared__ Vectors<W> strip;
  __shared__ W both[kMostVectors][kMostVectors + 1];  // S + S^T
  const W* sample = x + blockIdx.x * (vectors * width);
  const W* grad = dy + blockIdx.x * out_width;
  W* out = dx + blockIdx.x * (vectors * width);
  for (int p = static_cast<int>(threadIdx.x); p < vectors * vectors; p += kThreads) {
    const int i = p / vectors;
    const int j = p % vectors;
    if (i == j)
      both[i][i] = self ? 2 * grad[width + pair_place(i, i, self)] : W(0);
    else
      both[i][j] = grad[width + pair_place(i > j ? i : j, i > j ? j : i, self)];
  }
  const int four = static_cast<int>(threadIdx.x) % kAcross * 4;
  const int down = static_cast<int>(threadIdx.x) / kAcross;
  for (int64_t first = 0; first < width; first += kStrip) {
    __syncthreads();
    strip.load(sample, vectors, width, first, aligned);
    __syncthreads();
    W sum[kRows][4] = {};
    for (int j = 0; j < vectors; ++j) {
      Numbers<W, 4> v;
      v.load(&strip.at[j][four], 4, true);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int i = down + r * kDown;
        const W factor = i < vectors ? both[i][j] : W(0);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[r][k] += factor * v.at[k];
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = down + r * kDown;
      if (i >= vectors) continue;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int64_t c = first + four + k;
        if (c < width) out[i * width + c] = i == 0 ? sum[r][k] + grad[c] : sum[r][k];
      }
    }
  }
}

// One thread for each number of y, or of dx.
template <class W>
__global__ void __launch_bounds__(kThreads)
    plain_interaction(W* y, const W* x, int vectors, int64_t width, int64_t out_width, bool self) {
  const W* sample = x + blockIdx.x * (vectors * width);
  W* out = y + blockIdx.x * out_width;
  for (int64_t c = threadIdx.x; c < out_width; c += kThreads) {
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

template <class W>
__global__ void __launch_bounds__(kThreads)
    plain_interaction_backward(W* dx, const W* dy, const W* x, int vectors, int64_t width, int64_t out_width,
                               bool self) {
  const W* sample = x + blockIdx.x * (vectors * width);
  const W* grad = dy + blockIdx.x * out_width;
  W* out = dx + blockIdx.x * (vectors * width);
  for (int64_t p = threadIdx.x; p < vectors * width; p += kThreads) {
    const auto i = static_cast<int>(p / width);
    const int64_t d = p % width;
    W sum = i == 0 ? grad[d] : W(0);
    for (int j = 0; j < vectors; ++j) {
      if (i == j && !self) continue;
      const W g = grad[width + pair_place(i > j ? i : j, i > j ? j : i, self)];
      sum += (i == j ? 2 * g : g) * sample[j * width + d];
    }
    out[p] = sum;
  }
}

int64_t output_width(int64_t vectors, int64_t width, bool self) {
  return width + (self ? vectors * (vectors + 1) : vectors * (vectors - 1)) / 2;
}

}  // namespace

template <class W>
void dot_interaction(CudaStream stream, W* y, const W* x, int64_t rows, int64_t vectors, int64_t width,
                     bool self) {
  if (rows == 0) return;
  const int64_t out_width = output_width(vectors, width, self);
  const auto count = static_cast<int>(vectors);
  const dim3 grid(static_cast<unsigned>(rows));
  if (vectors <= kMostVectors)
    TRIFOLD_LAUNCH((interaction_kernel<W>), grid, dim3(kThreads), 0, stream, y, x, count, width, out_width,
                   self, packs<W>(width, x));
  else
    TRIFOLD_LAUNCH((plain_interaction<W>), grid, dim3(kThreads), 0, stream, y, x, count, width, out_width,
                   self);
}

template <class W>
void dot_interaction_backward(CudaStream stream, W* dx, const W* dy, const W* x, int64_t rows,
                              int64_t vectors, int64_t width, bool self) {
  if (rows == 0) return;
  const int64_t out_width = output_width(vectors, width, self);
  const auto count = static_cast<int>(vectors);
  const dim3 grid(static_cast<unsigned>(rows));
  if (vectors <= kMostVectors)
    TRIFOLD_LAUNCH((interaction_backward_kernel<W>), grid, dim3(kThreads), 0, stream, dx, dy, x, count, width,
                   out_width, self, packs<W>(width, x));
  else
    TRIFOLD_LAUNCH((plain_interaction_backward<W>), grid, dim3(kThreads), 0, stream, dx, dy, x, count, width,
                   out_width, self);
}

#define INSTANTIATE(W)                                                                                     \
  template void dot_interaction<W>(CudaStream, W*, const W*, int64_t, int64_t, int64_t, bool);             \
  template void dot_interaction_backward<W>(CudaStream, W*, const W*, const W*, int64_t, int64_t, int64_t, \
                                            bool);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace trifold::cuda
