// Embedding bags: sums of rows of a table.
#include "ops/cuda/kernels/bags.cuh"
#include "ops/cuda/kernels/kernels.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;

template <class W>
struct Tasks {
  BagTask<W> at[kTablesAtOnce];
};

template <class W, bool Whole>
__global__ void __launch_bounds__(kThreads) bags_kernel(Tasks<W> tasks, int64_t bags, int64_t y_stride) {
  constexpr int kPer = kPerPack<W>;
  const BagTask<W>& task = tasks.at[blockIdx.y];
  const int lanes = lanes_of<W>(task.width);
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t bag = thread / lanes;
  if (bag >= bags) return;
  const int64_t first = task.offsets[bag];
  const int64_t last = task.offsets[bag + 1];
  for (int64_t column = thread % lanes * kPer; column < task.width; column += lanes * kPer) {
    const int count = count_at(column, task.width, kPer);
    W sum[kPer];
    const LookedUp<W> rows{task.table, task.width, task.ids, task.weights};
    sum_rows<Whole, kAhead>(sum, rows, first, last, 1, column, count);
    FullPack<W> pack;
#pragma unroll
    for (int k = 0; k < kPer; ++k) pack.at[k] = sum[k];
    pack.template store<Whole>(task.y + bag * y_stride + column, count);
  }
}

}  // namespace

template <class W>
void embedding_bags(CudaStream stream, std::span<const BagTask<W>> tasks, int64_t bags, int64_t y_stride) {
  if (bags == 0) return;
  for (size_t begin = 0; begin < tasks.size(); begin += kTablesAtOnce) {
    Tasks<W> some{};
    unsigned count = 0;
    int64_t widest = 1;
    bool whole = true;
    for (size_t i = begin; i < tasks.size() && count < kTablesAtOnce; ++i) {
      some.at[count++] = tasks[i];
      widest = tasks[i].width > widest ? tasks[i].width : widest;
      whole = whole && packs<W>(tasks[i].width | y_stride, tasks[i].table, tasks[i].y);
    }
    // The grid fits the widest table; blocks beyond another table's bags end at once.
    const auto blocks = static_cast<unsigned>(parts(bags * lanes_of<W>(widest), kThreads));
    const auto kernel = whole ? bags_kernel<W, true> : bags_kernel<W, false>;
    TRIFOLD_LAUNCH(kernel, dim3(blocks, count), dim3(kThreads), 0, stream, some, bags, y_stride);
  }
}

template void embedding_bags<double>(CudaStream, std::span<const BagTask<double>>, int64_t, int64_t);
template void embedding_bags<float>(CudaStream, std::span<const BagTask<float>>, int64_t, int64_t);

}  // namespace trifold::cuda
