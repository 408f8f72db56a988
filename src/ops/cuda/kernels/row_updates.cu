// The update of touched rows of embedding tables. A row with few lookups is processed by the lanes of a row,
// one with more by a warp; very many lookups are first summed in parts, one block each.
#include "ops/cuda/kernels/bags.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/workspace.h"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
// Rows that are loaded ahead of the sum, for rows with many lookups; and the blocks that share a multiprocessor's
// registers: in f64 the numbers of a rule need more than two leave each other.
template <class W>
constexpr int kManyAhead = sizeof(W) > 4 ? 4 : 7;
template <class W>
[[maybe_unused]] constexpr int kManyBlocks = sizeof(W) > 4 ? 1 : 2;

template <class W>
struct Updates {
  UpdateTask<W> at[kTablesAtOnce];
};

// Updates one element of a row, and its state, by its gradient d = grad_scale times the sum; `step` is the
// row's step for Sgd and RowwiseAdagrad.
template <class W>
struct ElementRule {
  cpu::RowAction action;
  cpu::Moments<W> moments;
  W lr, step_size, decay;
  cpu::FtrlMove<W> ftrl;

  ElementRule() = default;
  __device__ inline ElementRule(cpu::RowAction does, const cpu::RowRule& rule)
      : action(does),
        moments(rule.moments),
        lr(static_cast<W>(rule.lr)),
        step_size(static_cast<W>(rule.step_size)),
        decay(static_cast<W>(rule.decay)),
        ftrl(rule.ftrl) {}

  // The parts of a row that are read and written.
  __device__ inline bool reads_table() const { return action != cpu::RowAction::Store; }
  __device__ inline bool has_state() const {
    return action == cpu::RowAction::Adagrad || action == cpu::RowAction::Adam ||
           action == cpu::RowAction::Ftrl;
  }
  __device__ inline bool has_second() const {
    return action == cpu::RowAction::Adam || action == cpu::RowAction::Ftrl;
  }

  __device__ inline void apply(W& p, W& state, W& second, W g, W step) const {
    if (decay != 1 && action != cpu::RowAction::Store && action != cpu::RowAction::Squares) p *= decay;
    switch (action) {
      case cpu::RowAction::Sgd:
      case cpu::RowAction::RowwiseAdagrad:
        p -= step * g;
        return;
      case cpu::RowAction::Adagrad:
        p = cpu::AdagradMove<W>{moments.eps, lr}(p, state, g * moments.grad_scale);
        return;
      case cpu::RowAction::Adam:
        moments.move(state, second, g);
        p -= step_size * state / moments.root(second);
        return;
      case cpu::RowAction::Ftrl:
        p = ftrl(p, state, second, g * moments.grad_scale);
        return;
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

// Updates one pack of row `row` of a table, and of its state, by the sums.
template <bool Whole, class W>
__device__ inline void move_pack(const cpu::RowTask<W>& task, const ElementRule<W>& element,
                                 const W (&sum)[kPerPack<W>], int64_t at, int count, W step) {
  FullPack<W> table;
  FullPack<W> state;
  FullPack<W> second;
  if (element.reads_table()) table.template load<Whole>(task.table + at, count);
  if (element.has_state()) state.template load<Whole>(task.state + at, count);
  if (element.has_second()) second.template load<Whole>(task.second + at, count);
#pragma unroll
  for (int k = 0; k < kPerPack<W>; ++k)
    if (Whole || k < count) element.apply(table.at[k], state.at[k], second.at[k], sum[k], step);
  table.template store<Whole>(task.table + at, count);
  if (element.has_state()) state.template store<Whole>(task.state + at, count);
  if (element.has_second()) second.template store<Whole>(task.second + at, count);
}

// Updates touched row s. gather(sum, column, count) stores the row's gradient for a pack of columns in `sum`;
// `lanes` adjacent lanes share the row, and all lanes of the warp must call this. Lanes with `idle` set only
// take part in gather and in synchronization.
template <bool Whole, class W, class Gather>
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
        if (k < count) squares += sum[k] * element.moments.grad_scale * (sum[k] * element.moments.grad_scale);
    }
    squares = combine_lanes(squares, Plus{}, lanes);
  }
  if (action == cpu::RowAction::Squares) {
    if (!idle && first == 0) task.squares[s] = squares;
    return;
  }
  const int64_t row = idle ? 0 : task.row[s];
  W step = element.lr * element.moments.grad_scale;
  if (action == cpu::RowAction::RowwiseAdagrad) {
    W state = 0;
    if (!idle) {
      const W all = task.squares != nullptr ? task.squares[s] : squares;
      state = task.state[row] + all / static_cast<W>(task.whole_width);
      step /= cpu::root_of(state) + element.moments.eps;
    }
    __syncwarp();  // every lane has read the state
    if (!idle && first == 0) task.state[row] = state;
  }
  if (action == cpu::RowAction::Store && !idle && first == 0) task.state[row] = 1;
  for (int64_t strip = 0; strip < strips; ++strip) {
    const int64_t column = first + strip * lanes * kPer;
    const int count = count_at(column, width, kPer);
    if (!has_squares || strips > 1) gather(sum, column, count);  // otherwise still in `sum`
    if (!idle && count > 0) move_pack<Whole>(task, element, sum, row * width + column, count, step);
  }
}

