// The order of lookups by row (LookupOrder): keys (row, bag) or (row, lookup) are sorted; then the positions
// at which a new row begins are counted by tiles, the counts are summed, and the lists are written.
#include <vector>

#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/sort.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kEach = 8;  // consecutive keys per thread
constexpr int kTile = kThreads * kEach;
static_assert(kTile >= kSortTile);  // the tiles' counts reuse the memory of the digits' counts

struct Tasks {
  SortTask at[kTablesAtOnce];
};

// A list's sorted keys, the number of rows that begin in each of its tiles and, if lookups have weights, the
// bag of each lookup.
struct Starts {
  const uint64_t* keys[kTablesAtOnce];
  uint32_t* tiles[kTablesAtOnce];
  int32_t* bags[kTablesAtOnce];
};

// Calls visit(lookup, bag) for all lookups of 32 consecutive bags, on one warp. Their lookups are consecutive
// as well: adjacent lanes read and write adjacent elements, and find each lookup's bag, the last whose offset
// is not beyond the lookup, in each other's registers.
template <class Visit>
__device__ inline void each_lookup(const SortTask& task, Visit visit) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp) * kWarp;
  if (first >= task.bags) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int32_t offset = task.offsets[first + lane < task.bags ? first + lane : task.bags];
  const int64_t end = task.offsets[first + kWarp < task.bags ? first + kWarp : task.bags];
  for (int64_t i = __shfl_sync(kAllLanes, offset, 0) + lane; i - lane < end; i += kWarp) {
    int bag = 0;
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2)
      if (__shfl_sync(kAllLanes, offset, bag + step) <= i) bag += step;
    if (i < end) visit(i, static_cast<int32_t>(first) + bag);
  }
}

__global__ void __launch_bounds__(kThreads) make_keys(Tasks tasks) {
  const SortTask& task = tasks.at[blockIdx.y];
  each_lookup(task, [&](int64_t lookup, int32_t bag) {
    const auto row = static_cast<uint32_t>(task.ids[lookup]);
    const auto low = static_cast<uint32_t>(task.weights == nullptr ? bag : lookup);
    task.keys[lookup] = static_cast<uint64_t>(row) << 32 | low;
  });
}

__global__ void __launch_bounds__(kThreads) note_bags(Tasks tasks, Starts starts) {
  int32_t* bags = starts.bags[blockIdx.y];
  if (bags == nullptr) return;
  each_lookup(tasks.at[blockIdx.y], [&](int64_t lookup, int32_t bag) { bags[lookup] = bag; });
}

__device__ inline bool begins(const uint64_t* keys, int64_t i) {
  return i == 0 || keys[i] >> 32 != keys[i - 1] >> 32;
}

// Counts the positions, among this thread's kEach, at which a row begins; `before` receives the number at
// earlier positions of the tile. For the last thread, the two add up to the tile's total.
__device__ inline uint32_t count_starts(const uint64_t* keys, int64_t first, int64_t n, uint32_t& before) {
  __shared__ uint32_t of_warp[kWarps];
  uint32_t mine = 0;
  for (int64_t i = first; i < first + kEach && i < n; ++i) mine += begins(keys, i) ? 1 : 0;
  uint32_t through = mine;
  const unsigned lane = threadIdx.x % kWarp;
  for (unsigned d = 1; d < kWarp; d *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, through, d);
    if (lane >= d) through += below;
  }
  if (lane == kWarp - 1) of_warp[threadIdx.x / kWarp] = through;
  __syncthreads();
  before = through - mine;
  for (unsigned w = 0; w < threadIdx.x / kWarp; ++w) before += of_warp[w];
  return mine;
}

__device__ inline int64_t tiles_of_list(int64_t n) { return (n + kTile - 1) / kTile; }

__global__ void __launch_bounds__(kThreads) count_rows(Tasks tasks, Starts starts) {
  const SortTask& task = tasks.at[blockIdx.y];
  if (blockIdx.x >= tiles_of_list(task.n)) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.x * kEach;
  uint32_t before = 0;
  const uint32_t mine = count_starts(starts.keys[blockIdx.y], first, task.n, before);
  if (threadIdx.x == kThreads - 1) starts.tiles[blockIdx.y][blockIdx.x] = before + mine;
}

