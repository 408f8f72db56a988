// Choices of a mixture of experts: one block finds and counts the choices of an expert, one warp drops them. A list of
// choices is read by many threads at once, because each read takes far longer than the comparisons with it.
#include <cmath>

#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kCountThreads = 256;
constexpr int kSortWarps = 32;  // warps that divide the choices when rows are assigned to them

__device__ inline unsigned lane() { return threadIdx.x % kWarp; }

unsigned extent(int64_t count) { return static_cast<unsigned>(count); }

// This lane's part of the number of choices for which wanted(expert) holds.
template <class Wanted>
__device__ inline int32_t count_lane(const int32_t* chosen, int64_t choices, Wanted wanted) {
  int32_t count = 0;
  for (int64_t c = lane(); c < choices; c += kWarp) count += wanted(chosen[c]) ? 1 : 0;
  return count;
}

// Numbers the lanes with `takes` from `next` on: returns this lane's number, and advances `next` past all of them.
__device__ inline int32_t take_place(bool takes, int32_t& next) {
  const unsigned same = __match_any_sync(kAllLanes, takes ? 1 : 0);
  const unsigned all = takes ? same : ~same;
  const int32_t place = next + __popc(all & ((1U << lane()) - 1));
  next += __popc(all);
  return place;
}

// Calls body(choice, place) for the choices of the expert, in order; place counts from 0. Each lane calls it for its
// own.
template <class Body>
__device__ inline void for_each_own(const int32_t* chosen, int64_t choices, int32_t expert, Body body) {
  int32_t next = 0;
  for (int64_t begin = 0; begin < choices; begin += kWarp) {
    const int64_t c = begin + lane();
    const bool mine = c < choices && chosen[c] == expert;
    const int32_t place = take_place(mine, next);
    if (mine) body(c, place);
  }
}

// One block for each expert (x), from `begin` on, of each list of choices (y), which are in any order.
template <class Count, bool Adds>
__global__ void __launch_bounds__(kCountThreads)
    count_kernel(Count* counts, const int32_t* chosen, PaddedTokens padding, int64_t experts, int64_t choices,
                 int64_t begin) {
  const int64_t expert = begin + blockIdx.x, first = blockIdx.y * choices;
  int32_t count[1] = {0};
  for (int64_t c = first + threadIdx.x; c < first + choices; c += kCountThreads)
    count[0] += chosen[c] == expert && !padding.has(c) ? 1 : 0;
  combine_row(count, Plus{});
  if (threadIdx.x != 0) return;
  Count& to = counts[blockIdx.y * experts + blockIdx.x];
  to = Adds ? to + static_cast<Count>(count[0]) : static_cast<Count>(count[0]);
}

// A key that orders gates by their priority to be kept: the larger, the earlier. NaN counts as infinity, -0 as 0.
__device__ inline uint64_t key_of(double gate) {
  const double ordered = gate == gate ? gate + 0.0 : HUGE_VAL;
  const auto bits = static_cast<uint64_t>(__double_as_longlong(ordered));
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

// The `wanted`-th largest of a warp's keys, found bit by bit.
__device__ inline uint64_t find_key(const uint64_t* keys, int32_t count, int32_t wanted) {
  uint64_t found = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t tried = found | uint64_t{1} << bit;
    int32_t reached = 0;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kWarp)
      reached += keys[i] >= tried ? 1 : 0;
    if (combine_lanes(reached, Plus{}) >= wanted) found = tried;
  }
  return found;
}

