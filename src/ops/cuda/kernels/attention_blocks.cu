// Results of blocks of attention (ops/cuda/attention_blocks.h): merged by their sums of exponentials, and gradients
// added. A thread moves packs of 8 elements, so the width of a head is a multiple of 8.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kMergeThreads = 256;
constexpr int kMergePack = 8;

// The row of `rows.batch` x heads x queries with this index.
struct BlockRow {
  __device__ BlockRow(const RowsOfBlock& rows, int64_t index) {
    const int64_t i = index % rows.queries;
    const int64_t h = index / rows.queries % rows.heads;
    const int64_t b = index / rows.queries / rows.heads;
    part = (b * rows.queries + i) * rows.heads + h;
    sum = (b * rows.all_heads + rows.head + h) * rows.all_rows + rows.row + i;
    out = (b * rows.all_rows + rows.row + i) * rows.all_heads + rows.head + h;
  }
  int64_t part, sum, out;
};

// `lanes` neighbouring threads for each row. All of them have read its sum before one writes it.
template <class T, class Out>
__global__ void __launch_bounds__(kMergeThreads)
    merge_block_kernel(Out* out, float* lse, const T* part, const float* sums, RowsOfBlock rows, int lanes,
                       bool first, int64_t items) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kMergeThreads + threadIdx.x;
  const int64_t item = thread / lanes;
  const int lane = static_cast<int>(thread % lanes);
  const bool valid = item < items;
  const BlockRow at(rows, valid ? item : 0);
  const float sum = valid ? sums[item] : 0;
  const float before = valid && !first ? lse[at.sum] : sum;
  const float most = cpu::larger(before, sum);
  const float total = most + cpu::log_of(cpu::exp_of(before - most) + cpu::exp_of(sum - most));
  const float old = first ? 0 : cpu::exp_of(before - total);
  const float own = first ? 1 : cpu::exp_of(sum - total);
  const int64_t packs = valid ? rows.width / kMergePack : 0;
  for (int64_t pack = lane; pack < packs; pack += lanes) {
    Numbers<T, kMergePack> added;
    Numbers<Out, kMergePack> merged;
    added.load(part + at.part * rows.width + pack * kMergePack);
    Out* to = out + at.out * rows.width + pack * kMergePack;
    if (!first) merged.load(to);
#pragma unroll
    for (int k = 0; k < kMergePack; ++k) {
      const float earlier = first ? 0.0F : old * value(merged.at[k]);
      put(merged.at[k], earlier + own * value(added.at[k]));
    }
    merged.store(to);
  }
  __syncwarp();
  if (valid && lane == 0) lse[at.sum] = first ? sum : total;
}

__global__ void __launch_bounds__(kMergeThreads)
    sums_of_block_kernel(float* sums, const float* lse, RowsOfBlock rows, int64_t items) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kMergeThreads + threadIdx.x;
  if (item < items) sums[item] = lse[BlockRow(rows, item).sum];
}

template <class T, class Out>
__global__ void __launch_bounds__(kMergeThreads)
    add_block_kernel(Out* to, const T* part, BlockColumns place, bool assign, int64_t packs) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kMergeThreads + threadIdx.x;
  if (index >= packs) return;
  const int64_t of_row = place.columns / kMergePack;
  const int64_t row = index / of_row;
  const int64_t b = row / place.count;
  const int64_t i = row % place.count;
  Out* at =
      to + (b * place.all_rows + place.row + i) * place.stride + place.column + index % of_row * kMergePack;
  Numbers<T, kMergePack> added;
  Numbers<Out, kMergePack> sum;
  added.load(part + index * kMergePack);
  if (!assign) sum.load(at);
#pragma unroll
  for (int k = 0; k < kMergePack; ++k)
    put(sum.at[k], (assign ? 0.0F : value(sum.at[k])) + value(added.at[k]));
  sum.store(at);
}

unsigned merge_grid(int64_t threads) { return static_cast<unsigned>(parts(threads, int64_t{kMergeThreads})); }

}  // namespace

template <class T, class Out>
void merge_block(CudaStream stream, Out* out, float* lse, const T* part, const float* sums,
                 const RowsOfBlock& rows, bool first) {
  const int64_t items = rows.batch * rows.heads * rows.queries;
  if (items == 0) return;
  int lanes = 1;
  while (lanes < kWarp && lanes * kMergePack < rows.width) lanes *= 2;
  TRIFOLD_LAUNCH((merge_block_kernel<T, Out>), merge_grid(items * lanes), kMergeThreads, 0, stream, out, lse,
                 part, sums, rows, lanes, first, items);
}

void sums_of_block(CudaStream stream, float* sums, const float* lse, const RowsOfBlock& rows) {
  const int64_t items = rows.batch * rows.heads * rows.queries;
  if (items == 0) return;
  TRIFOLD_LAUNCH(sums_of_block_kernel, merge_grid(items), kMergeThreads, 0, stream, sums, lse, rows, items);
}

template <class T, class Out>
void add_block(CudaStream stream, Out* to, const T* part, const BlockColumns& place, bool assign) {
  const int64_t packs = place.batch * place.count * (place.columns / kMergePack);
  if (packs == 0) return;
  TRIFOLD_LAUNCH((add_block_kernel<T, Out>), merge_grid(packs), kMergeThreads, 0, stream, to, part, place,
                 assign, packs);
}

#define INSTANTIATE(T, Out)                                                                               \
  template void merge_block<T, Out>(CudaStream, Out*, float*, const T*, const float*, const RowsOfBlock&, \
                                    bool);                                                                \
  template void add_block<T, Out>(CudaStream, Out*, const T*, const BlockColumns&, bool);
INSTANTIATE(float, float)
INSTANTIATE(Bfloat16, float)
INSTANTIATE(Bfloat16, Bfloat16)
INSTANTIATE(Float16, float)
INSTANTIATE(Float16, Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
