#include "ops/cuda/kernels/sort.cuh"

#include "ops/cuda/kernels/group.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRounds = 4;  // keys per lane
constexpr int kTile = kThreads * kRounds;
constexpr int kMostDigit = 9;  // bits of a digit: 18 bits, the ids of 256 thousand tokens, take two passes
constexpr int kDigits = 1 << kMostDigit;
static_assert(kTile == kSortTile && kDigits == kSortDigits);
static_assert(kDigits == kThreads);  // a thread for each digit

// Lists of at most so many tiles need no launch of add_counts: each tile adds up the counts of earlier tiles.
constexpr int64_t kFewTiles = 32;

// The counts of a pass that the pass before makes, while it moves keys: [tiles][1 << bits]; null if it makes none.
struct NextCounts {
  uint32_t* at = nullptr;
  int shift = 0;
  int bits = 0;
  __device__ inline int digits() const { return 1 << bits; }
};

// The arguments of one pass over a list. counts [tiles + 1][digits]; the last row is for the totals of add_counts.
struct Pass {
  const uint64_t* from;
  uint64_t* to;
  uint32_t* counts;
  int64_t n;
  SortIds ids;  // if set, read instead of `from`
  int shift;
  int bits;
  NextCounts next;
  __device__ inline int digits() const { return 1 << bits; }
  __device__ inline int64_t tiles() const { return (n + kTile - 1) / kTile; }
};
struct Passes {
  Pass at[kSortListsAtOnce];
};
static_assert(sizeof(Passes) <= 4096, "the arguments of a launch");

// The keys of a thread, with the digit of each. A warp's keys of a tile are contiguous: in each round, adjacent
// lanes have adjacent keys. Keys beyond the end have the digit kDigits, which is not counted.
struct Keys {
  uint64_t key[kRounds];
  int digit[kRounds];

  __device__ inline void load(const Pass& pass) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile + warp * kRounds * kWarp + lane;
    const int64_t end = pass.n - 1;
    if (pass.ids.at == nullptr) {
#pragma unroll
      for (int k = 0; k < kRounds; ++k) key[k] = pass.from[first + k * kWarp < end ? first + k * kWarp : end];
    } else {
      int64_t id[kRounds];
#pragma unroll
      for (int k = 0; k < kRounds; ++k)
        id[k] = pass.ids.at[first + k * kWarp < end ? first + k * kWarp : end] - pass.ids.first;
#pragma unroll
      for (int k = 0; k < kRounds; ++k) {
        const bool held = id[k] >= 0 && id[k] < pass.ids.held;
        key[k] = static_cast<uint64_t>(held ? id[k] : pass.ids.held) << 32 |
                 static_cast<uint64_t>(first + k * kWarp);
      }
    }
#pragma unroll
    for (int k = 0; k < kRounds; ++k)
      digit[k] =
          first + k * kWarp <= end ? static_cast<int>(key[k] >> pass.shift) & (pass.digits() - 1) : kDigits;
  }

  // Counts this warp's digits in `counts`, which holds zeros, and computes the rank of each key of this lane
  // among the warp's keys with the same digit.
  __device__ inline void rank(uint32_t* counts, uint32_t (&ranks)[kRounds]) const {
    const unsigned lane = threadIdx.x % kWarp;
    unsigned same[kRounds];
#pragma unroll
    for (int k = 0; k < kRounds; ++k) same[k] = __match_any_sync(kAllLanes, digit[k]);
#pragma unroll
    for (int k = 0; k < kRounds; ++k) {
      const auto before = static_cast<uint32_t>(__popc(same[k] & ((1U << lane) - 1)));
      const uint32_t earlier = digit[k] < kDigits ? counts[digit[k]] : 0;
      ranks[k] = earlier + before;
      __syncwarp();
      if (before == 0 && digit[k] < kDigits)
        counts[digit[k]] = earlier + static_cast<uint32_t>(__popc(same[k]));
      __syncwarp();
    }
  }
};