// One warp for each expert (x) of each sequence (y). It lists its choices and their keys in `list` and `keys` [T k], at
// the rows that choices sorted by expert have, and drops all but the largest; of equal keys it keeps the first.
template <class W>
__global__ void __launch_bounds__(kWarp)
    drop_kernel(int32_t* taken, uint64_t* keys, int32_t* list, const int32_t* chosen, const W* gates,
                int64_t choices, ExpertLimit limit) {
  const int64_t begin = blockIdx.y * choices;
  const auto expert = static_cast<int32_t>(blockIdx.x), dropped = static_cast<int32_t>(limit.experts);
  const auto capacity = static_cast<int32_t>(limit.capacity < choices ? limit.capacity : choices);
  const bool by_gate = limit.kept == KeptChoices::LargestGates;
  const int32_t* own = chosen + begin;
  int32_t* to = taken + begin;
  const int32_t count =
      combine_lanes(count_lane(own, choices, [expert](int32_t e) { return e == expert; }), Plus{});
  if (count <= capacity || !by_gate) {
    for_each_own(own, choices, expert,
                 [=](int64_t c, int32_t place) { to[c] = place < capacity ? expert : dropped; });
    return;
  }
  const int32_t before =
      combine_lanes(count_lane(own, choices, [expert](int32_t e) { return e < expert; }), Plus{});
  keys += begin + before;
  list += begin + before;
  for_each_own(own, choices, expert, [=](int64_t c, int32_t place) {
    keys[place] = key_of(static_cast<double>(gates[begin + c]));
    list[place] = static_cast<int32_t>(c);
  });
  __syncwarp();
  const uint64_t least = find_key(keys, count, capacity);
  int32_t larger = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kWarp)
    larger += keys[i] > least ? 1 : 0;
  int32_t kept = combine_lanes(larger, Plus{});  // and of equal ones, those before
  for (int32_t first = 0; first < count; first += kWarp) {
    const int32_t i = first + static_cast<int32_t>(threadIdx.x);
    const uint64_t key = i < count ? keys[i] : 0;
    const bool equal = i < count && key == least;
    const int32_t place = take_place(equal, kept);
    if (i < count) to[list[i]] = key > least || (equal && place < capacity) ? expert : dropped;
  }
}

// The block of an expert scans all choices, each warp a part of them: it counts the choices of lower experts, which
// precede its own, and assigns rows to the choices of the expert, in order.
__global__ void __launch_bounds__(kSortWarps* kWarp)
    sort_kernel(int32_t* first, int32_t* row, int32_t* token, const int32_t* chosen, int64_t choices,
                int64_t each) {
  __shared__ int32_t lower[kSortWarps], own[kSortWarps];
  const auto expert = static_cast<int32_t>(blockIdx.x);
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t part = (choices + kSortWarps - 1) / kSortWarps;
  const int64_t from = warp * part < choices ? warp * part : choices;
  const int64_t count = choices - from < part ? choices - from : part;
  int32_t lower_of_lane = 0, own_of_lane = 0;
  for (int64_t c = lane(); c < count; c += kWarp) {
    const int32_t here = chosen[from + c];
    lower_of_lane += here < expert ? 1 : 0;
    own_of_lane += here == expert ? 1 : 0;
  }
  const int32_t lower_here = combine_lanes(lower_of_lane, Plus{});
  const int32_t own_here = combine_lanes(own_of_lane, Plus{});
  if (lane() == 0) {
    lower[warp] = lower_here;
    own[warp] = own_here;
  }
  __syncthreads();
  // A lane has a warp's counts.
  static_assert(kSortWarps == kWarp);
  const int32_t begin = combine_lanes(lower[lane()], Plus{});
  const auto before = static_cast<int>(lane()) < warp ? own[lane()] : 0;
  const int32_t place_of_warp = begin + combine_lanes(before, Plus{});
  if (threadIdx.x == 0) first[expert] = begin;
  if (blockIdx.x == gridDim.x - 1 && threadIdx.x == kSortWarps * kWarp - 1)
    first[expert + 1] = place_of_warp + own_here;
  for_each_own(chosen + from, count, expert, [=](int64_t c, int32_t place) {
    row[from + c] = place_of_warp + place;
    // Rows, and so choices, are numbered with 32 bits.
    token[place_of_warp + place] =
        static_cast<int32_t>(static_cast<uint32_t>(from + c) / static_cast<uint32_t>(each));
  });
}

