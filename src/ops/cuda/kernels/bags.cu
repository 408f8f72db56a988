// Embedding bags: sums of rows of a table, and the update of touched rows. A row is the work of as many lanes
// as it has packs, at most a warp; wider rows go in strips. A touched row that many bags looked up is the
// work of a block.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/kernels/math.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

template <class W>
struct Tasks {
  BagTask<W> at[kTablesAtOnce];
};
template <class W>
struct Updates {
  UpdateTask<W> at[kTablesAtOnce];
};

// The sum of rows from[index[i]], i = first, first + step, ... before last, each times its weight, at one
// pack of columns.
template <class W>
__device__ inline void sum_rows(W (&sum)[kPerPack<W>], const W* from, int64_t stride, const int32_t* index,
                                const float* weight, int64_t first, int64_t last, int64_t step,
                                int64_t column, int count, bool aligned) {
#pragma unroll
  for (int k = 0; k < kPerPack<W>; ++k) sum[k] = 0;
#pragma unroll 4
  for (int64_t i = first; i < last; i += step) {
    FullPack<W> pack;
    pack.load(from + static_cast<int64_t>(index[i]) * stride + column, count, aligned);
    const W w = weight != nullptr ? static_cast<W>(weight[i]) : W(1);
#pragma unroll
    for (int k = 0; k < kPerPack<W>; ++k)
      if (k < count) sum[k] += w * pack.at[k];
  }
}

// Whether a row of `width` numbers at these addresses and distances can be read in packs.
template <class W>
__device__ inline bool in_packs(int64_t lengths, const W* a, const W* b) {
  return ((reinterpret_cast<uint64_t>(a) | reinterpret_cast<uint64_t>(b) |
           static_cast<uint64_t>(lengths) * sizeof(W)) %
          16) == 0;
}

// Lanes of a row of `width`, a power of two.
template <class W>
__device__ inline int lanes_of(int64_t width) {
  int lanes = 1;
  while (lanes < kWarp && lanes * kPerPack<W> < width) lanes *= 2;
  return lanes;
}

template <class W>
__global__ void __launch_bounds__(kThreads) bags_kernel(Tasks<W> tasks, int64_t bags, int64_t y_stride) {
  constexpr int kPer = kPerPack<W>;
  const BagTask<W>& task = tasks.at[blockIdx.y];
  const int lanes = lanes_of<W>(task.width);
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t bag = thread / lanes;
  if (bag >= bags) return;
  const bool aligned = in_packs(task.width | y_stride, task.table, task.y);
  const int64_t first = task.offsets[bag];
  const int64_t last = task.offsets[bag + 1];
  for (int64_t column = thread % lanes * kPer; column < task.width; column += lanes * kPer) {
    const int count = count_at(column, task.width, kPer);
    W sum[kPer];
    sum_rows(sum, task.table, task.width, task.ids, task.weights, first, last, 1, column, count, aligned);
    FullPack<W> pack;
#pragma unroll
    for (int k = 0; k < kPer; ++k) pack.at[k] = sum[k];
    pack.store(task.y + bag * y_stride + column, count, aligned);
  }
}

// Moves one element of a row along its gradient d, grad_scale times the sum; `step` is RowwiseAdagrad's own.
template <class W>
struct ElementRule {
  cpu::RowAction action;
  W grad_scale, lr, eps, beta1, rest1, beta2, rest2, root_scale, step_size;

  ElementRule() = default;
  __device__ inline ElementRule(cpu::RowAction does, const cpu::RowRule& rule)
      : action(does),
        grad_scale(static_cast<W>(rule.grad_scale)),
        lr(static_cast<W>(rule.lr)),
        eps(static_cast<W>(rule.eps)),
        beta1(static_cast<W>(rule.beta1)),
        rest1(static_cast<W>(1 - rule.beta1)),
        beta2(static_cast<W>(rule.beta2)),
        rest2(static_cast<W>(1 - rule.beta2)),
        root_scale(static_cast<W>(rule.root_scale)),
        step_size(static_cast<W>(rule.step_size)) {}

  __device__ inline void apply(const cpu::RowTask<W>& task, int64_t at, W g, W step) const {
    W& p = task.table[at];
    switch (action) {
      case cpu::RowAction::Sgd:
      case cpu::RowAction::RowwiseAdagrad:
        p -= step * g;
        return;
      case cpu::RowAction::Adagrad: {
        const W d = g * grad_scale;
        const W s = task.state[at] + d * d;
        task.state[at] = s;
        p -= lr * d / (cpu::root_of(s) + eps);
        return;
      }
      case cpu::RowAction::Adam: {
        const W d = g * grad_scale;
        const W m = beta1 * task.state[at] + rest1 * d;
        const W v = beta2 * task.second[at] + rest2 * d * d;
        task.state[at] = m;
        task.second[at] = v;
        p -= step_size * m / (cpu::root_of(v) * root_scale + eps);
        return;
      }
      case cpu::RowAction::Store:
        p = g;
        return;
      case cpu::RowAction::Squares:
        return;
    }
  }
};