__device__ inline void clear(uint32_t (&counts)[kWarps][kDigits]) {
#pragma unroll
  for (int w = 0; w < kWarps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads) count_digits(Passes passes) {
  __shared__ uint32_t counts[kWarps][kDigits];
  const Pass& pass = passes.at[blockIdx.y];
  if (blockIdx.x >= pass.tiles()) return;
  const int thread = static_cast<int>(threadIdx.x);
  Keys keys;
  keys.load(pass);
  if (pass.next.at != nullptr && thread < pass.next.digits())
    pass.next.at[static_cast<int64_t>(blockIdx.x) * pass.next.digits() + thread] = 0;
  clear(counts);
  uint32_t rank[kRounds];
  keys.rank(counts[thread / kWarp], rank);
  __syncthreads();
  if (thread >= pass.digits()) return;
  uint32_t sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += counts[w][thread];
  pass.counts[static_cast<int64_t>(blockIdx.x) * pass.digits() + thread] = sum;
}

// For lists of many tiles: replaces each count of a digit by its sum over earlier tiles, and writes the total. One
// lane per digit; the warps of a block divide the tiles.
__global__ void __launch_bounds__(kThreads) add_counts(Passes passes) {
  __shared__ uint32_t of_warp[kWarps][kWarp];
  const Pass& pass = passes.at[blockIdx.y];
  if (pass.tiles() <= kFewTiles) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int digits = pass.digits();
  const int digit = static_cast<int>(blockIdx.x) * kWarp + lane;
  const int64_t tiles = digit < digits ? pass.tiles() : 0;
  const int64_t each = (tiles + kWarps - 1) / kWarps;
  const int64_t first = warp * each;
  const int64_t last = first + each < tiles ? first + each : tiles;
  uint32_t sum = 0;
#pragma unroll 8
  for (int64_t t = first; t < last; ++t) sum += pass.counts[t * digits + digit];
  of_warp[warp][lane] = sum;
  __syncthreads();
  uint32_t place = 0;
  for (int w = 0; w < warp; ++w) place += of_warp[w][lane];
  for (int64_t t = first; t < last; ++t) {
    const uint32_t count = pass.counts[t * digits + digit];
    pass.counts[t * digits + digit] = place;
    place += count;
  }
  if (warp == kWarps - 1 && digit < digits) pass.counts[tiles * digits + digit] = place;
}

// The sum over all lower threads of the block.
__device__ inline uint32_t sum_below(uint32_t mine) {
  __shared__ uint32_t of_warp[kWarps];
  uint32_t through = mine;  // the sum over this lane and lower ones
  const unsigned lane = threadIdx.x % kWarp;
  for (unsigned d = 1; d < kWarp; d *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, through, d);
    if (lane >= d) through += below;
  }
  if (lane == kWarp - 1) of_warp[threadIdx.x / kWarp] = through;
  __syncthreads();
  uint32_t sum = through - mine;
  for (unsigned w = 0; w < threadIdx.x / kWarp; ++w) sum += of_warp[w];
  return sum;
}

// The position, in the sorted list, of this block's first key with this thread's digit.
__device__ inline uint32_t place_of_digit(const Pass& pass) {
  const int digits = pass.digits();
  const int digit = static_cast<int>(threadIdx.x);
  const int64_t tiles = pass.tiles();
  const auto tile = static_cast<int64_t>(blockIdx.x);
  uint32_t before = 0;  // keys with the digit in earlier tiles
  uint32_t total = 0;
  if (digit < digits && tiles <= kFewTiles) {
#pragma unroll 16
    for (int64_t t = 0; t < tiles; ++t) {
      const uint32_t count = pass.counts[t * digits + digit];
      total += count;
      before += t < tile ? count : 0;
    }
  } else if (digit < digits) {
    before = pass.counts[tile * digits + digit];
    total = pass.counts[tiles * digits + digit];
  }
  return before + sum_below(total);
}

