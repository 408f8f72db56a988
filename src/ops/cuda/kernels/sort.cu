#include "ops/cuda/kernels/sort.cuh"

#include "ops/cuda/kernels/group.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRounds = 8;  // keys per lane
constexpr int kTile = kThreads * kRounds;
constexpr int kMostDigit = 8;  // bits
constexpr int kDigits = 1 << kMostDigit;
static_assert(kTile == kSortTile && kDigits == kSortDigits);

// The arguments of one pass over a list. counts [kDigits][tiles]
struct Pass {
  const uint64_t* from;
  uint64_t* to;
  uint32_t* counts;
  int64_t n;
  int shift;
  int bits;
};
struct Passes {
  Pass at[kSortListsAtOnce];
};

__device__ inline int digit_of(uint64_t key, const Pass& pass) {
  return static_cast<int>(key >> pass.shift) & ((1 << pass.bits) - 1);
}

// A warp's keys of a tile are contiguous: in each round, adjacent lanes have adjacent keys.
__device__ inline int64_t key_place(int round) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return static_cast<int64_t>(blockIdx.x) * kTile + (warp * kRounds + round) * kWarp + lane;
}

// Counts this warp's digits in `counts` and computes the rank of each key of this lane among the warp's keys
// with the same digit. Keys beyond the end have the digit kDigits, which is not counted.
__device__ inline void rank_keys(uint32_t* counts, int (&digit)[kRounds], uint32_t (&rank)[kRounds],
                                 uint64_t (&key)[kRounds], const Pass& pass) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const int64_t at = key_place(k);
    key[k] = at < pass.n ? pass.from[at] : 0;
    digit[k] = at < pass.n ? digit_of(key[k], pass) : kDigits;
    const unsigned same = __match_any_sync(kAllLanes, digit[k]);
    const auto before = static_cast<uint32_t>(__popc(same & ((1U << lane) - 1)));
    const uint32_t earlier = digit[k] < kDigits ? counts[digit[k]] : 0;
    rank[k] = earlier + before;
    __syncwarp();
    if (before == 0 && digit[k] < kDigits) counts[digit[k]] = earlier + static_cast<uint32_t>(__popc(same));
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kThreads) count_digits(Passes passes) {
  __shared__ uint32_t counts[kWarps][kDigits];
  const Pass& pass = passes.at[blockIdx.y];
  const int64_t tiles = (pass.n + kTile - 1) / kTile;
  if (blockIdx.x >= tiles) return;
  const int thread = static_cast<int>(threadIdx.x);
  for (int w = 0; w < kWarps; ++w) counts[w][thread] = 0;
  __syncthreads();
  int digit[kRounds];
  uint32_t rank[kRounds];
  uint64_t key[kRounds];
  rank_keys(counts[thread / kWarp], digit, rank, key, pass);
  __syncthreads();
  uint32_t sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += counts[w][thread];
  pass.counts[thread * tiles + blockIdx.x] = sum;
}

// Turns counts into the positions at which each digit of each tile begins. One block per list.
__global__ void __launch_bounds__(kThreads) add_counts(Passes passes) {
  __shared__ uint32_t of_warp[kWarps];
  const Pass& pass = passes.at[blockIdx.y];
  const int64_t length = kDigits * ((pass.n + kTile - 1) / kTile);
  const int64_t each = (length + kThreads - 1) / kThreads;
  const int64_t first = threadIdx.x * each;
  const int64_t last = first + each < length ? first + each : length;
  uint32_t sum = 0;
  for (int64_t i = first; i < last; ++i) sum += pass.counts[i];
  uint32_t through = sum;  // the sum over this lane and lower ones
  const unsigned lane = threadIdx.x % kWarp;
  for (unsigned d = 1; d < kWarp; d *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, through, d);
    if (lane >= d) through += below;
  }
  if (lane == kWarp - 1) of_warp[threadIdx.x / kWarp] = through;
  __syncthreads();
  uint32_t place = through - sum;
  for (unsigned w = 0; w < threadIdx.x / kWarp; ++w) place += of_warp[w];
  for (int64_t i = first; i < last; ++i) {
    const uint32_t count = pass.counts[i];
    pass.counts[i] = place;
    place += count;
  }
}

__global__ void __launch_bounds__(kThreads) move_keys(Passes passes) {
  __shared__ uint32_t counts[kWarps][kDigits];
  const Pass& pass = passes.at[blockIdx.y];
  const int64_t tiles = (pass.n + kTile - 1) / kTile;
  if (blockIdx.x >= tiles) return;
  const int thread = static_cast<int>(threadIdx.x);
  for (int w = 0; w < kWarps; ++w) counts[w][thread] = 0;
  __syncthreads();
  int digit[kRounds];
  uint32_t rank[kRounds];
  uint64_t key[kRounds];
  rank_keys(counts[thread / kWarp], digit, rank, key, pass);
  __syncthreads();
  uint32_t place = pass.counts[thread * tiles + blockIdx.x];
  for (int w = 0; w < kWarps; ++w) {
    const uint32_t count = counts[w][thread];
    counts[w][thread] = place;
    place += count;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kRounds; ++k)
    if (digit[k] < kDigits) pass.to[counts[thread / kWarp][digit[k]] + rank[k]] = key[k];
}

int64_t tiles_of(int64_t n) { return parts(n, kTile); }

}  // namespace

int sort_passes(std::span<const SortList> lists) {
  int passes = 1;
  for (const SortList& list : lists) {
    const int wanted = (list.bits + kMostDigit - 1) / kMostDigit;
    passes = wanted > passes ? wanted : passes;
  }
  return passes;
}

void sort_lists(CudaStream stream, void* scratch, std::span<const SortList> lists) {
  const int passes = sort_passes(lists);
  int64_t most = 0;
  for (const SortList& list : lists) most = tiles_of(list.n) > most ? tiles_of(list.n) : most;
  if (most == 0) return;
  for (int p = 0; p < passes; ++p) {
    Passes all{};
    auto* counts = static_cast<uint32_t*>(scratch);
    for (size_t i = 0; i < lists.size(); ++i) {
      const SortList& list = lists[i];
      const int digit = (list.bits + passes - 1) / passes;
      const int shift = p * digit < list.bits ? p * digit : list.bits;
      const int bits = list.bits - shift < digit ? list.bits - shift : digit;
      all.at[i] = {p % 2 == 0 ? list.keys : list.spare,
                   p % 2 == 0 ? list.spare : list.keys,
                   counts,
                   list.n,
                   32 + shift,
                   bits};
      counts += tiles_of(list.n) * kDigits;
    }
    const dim3 grid(static_cast<unsigned>(most), static_cast<unsigned>(lists.size()));
    TRIFOLD_LAUNCH(count_digits, grid, dim3(kThreads), 0, stream, all);
    TRIFOLD_LAUNCH(add_counts, dim3(1, grid.y), dim3(kThreads), 0, stream, all);
    TRIFOLD_LAUNCH(move_keys, grid, dim3(kThreads), 0, stream, all);
  }
}

}  // namespace trifold::cuda