// Whether touched row s of the order counts as touched.
template <class W>
__device__ inline bool is_touched(const cpu::RowTask<W>& task, int64_t s) {
  return task.touched == nullptr || task.touched[s] != W(0);
}

// The most lookups of a row that the lanes of a row sum themselves, and that a warp sums.
constexpr int64_t kFew = 64;
constexpr int64_t kPart = kUpdatePart;
static_assert(kUpdatesAtOnce == kTablesAtOnce);

// Two blocks at a time: for three, ptxas would spill.
template <class W, bool Whole>
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
  const ElementRule<W> element(action, rule.now());
  const LookedUp<W> rows{task.dy, task.dy_stride, task.bag, task.weight};
  update_row<Whole>(task, element, s, lanes, idle, [&](W(&sum)[kPerPack<W>], int64_t column, int count) {
    sum_rows<Whole, 2>(sum, rows, first, idle ? first : last, 1, column, count);
  });
}

// The last of `rows` touched rows whose lookups begin at or before `place`. The lanes of the warp search
// together, 32 rows at a time.
__device__ inline int64_t row_over(const int32_t* begin, int64_t rows, int64_t place) {
  int64_t low = 0;
  int64_t among = rows;  // the row is in [low, low + among)
  while (among > 1) {
    const int64_t step = (among + kWarp - 1) / kWarp;
    const int64_t ahead = static_cast<int64_t>(threadIdx.x % kWarp) * step;
    const bool before = ahead < among && begin[low + ahead] <= place;
    const int64_t past = (combine_lanes(before ? 1 : 0, Plus{}) - 1) * step;
    low += past;
    among = among - past < step ? among - past : step;
  }
  return low;
}

// Sums lookups in parts of kPart, at fixed positions of the list: for every row with more lookups than that,
// one sum for each part it overlaps. At most two such rows overlap a part: one that covers its first
// position, and one that begins later and continues beyond the part. sums [parts][2][width]
template <class W>
__device__ inline W* part_sum(W* sums, int64_t part, bool begins_inside, int64_t width) {
  return sums + (2 * part + (begins_inside ? 1 : 0)) * width;
}
template <class W, bool Whole>
__global__ void __launch_bounds__(kThreads, 2)
    sum_lookups(Updates<W> updates, W* sums, int64_t sums_of_table) {
  constexpr int kPer = kPerPack<W>;
  __shared__ W of_thread[kThreads * kPer];
  __shared__ int64_t over[2];  // the rows that cover the first position and the last
  const cpu::RowTask<W>& task = updates.at[blockIdx.y].rows;
  const int64_t rows = *updates.at[blockIdx.y].count;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kPart;
  const int64_t all = rows == 0 ? 0 : task.begin[rows];
  if (begin >= all) return;
  const int64_t end = begin + kPart < all ? begin + kPart : all;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kWarp) {
    const int64_t one = row_over(task.begin, rows, begin);
    const int64_t two = row_over(task.begin, rows, end - 1);
    if (thread < 2) over[thread] = thread == 0 ? one : two;
  }
  __syncthreads();
  const int lanes = lanes_of<W>(task.width);
  const int groups = kThreads / lanes;
  const int width = lanes * kPer;
  const LookedUp<W> looked_up{task.dy, task.dy_stride, task.bag, task.weight};
  for (int k = 0; k < 2; ++k) {
    const int64_t first = task.begin[over[k]];
    const int64_t last = task.begin[over[k] + 1];
    if (last - first <= kPart || (k == 1 && over[1] == over[0])) continue;
    const int64_t from = first > begin ? first : begin;
    const int64_t to = last < end ? last : end;
    W* out = part_sum(sums + blockIdx.y * sums_of_table, blockIdx.x, k == 1, task.width);
    for (int64_t strip = 0; strip < task.width; strip += width) {
      const int64_t column = strip + thread % lanes * kPer;
      W sum[kPer];
      sum_rows<Whole, kAhead>(sum, looked_up, from + thread / lanes, to, groups, column,
                              count_at(column, task.width, kPer));
#pragma unroll
      for (int j = 0; j < kPer; ++j) of_thread[thread * kPer + j] = sum[j];
      __syncthreads();
      if (thread < width && strip + thread < task.width) {
        W total = of_thread[thread];
        for (int g = 1; g < groups; ++g) total += of_thread[g * width + thread];
        out[strip + thread] = total;
      }
      __syncthreads();
    }
  }
}

// The terms that a warp sums for a row: its lookups or, if `parted`, the sums of its parts.
template <class W>
struct LookupsOrParts {
  LookedUp<W> rows;
  bool parted;
  int32_t first;  // index of the first part's sum; later sums are at even indices
  __device__ inline int32_t row(int64_t i) const {
    if (!parted) return rows.row(i);
    return i == 0 ? first : first / 2 * 2 + 2 * static_cast<int32_t>(i);
  }
  __device__ inline W weight(int64_t i) const { return rows.weight(i); }
  __device__ inline const W* at(int32_t row) const { return rows.at(row); }
};