__device__ inline void add_to_count(uint32_t* count, uint32_t amount) {
#if defined(TRIFOLD_CUDA_EMULATION)
  __atomic_fetch_add(count, amount, __ATOMIC_RELAXED);
#else
  atomicAdd(count, amount);
#endif
}

// Counts the digits of the next pass in the tiles that keys are moved to. Integer sums do not depend on the
// order.
// Lanes with the same digit and tile add once.
__device__ inline void count_next(const NextCounts& next, const Keys& keys,
                                  const uint32_t (&positions)[kRounds]) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const int digit = static_cast<int>(keys.key[k] >> next.shift) & (next.digits() - 1);
    const int64_t place = keys.digit[k] < kDigits
                              ? static_cast<int64_t>(positions[k] / kTile) * next.digits() + digit
                              : int64_t{-1};
    const unsigned same = __match_any_sync(kAllLanes, place);
    if (place >= 0 && (same & ((1U << lane) - 1)) == 0)
      add_to_count(next.at + place, static_cast<uint32_t>(__popc(same)));
  }
}

__global__ void __launch_bounds__(kThreads) move_keys(Passes passes) {
  __shared__ uint32_t counts[kWarps][kDigits];
  const Pass& pass = passes.at[blockIdx.y];
  if (blockIdx.x >= pass.tiles()) return;
  const int thread = static_cast<int>(threadIdx.x);
  Keys keys;
  keys.load(pass);
  uint32_t place = place_of_digit(pass);
  clear(counts);
  uint32_t rank[kRounds];
  keys.rank(counts[thread / kWarp], rank);
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const uint32_t count = counts[w][thread];
    counts[w][thread] = place;
    place += count;
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    if (keys.digit[k] == kDigits) continue;
    rank[k] += counts[thread / kWarp][keys.digit[k]];  // now the key's position
    pass.to[rank[k]] = keys.key[k];
  }
  if (pass.next.at != nullptr) count_next(pass.next, keys, rank);
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
  int64_t tiles = 0;
  for (const SortList& list : lists) tiles += tiles_of(list.n) + 1;
  // The first pass also counts for the second, whose counts are behind its own.
  const auto counts_of_pass = [&](int p) {
    return static_cast<uint32_t*>(scratch) + (p == 1 ? tiles * kDigits : 0);
  };
  const auto digit_of = [&](const SortList& list, int p) {
    const int digit = (list.bits + passes - 1) / passes;
    const int shift = p * digit < list.bits ? p * digit : list.bits;
    return NextCounts{nullptr, 32 + shift, list.bits - shift < digit ? list.bits - shift : digit};
  };
  for (int p = 0; p < passes; ++p) {
    Passes all{};
    int64_t first = 0;  // tile of a list
    for (size_t i = 0; i < lists.size(); ++i) {
      const SortList& list = lists[i];
      const NextCounts digit = digit_of(list, p);
      all.at[i] = {p % 2 == 0 ? list.keys : list.spare,
                   p % 2 == 0 ? list.spare : list.keys,
                   counts_of_pass(p) + first * kDigits,
                   list.n,
                   p == 0 ? list.ids : SortIds{},
                   digit.shift,
                   digit.bits,
                   {}};
      if (p == 0 && passes > 1) {
        all.at[i].next = digit_of(list, 1);
        all.at[i].next.at = counts_of_pass(1) + first * kDigits;
      }
      first += tiles_of(list.n) + 1;
    }
    const dim3 grid(static_cast<unsigned>(most), static_cast<unsigned>(lists.size()));
    if (p != 1) TRIFOLD_LAUNCH(count_digits, grid, dim3(kThreads), 0, stream, all);
    if (most > kFewTiles)
      TRIFOLD_LAUNCH(add_counts, dim3(kDigits / kWarp, grid.y), dim3(kThreads), 0, stream, all);
    TRIFOLD_LAUNCH(move_keys, grid, dim3(kThreads), 0, stream, all);
  }
}

}  // namespace trifold::cuda