__device__ inline bool needs_squares(cpu::RowAction action, bool given) {
  return action == cpu::RowAction::Squares || (action == cpu::RowAction::RowwiseAdagrad && !given);
}

// Updates touched row s. gather(sum, column, count) leaves the row's gradient at a pack of columns in `sum`;
// `lanes` neighbouring lanes share the row, and all lanes of the warp come here. Lanes with `idle` set only
// keep the others company, and gather.
template <class W, class Gather>
__device__ inline void update_row(const cpu::RowTask<W>& task, const ElementRule<W>& element, int64_t s,
                                  int lanes, bool idle, Gather gather) {
  constexpr int kPer = kPerPack<W>;
  const cpu::RowAction action = element.action;
  const int64_t width = task.width;
  const int64_t first = static_cast<int64_t>(threadIdx.x) % lanes * kPer;
  const int64_t strips = (width + lanes * kPer - 1) / (lanes * kPer);
  W sum[kPer];
  W squares = 0;
  const bool has_squares = needs_squares(action, task.squares != nullptr);
  if (has_squares) {
    for (int64_t strip = 0; strip < strips; ++strip) {
      const int64_t column = first + strip * lanes * kPer;
      const int count = count_at(column, width, kPer);
      gather(sum, column, count);
#pragma unroll
      for (int k = 0; k < kPer; ++k)
        if (k < count) squares += sum[k] * element.grad_scale * (sum[k] * element.grad_scale);
    }
    squares = combine_lanes(squares, Plus{}, lanes);
  }
  if (action == cpu::RowAction::Squares) {
    if (!idle && first == 0) task.squares[s] = squares;
    return;
  }
  const int64_t row = idle ? 0 : task.row[s];
  W step = element.lr * element.grad_scale;
  if (action == cpu::RowAction::RowwiseAdagrad) {
    W state = 0;
    if (!idle) {
      const W all = task.squares != nullptr ? task.squares[s] : squares;
      state = task.state[row] + all / static_cast<W>(task.whole_width);
      step /= cpu::root_of(state) + element.eps;
    }
    __syncwarp();  // every lane has read the state
    if (!idle && first == 0) task.state[row] = state;
  }
  if (action == cpu::RowAction::Store && !idle && first == 0) task.state[row] = 1;
  for (int64_t strip = 0; strip < strips; ++strip) {
    const int64_t column = first + strip * lanes * kPer;
    const int count = count_at(column, width, kPer);
    if (!has_squares || strips > 1) gather(sum, column, count);  // else it is still there
    if (idle) continue;
    for (int k = 0; k < count; ++k) element.apply(task, row * width + column + k, sum[k], step);
  }
}

// Whether touched row s of the order counts as touched.
template <class W>
__device__ inline bool is_touched(const cpu::RowTask<W>& task, int64_t s) {
  return task.touched == nullptr || task.touched[s] != W(0);
}

// Lookups of a row that the lanes of a row add up by themselves.
constexpr int64_t kFew = 64;

// Two blocks at a time: for a third, ptxas would rather spill.
template <class W>
__global__ void __launch_bounds__(kThreads, 2)
    update_few(Updates<W> updates, cpu::RowAction action, cpu::LateRule<cpu::RowRule> rule) {
  const UpdateTask<W>& update = updates.at[blockIdx.y];
  const cpu::RowTask<W>& task = update.rows;
  const int lanes = lanes_of<W>(task.width);
  const int64_t s = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / lanes;
  const bool touched = s < *update.count && is_touched(task, s);
  const int64_t first = touched ? task.begin[s] : 0;
  const int64_t last = touched ? task.begin[s + 1] : 0;
  const bool idle = !touched || last - first > kFew;
  const bool aligned = in_packs(task.width | task.dy_stride, task.dy, task.dy);
  const ElementRule<W> element(action, rule.now());
  update_row(task, element, s, lanes, idle, [&](W(&sum)[kPerPack<W>], int64_t column, int count) {
    if (!idle)
      sum_rows(sum, task.dy, task.dy_stride, task.bag, task.weight, first, last, 1, column, count, aligned);
    else
      for (int k = 0; k < kPerPack<W>; ++k) sum[k] = 0;
  });
}