// One warp for each kFew lookups: at most one row with more than kFew lookups begins there. Groups of lanes
// process lookups, or sums of parts, in turn; their sums are added in a fixed order, and the first group
// updates the row.
template <class W, bool Whole>
__global__ void __launch_bounds__(kThreads, kManyBlocks<W>)
    update_many(Updates<W> updates, cpu::RowAction action, cpu::LateRule<cpu::RowRule> rule, const W* sums,
                int64_t sums_of_table) {
  constexpr int kPer = kPerPack<W>;
  __shared__ ElementRule<W> element;  // registers for it would halve the number of concurrent blocks
  if (threadIdx.x == 0) element = ElementRule<W>(action, rule.now());
  __syncthreads();
  const cpu::RowTask<W>& task = updates.at[blockIdx.y].rows;
  const int64_t rows = *updates.at[blockIdx.y].count;
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp) * kFew;
  const int64_t all = rows == 0 ? 0 : task.begin[rows];
  if (begin >= all) return;
  const int64_t s = row_over(task.begin, rows, (begin + kFew < all ? begin + kFew : all) - 1);
  const int64_t first = task.begin[s];
  const int64_t last = task.begin[s + 1];
  if (first < begin || last - first <= kFew || !is_touched(task, s)) return;
  const int lanes = lanes_of<W>(task.width);
  const int groups = kWarp / lanes;
  const int group = static_cast<int>(threadIdx.x) % kWarp / lanes;
  const bool parted = last - first > kPart;
  LookupsOrParts<W> rows_of{{task.dy, task.dy_stride, task.bag, task.weight}, parted, 0};
  int64_t next = first + group;
  int64_t end = last;
  if (parted) {
    rows_of.rows = {sums + blockIdx.y * sums_of_table, task.width, nullptr, nullptr};
    rows_of.first = static_cast<int32_t>(first / kPart * 2 + (first % kPart != 0 ? 1 : 0));
    next = group;
    end = (last - 1) / kPart - first / kPart + 1;
  }
  update_row<Whole>(task, element, s, lanes, group != 0, [&](W(&sum)[kPer], int64_t column, int count) {
    sum_rows<Whole, kManyAhead<W>>(sum, rows_of, next, end, groups, column, count);
    for (int distance = lanes; distance < kWarp; distance *= 2)
#pragma unroll
      for (int k = 0; k < kPer; ++k) sum[k] += __shfl_xor_sync(kAllLanes, sum[k], distance);
  });
}

// Whether the rows that a task reads and writes consist of whole packs.
template <class W>
bool whole_packs(const cpu::RowTask<W>& task, cpu::RowAction action) {
  return packs<W>(task.width | task.dy_stride, task.dy, task.table,
                  cpu::has_whole_state(action) ? task.state : nullptr,
                  cpu::has_second_state(action) ? task.second : nullptr);
}

}  // namespace

template <class W>
void update_rows(CudaStream stream, void* scratch, std::span<const UpdateTask<W>> tasks,
                 cpu::RowAction action, const cpu::LateRule<cpu::RowRule>& rule) {
  auto* sums = static_cast<W*>(scratch);
  int64_t lookups = 0;
  int64_t widest = 1;
  for (const UpdateTask<W>& task : tasks) {
    lookups = task.lookups > lookups ? task.lookups : lookups;
    widest = task.rows.width > widest ? task.rows.width : widest;
  }
  if (lookups == 0) return;
  const auto together = static_cast<size_t>(updates_together(lookups, widest));
  for (size_t begin = 0; begin < tasks.size(); begin += together) {
    Updates<W> some{};
    unsigned count = 0;
    bool whole = true;
    for (size_t i = begin; i < tasks.size() && count < together; ++i) {
      some.at[count++] = tasks[i];
      whole = whole && whole_packs(tasks[i].rows, action);
    }
    const auto few = whole ? update_few<W, true> : update_few<W, false>;
    const auto many = whole ? update_many<W, true> : update_many<W, false>;
    const auto in_parts = whole ? sum_lookups<W, true> : sum_lookups<W, false>;
    const int64_t sums_of_table = sums_of_update(lookups, widest);
    TRIFOLD_LAUNCH(few, dim3(static_cast<unsigned>(parts(lookups * lanes_of<W>(widest), kThreads)), count),
                   dim3(kThreads), 0, stream, some, action, rule);
    if (lookups > kPart)
      TRIFOLD_LAUNCH(in_parts, dim3(static_cast<unsigned>(parts(lookups, kPart)), count), dim3(kThreads), 0,
                     stream, some, sums, sums_of_table);
    if (lookups > kFew)
      TRIFOLD_LAUNCH(many, dim3(static_cast<unsigned>(parts(lookups, kFew * kWarps)), count), dim3(kThreads),
                     0, stream, some, action, rule, sums, sums_of_table);
  }
}

#define INSTANTIATE(W)                                                                            \
  template void update_rows<W>(CudaStream, void*, std::span<const UpdateTask<W>>, cpu::RowAction, \
                               const cpu::LateRule<cpu::RowRule>&);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace trifold::cuda
