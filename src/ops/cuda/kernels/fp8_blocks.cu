// Factors of FP8 products with scales of blocks (ops/narrow.h). A block of threads has 128 x 128 elements, so every scale
// is found where it is used, and each factor takes one pass.
#include "ops/cuda/kernels/narrow.cuh"

namespace trifold::cuda {

namespace {

struct Copied {
  __device__ void operator()(float& y, float x) const { y = x; }
};

// w [rows, columns] with a scale for 128 x 128 elements; Turned: codes are [columns, rows].
template <bool Turned>
__global__ void __launch_bounds__(kTileThreads, 3)
    narrow_weight_kernel(uint8_t* codes, float* scales, const Bfloat16* w, int64_t rows, int64_t columns,
                         int64_t stride, bool aligned) {
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTileSide;
  const int64_t column0 = static_cast<int64_t>(blockIdx.x) * kTileSide;
  FullPack<Bfloat16> xs[kTilePacks];
  int counts[kTilePacks];
#pragma unroll
  for (int k = 0; k < kTilePacks; ++k) {
    const int64_t row = row0 + tile_row(k), column = column0 + tile_column();
    counts[k] = row < rows && column < columns ? kTilePer : 0;
    xs[k].load(w + row * columns + column, counts[k], aligned);
  }
  float largest[1] = {0};
#pragma unroll
  for (int k = 0; k < kTilePacks; ++k)
#pragma unroll
    for (int i = 0; i < kTilePer; ++i)
      if (i < counts[k]) largest[0] = Larger{}(largest[0], magnitude(value(xs[k].at[i])));
  combine_row(largest, Larger{});
  const cpu::BlockScale scale = cpu::block_scale(largest[0]);
  if (threadIdx.x == 0)
    scales[Turned ? blockIdx.x * stride + blockIdx.y : blockIdx.y * stride + blockIdx.x] = scale.from;
  __shared__ uint8_t tile[Turned ? kTileSide : 1][kTileSide + 4];
#pragma unroll
  for (int k = 0; k < kTilePacks; ++k) {
    if (counts[k] == 0) continue;
    Numbers<uint8_t, kTilePer> ys;
#pragma unroll
    for (int i = 0; i < kTilePer; ++i) {
      ys.at[i] = narrowed<cpu::Fp8::E4M3>(value(xs[k].at[i]) * scale.to);
      if constexpr (Turned) tile[tile_row(k)][tile_column() + i] = ys.at[i];
    }
    if constexpr (!Turned) ys.store(codes + (row0 + tile_row(k)) * columns + column0 + tile_column());
  }
  if constexpr (Turned) {
    __syncthreads();
    for (int pack = static_cast<int>(threadIdx.x); pack < kTileSide * kTileSide / kTurnedCodes;
         pack += kTileThreads) {
      const int c = pack / (kTileSide / kTurnedCodes);
      const int r = pack % (kTileSide / kTurnedCodes) * kTurnedCodes;
      if (row0 + r >= rows || column0 + c >= columns) continue;
      Numbers<uint8_t, kTurnedCodes> ys;
#pragma unroll
      for (int i = 0; i < kTurnedCodes; ++i) ys.at[i] = tile[r + i][c];
      ys.store(codes + (column0 + c) * rows + row0 + r);
    }
  }
}

// The elements of a narrow matrix, put into tiles as they are.
__global__ void __launch_bounds__(kTileThreads, 1) turn_kernel(NarrowForms y, NarrowMatrix x) {
  __shared__ FormsTile tile;
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * kTileSide;
  const int64_t column0 = static_cast<int64_t>(blockIdx.x) * kTileSide;
  const int64_t column = column0 + tile_column();
  float sums[kTilePer] = {};
#pragma unroll
  for (int k = 0; k < kTilePacks; ++k) {
    const int64_t row = row0 + tile_row(k);
    const bool here = row < x.rows && column < x.columns;
    Numbers<uint8_t, kTilePer> codes{};
    float scale = 0;
    if (here) {
      codes.load(x.codes + row * x.columns + column);
      scale = x.scales[column / kTileSide * x.rows + row];
    }
#pragma unroll
    for (int i = 0; i < kTilePer; ++i) {
      const float number = here ? cpu::value_of_fp8<cpu::Fp8::E4M3>(codes.at[i]) * scale : 0.0F;
      put(tile.numbers[tile_row(k)][tile_column() + i], number);
      sums[i] += number;
    }
  }
  finish_tile(tile, sums, y, row0, column0);
}

// total[c] = the sum of sums [blocks, columns] over the blocks, in their order; added to total if `accumulate`.
__global__ void __launch_bounds__(kTileThreads)
    add_block_sums(float* total, const float* sums, int64_t blocks, int64_t columns, bool accumulate) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTileThreads + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += sums[block * columns + column];
  total[column] = accumulate ? total[column] + sum : sum;
}

}  // namespace

void write_forms(CudaStream stream, const NarrowForms& y, const Bfloat16* x) {
  narrow_map<1>(stream, y, Copied{}, In<Bfloat16>{x, y.columns});
}

void narrow_weight(CudaStream stream, uint8_t* codes, float* scales, const Bfloat16* w, int64_t rows,
                   int64_t columns, bool turned) {
  if (rows == 0 || columns == 0) return;
  const bool aligned = packs<Bfloat16>(columns, w);
  const int64_t stride = weight_scale_stride(turned ? rows : columns);
  if (turned)
    TRIFOLD_LAUNCH((narrow_weight_kernel<true>), tiles_of(rows, columns), dim3(kTileThreads), 0, stream,
                   codes, scales, w, rows, columns, stride, aligned);
  else
    TRIFOLD_LAUNCH((narrow_weight_kernel<false>), tiles_of(rows, columns), dim3(kTileThreads), 0, stream,
                   codes, scales, w, rows, columns, stride, aligned);
}

void turn_rows(CudaStream stream, const NarrowForms& y, const NarrowMatrix& x) {
  if (x.rows == 0 || x.columns == 0) return;
  TRIFOLD_LAUNCH((turn_kernel), tiles_of(x.rows, x.columns), dim3(kTileThreads), 0, stream, y, x);
}

void add_turned_sums(CudaStream stream, float* total, const float* sums, int64_t rows, int64_t columns,
                     bool accumulate) {
  if (columns == 0) return;
  TRIFOLD_LAUNCH((add_block_sums), dim3(static_cast<unsigned>(parts(columns, kTileThreads))),
                 dim3(kTileThreads), 0, stream, total, sums, scale_blocks_of(rows), columns, accumulate);
}

}  // namespace trifold::cuda