// One warp per list: there are few tiles.
__global__ void __launch_bounds__(kWarp) add_rows(Tasks tasks, Starts starts) {
  const SortTask& task = tasks.at[blockIdx.y];
  uint32_t* tiles = starts.tiles[blockIdx.y];
  const int64_t count = tiles_of_list(task.n);
  const unsigned lane = threadIdx.x;
  uint32_t place = 0;
  for (int64_t first = 0; first < count; first += kWarp) {
    const uint32_t mine = first + lane < count ? tiles[first + lane] : 0;
    uint32_t through = mine;
    for (unsigned d = 1; d < kWarp; d *= 2) {
      const uint32_t below = __shfl_up_sync(kAllLanes, through, d);
      if (lane >= d) through += below;
    }
    if (first + lane < count) tiles[first + lane] = place + through - mine;
    place += __shfl_sync(kAllLanes, through, kWarp - 1);
  }
  if (lane != 0) return;
  *task.count = place;
  task.begin[place] = static_cast<int32_t>(task.n);
}

__global__ void __launch_bounds__(kThreads) write_rows(Tasks tasks, Starts starts) {
  const SortTask& task = tasks.at[blockIdx.y];
  if (blockIdx.x >= tiles_of_list(task.n)) return;
  const uint64_t* keys = starts.keys[blockIdx.y];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.x * kEach;
  uint32_t place = 0;
  count_starts(keys, first, task.n, place);
  place += starts.tiles[blockIdx.y][blockIdx.x];
  for (int64_t i = first; i < first + kEach && i < task.n; ++i) {
    if (begins(keys, i)) {
      task.row[place] = static_cast<int32_t>(keys[i] >> 32);
      task.begin[place] = static_cast<int32_t>(i);
      ++place;
    }
    const auto low = static_cast<int64_t>(keys[i] & 0xffffffffU);
    if (task.weights == nullptr) {
      task.bag[i] = static_cast<int32_t>(low);
    } else {
      task.weight[i] = task.weights[low];
      task.bag[i] = starts.bags[blockIdx.y][low];
    }
  }
}

SortList list_of(const SortTask& task) { return {task.keys, task.spare, task.n, bits_below(task.rows), {}}; }

void sort_some(CudaStream stream, void* scratch, std::span<const SortTask> tasks) {
  Tasks all{};
  SortList lists[kTablesAtOnce] = {};
  int64_t most = 0;
  int64_t bags = 0;
  bool weighted = false;
  for (size_t i = 0; i < tasks.size(); ++i) {
    all.at[i] = tasks[i];
    lists[i] = list_of(tasks[i]);
    most = tasks[i].n > most ? tasks[i].n : most;
    bags = tasks[i].bags > bags ? tasks[i].bags : bags;
    weighted = weighted || tasks[i].weights != nullptr;
  }
  const auto count = static_cast<unsigned>(tasks.size());
  const std::span<const SortList> used(lists, tasks.size());
  const dim3 of_bags(static_cast<unsigned>(parts(bags, kThreads)), count);
  if (most > 0) TRIFOLD_LAUNCH(make_keys, of_bags, dim3(kThreads), 0, stream, all);
  sort_lists(stream, scratch, used);
  // The digits' counts are no longer needed; the tiles use their memory.
  Starts starts{};
  auto* tiles = static_cast<uint32_t*>(scratch);
  const bool in_spare = sorted_in_spare(sort_passes(used));
  for (size_t i = 0; i < tasks.size(); ++i) {
    starts.keys[i] = in_spare ? lists[i].spare : lists[i].keys;
    // The other half of the keys' memory is free now.
    if (tasks[i].weights != nullptr)
      starts.bags[i] = reinterpret_cast<int32_t*>(in_spare ? lists[i].keys : lists[i].spare);
    starts.tiles[i] = tiles;
    tiles += parts(lists[i].n, kTile);
  }
  if (most > 0 && weighted) TRIFOLD_LAUNCH(note_bags, of_bags, dim3(kThreads), 0, stream, all, starts);
  const dim3 grid(static_cast<unsigned>(parts(most, kTile)), count);
  if (most > 0) TRIFOLD_LAUNCH(count_rows, grid, dim3(kThreads), 0, stream, all, starts);
  TRIFOLD_LAUNCH(add_rows, dim3(1, count), dim3(kWarp), 0, stream, all, starts);
  if (most > 0) TRIFOLD_LAUNCH(write_rows, grid, dim3(kThreads), 0, stream, all, starts);
}

}  // namespace

size_t sort_scratch(std::span<const SortTask> tasks) {
  std::vector<int64_t> keys;
  keys.reserve(tasks.size());
  for (const SortTask& task : tasks) keys.push_back(task.n);
  return sort_workspace(keys);
}

void sort_lookups(CudaStream stream, void* scratch, std::span<const SortTask> tasks) {
  for (size_t begin = 0; begin < tasks.size(); begin += kTablesAtOnce) {
    const size_t left = tasks.size() - begin;
    sort_some(stream, scratch, tasks.subspan(begin, left < kTablesAtOnce ? left : kTablesAtOnce));
  }
}

}  // namespace trifold::cuda