// One block for each kFew lookups: at most one row with more of them begins there, the last. Its warps take
// every eighth lookup, their sums are added in order, and the first warp moves the row.
template <class W>
__global__ void __launch_bounds__(kThreads)
    update_many(Updates<W> updates, cpu::RowAction action, cpu::LateRule<cpu::RowRule> rule) {
  constexpr int kPer = kPerPack<W>;
  __shared__ W of_warp[kWarps][kWarp * kPer];
  __shared__ ElementRule<W> element;  // in registers it would halve the blocks at a time
  const UpdateTask<W>& update = updates.at[blockIdx.y];
  const cpu::RowTask<W>& task = update.rows;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kFew;
  int64_t low = 0;  // rows below begin before this block's end
  int64_t high = *update.count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (task.begin[middle] < begin + kFew)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0) return;
  const int64_t s = low - 1;
  const int64_t first = task.begin[s];
  const int64_t last = task.begin[s + 1];
  if (first < begin || last - first <= kFew || !is_touched(task, s)) return;
  if (threadIdx.x == 0) element = ElementRule<W>(action, rule.now());
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool aligned = in_packs(task.width | task.dy_stride, task.dy, task.dy);
  update_row(task, element, s, kWarp, warp != 0, [&](W(&sum)[kPer], int64_t column, int count) {
    sum_rows(sum, task.dy, task.dy_stride, task.bag, task.weight, first + warp, last, kWarps, column, count,
             aligned);
#pragma unroll
    for (int k = 0; k < kPer; ++k) of_warp[warp][lane * kPer + k] = sum[k];
    __syncthreads();
    for (int k = 0; k < kPer; ++k) {
      sum[k] = of_warp[0][lane * kPer + k];
      for (int w = 1; w < kWarps; ++w) sum[k] += of_warp[w][lane * kPer + k];
    }
    __syncthreads();
  });
}

}  // namespace

template <class W>
void embedding_bags(CudaStream stream, std::span<const BagTask<W>> tasks, int64_t bags, int64_t y_stride) {
  if (bags == 0) return;
  for (size_t begin = 0; begin < tasks.size(); begin += kTablesAtOnce) {
    Tasks<W> some{};
    unsigned count = 0;
    int64_t widest = 1;
    for (size_t i = begin; i < tasks.size() && count < kTablesAtOnce; ++i) {
      some.at[count++] = tasks[i];
      widest = tasks[i].width > widest ? tasks[i].width : widest;
    }
    // The widest table's rows take most lanes; what the others' blocks lack no bag for ends at once.
    int64_t lanes = 1;
    while (lanes < kWarp && lanes * kPerPack<W> < widest) lanes *= 2;
    TRIFOLD_LAUNCH((bags_kernel<W>), dim3(static_cast<unsigned>(parts(bags * lanes, kThreads)), count),
                   dim3(kThreads), 0, stream, some, bags, y_stride);
  }
}

template <class W>
void update_rows(CudaStream stream, std::span<const UpdateTask<W>> tasks, cpu::RowAction action,
                 const cpu::LateRule<cpu::RowRule>& rule) {
  for (size_t begin = 0; begin < tasks.size(); begin += kTablesAtOnce) {
    Updates<W> some{};
    unsigned count = 0;
    int64_t lookups = 0;
    int64_t widest = 1;
    for (size_t i = begin; i < tasks.size() && count < kTablesAtOnce; ++i) {
      some.at[count++] = tasks[i];
      lookups = tasks[i].lookups > lookups ? tasks[i].lookups : lookups;
      widest = tasks[i].rows.width > widest ? tasks[i].rows.width : widest;
    }
    if (lookups == 0) continue;
    int64_t lanes = 1;
    while (lanes < kWarp && lanes * kPerPack<W> < widest) lanes *= 2;
    TRIFOLD_LAUNCH((update_few<W>), dim3(static_cast<unsigned>(parts(lookups * lanes, kThreads)), count),
                   dim3(kThreads), 0, stream, some, action, rule);
    TRIFOLD_LAUNCH((update_many<W>), dim3(static_cast<unsigned>(parts(lookups, kFew)), count), dim3(kThreads),
                   0, stream, some, action, rule);
  }
}

#define INSTANTIATE(W)                                                                        \
  template void embedding_bags<W>(CudaStream, std::span<const BagTask<W>>, int64_t, int64_t); \
  template void update_rows<W>(CudaStream, std::span<const UpdateTask<W>>, cpu::RowAction,    \
                               const cpu::LateRule<cpu::RowRule>&);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace trifold::cuda