// One block for each expert on this rank (x) and each sending rank (y): it counts the rows before its own, and writes
// the expert to its rows.
__global__ void __launch_bounds__(kThreads)
    experts_of_ranks_kernel(int32_t* expert, const int32_t* first, int64_t each, int64_t begin,
                            int64_t local_experts, int64_t skip, int64_t rows) {
  const int32_t* own = first + blockIdx.y * each + begin;
  int64_t place = own[blockIdx.x] - own[0] - skip;
  for (unsigned rank = 0; rank < blockIdx.y; ++rank)
    place += first[rank * each + begin + local_experts] - first[rank * each + begin];
  const int64_t count = own[blockIdx.x + 1] - own[blockIdx.x];
  for (int64_t i = threadIdx.x; i < count; i += kThreads)
    if (place + i >= 0 && place + i < rows) expert[place + i] = static_cast<int32_t>(blockIdx.x);
}

// One block per row.
template <class T>
__global__ void __launch_bounds__(kThreads) clear_kernel(T* y, const int32_t* begin, int64_t columns) {
  if (static_cast<int64_t>(blockIdx.x) < *begin) return;
  for (int64_t i = threadIdx.x; i < columns; i += kThreads)
    put(y[blockIdx.x * columns + i], Accumulate<T>(0));
}

}  // namespace

void count_choices(CudaStream stream, int32_t* counts, const int32_t* chosen, const PaddedTokens& padding,
                   int64_t experts, int64_t choices, int64_t lists) {
  const dim3 grid(extent(experts), extent(lists));
  TRIFOLD_LAUNCH((count_kernel<int32_t, false>), grid, dim3(kCountThreads), 0, stream, counts, chosen,
                 padding, experts, choices, int64_t{0});
}

void add_choice_counts(CudaStream stream, double* counts, const int32_t* chosen, const PaddedTokens& padding,
                       int64_t experts, int64_t choices, int64_t begin) {
  if (experts == 0) return;
  TRIFOLD_LAUNCH((count_kernel<double, true>), dim3(extent(experts)), dim3(kCountThreads), 0, stream, counts,
                 chosen, padding, experts, choices, begin);
}

template <class W>
void drop_choices(CudaStream stream, void* scratch, int32_t* taken, const int32_t* chosen, const W* gates,
                  int64_t all, int64_t choices, const ExpertLimit& limit) {
  if (all == 0) return;
  auto* keys = static_cast<uint64_t*>(scratch);
  auto* list = reinterpret_cast<int32_t*>(keys + all);
  const dim3 grid(extent(limit.experts), extent(all / choices));
  TRIFOLD_LAUNCH(drop_kernel<W>, grid, dim3(kWarp), 0, stream, taken, keys, list, chosen, gates, choices,
                 limit);
}

void sort_choices(CudaStream stream, int32_t* first, int32_t* row, int32_t* token, const int32_t* chosen,
                  int64_t experts, int64_t choices, int64_t each) {
  TRIFOLD_LAUNCH(sort_kernel, dim3(extent(experts)), dim3(kSortWarps * kWarp), 0, stream, first, row, token,
                 chosen, choices, each);
}

void experts_of_ranks(CudaStream stream, int32_t* expert, const int32_t* first, int64_t ranks, int64_t each,
                      int64_t begin, int64_t local_experts, int64_t skip, int64_t rows) {
  if (rows == 0) return;
  const dim3 grid(extent(local_experts), extent(ranks));
  TRIFOLD_LAUNCH(experts_of_ranks_kernel, grid, dim3(kThreads), 0, stream, expert, first, each, begin,
                 local_experts, skip, rows);
}

template <class T>
void clear_rows(CudaStream stream, T* y, const int32_t* begin, int64_t rows, int64_t columns) {
  if (rows == 0) return;
  TRIFOLD_LAUNCH(clear_kernel<T>, dim3(extent(rows)), dim3(kThreads), 0, stream, y, begin, columns);
}

#define INSTANTIATE(W)                                                                                   \
  template void drop_choices<W>(CudaStream, void*, int32_t*, const int32_t*, const W*, int64_t, int64_t, \
                                const ExpertLimit&);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE
#define INSTANTIATE(T) template void clear_rows<T>(CudaStream, T*, const int32_t*, int64_t, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
