// Table rows by id. Backward first sorts the rows of dy by id, so that every row of the table is processed by
// one warp (few rows of dy) or, a strip of columns at a time, by one block (many), and sums have a fixed order.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/sort.cuh"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(T* y, const T* table, const int32_t* ids, int64_t all_packs, uint32_t row_packs,
                     int64_t columns, int64_t first_id, int64_t held, bool accumulate, bool aligned) {
  constexpr int kPer = kPerPack<T>;
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= all_packs) return;
  const int64_t row = all_packs <= 0xffffffff ? static_cast<uint32_t>(pack) / row_packs : pack / row_packs;
  const int64_t column = (pack - row * row_packs) * kPer;
  const int count = count_at(column, columns, kPer);
  const int64_t id = ids[row] - first_id;
  const bool here = id >= 0 && id < held;
  if (!here && accumulate) return;
  FullPack<T> numbers{};
  if (here) numbers.load(table + id * columns + column, count, aligned);
  T* out = y + row * columns + column;
  if (accumulate) {
    FullPack<T> old;
    old.load(out, count, aligned);
#pragma unroll
    for (int i = 0; i < kPer; ++i)
      if (i < count) put(numbers.at[i], value(old.at[i]) + value(numbers.at[i]));
  }
  numbers.store(out, count, aligned);
}

// The rows of one id that a warp sums; more are summed by a block.
constexpr int kFew = kWarp;

// The sorted keys of all rows of dy, which are ids with their rows.
struct Sorted {
  const uint64_t* keys;
  int64_t rows, held;
  __device__ inline uint64_t key(int64_t i) const { return keys[i < 0 ? 0 : i < rows ? i : rows - 1]; }
};
__device__ inline int64_t id_of(uint64_t key) { return static_cast<int64_t>(key >> 32); }
__device__ inline int64_t row_of(uint64_t key) { return static_cast<int64_t>(key & 0xffffffffU); }

// Rows of dy that a thread loads before it adds the first of them: an SM has few threads, which must keep the
// memory busy.
constexpr int kAhead = 4;
// With at most kFewest rows a warp takes kStripsAtOnce strips instead: most ids of a text have one row or two.
constexpr int kFewest = 2;
constexpr int kStripsAtOnce = 2;

// Adds the rows row(0), row(1), ... row(count - 1) of dy to `sums`, for one pack of columns of each of Strips strips, which
// are `apart` elements apart; none of a strip whose `here` is 0. `Rows` rows are loaded before the first is
// added. Whole: rows
// consist of whole, aligned packs.
template <bool Whole, int Strips, int Rows, class T, class Row>
__device__ inline void add_rows(Accumulate<T> (&sums)[Strips][kPerPack<T>], const T* dy, Row row,
                                int64_t count, int64_t columns, int64_t apart, const int (&here)[Strips]) {
  for (int64_t i = 0; i < count; i += Rows) {
    int64_t at[Rows];
    FullPack<T> packs[Rows][Strips];
#pragma unroll
    for (int j = 0; j < Rows; ++j) at[j] = row(i + j);
#pragma unroll
    for (int j = 0; j < Rows; ++j)
#pragma unroll
      for (int s = 0; s < Strips; ++s)
        if (here[s] > 0 && i + j < count)
          packs[j][s].template load<Whole>(dy + at[j] * columns + s * apart, here[s]);
#pragma unroll
    for (int j = 0; j < Rows; ++j)
#pragma unroll
      for (int s = 0; s < Strips; ++s) {
        if (here[s] == 0 || i + j >= count) continue;
#pragma unroll
        for (int k = 0; k < kPerPack<T>; ++k)
          if (Whole || k < here[s]) sums[s][k] += value(packs[j][s].at[k]);
      }
  }
}

// This warp's strips of columns, every step-th.
struct ColumnStrips {
  int64_t columns, first, step;
};

// Adds `count` rows of dy, whose indices the lanes hold, to the row `out` of the table: Strips strips of columns at a time.
template <bool Whole, int Strips, int Rows, class T>
__device__ inline void add_to_row(Accumulate<T>* out, const T* dy, uint32_t row_of_lane, int count,
                                  const ColumnStrips& strips) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t apart = strips.step * kWarp * kPer;
  for (int64_t strip = strips.first; strip * kWarp * kPer < strips.columns; strip += Strips * strips.step) {
    const int64_t column = (strip * kWarp + lane) * kPer;
    int here[Strips];
    Numbers<Wide, kPer> totals[Strips];
#pragma unroll
    for (int s = 0; s < Strips; ++s) {
      here[s] = count_at(column + s * apart, strips.columns, kPer);
      if (here[s] > 0)
        totals[s].template load<Whole>(out + column + s * apart, here[s]);  // while the rows are
    }
    Wide sums[Strips][kPer] = {};
    const auto row_at = [&](int64_t i) {
      return static_cast<int64_t>(__shfl_sync(kAllLanes, row_of_lane, static_cast<int>(i) % kWarp));
    };
    add_rows<Whole, Strips, Rows>(sums, dy + column, row_at, count, strips.columns, apart, here);
#pragma unroll
    for (int s = 0; s < Strips; ++s) {
      if (here[s] == 0) continue;
#pragma unroll
      for (int k = 0; k < kPer; ++k)
        if (Whole || k < here[s]) totals[s].at[k] += sums[s][k];
      totals[s].template store<Whole>(out + column + s * apart, here[s]);
    }
  }
}

// The work of a warp at position `first` of the sorted list: it sums the rows of the id that begins there, if they
// are few. All keys that it needs are in flight at once, one in each lane.
template <bool Whole, class T>
__device__ inline void add_few(Accumulate<T>* dtable, const T* dy, const Sorted& sorted, int64_t first,
                               const ColumnStrips& strips) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const uint64_t mine = sorted.key(first + lane);
  const uint64_t before = sorted.key(first - 1);
  const uint64_t behind = sorted.key(first + kFew);
  const int64_t id = __shfl_sync(kAllLanes, id_of(mine), 0);
  const int count = __popc(__ballot_sync(kAllLanes, first + lane < sorted.rows && id_of(mine) == id));
  const bool begun = first > 0 && id_of(before) == id;
  const bool many = first + kFew < sorted.rows && id_of(behind) == id;
  // One branch after all three loads: each earlier one would wait for those before it.
  if (static_cast<int>(id >= sorted.held) + static_cast<int>(begun) + static_cast<int>(many) > 0) return;
  const auto row = static_cast<uint32_t>(row_of(mine));
  Accumulate<T>* const out = dtable + id * strips.columns;
  if (Whole && count <= kFewest)  // odd shapes would need more registers than there are
    add_to_row<true, kStripsAtOnce, kFewest>(out, dy, row, count, strips);
  else
    add_to_row<Whole, 1, kAhead>(out, dy, row, count, strips);
}

constexpr int kWarps = kThreads / kWarp;

// The first position after `low` with another id.
__device__ inline int64_t end_of_id(const Sorted& sorted, int64_t low) {
  const int64_t id = id_of(sorted.keys[low]);
  int64_t end = sorted.rows;
  while (end - low > 1) {
    const int64_t middle = low + (end - low) / 2;
    if (id_of(sorted.keys[middle]) == id)
      low = middle;
    else
      end = middle;
  }
  return end;
}

// The work of a block for kWarps * kFew positions and one strip of columns: it sums the rows of each id with many rows
// that begins there; at most one begins in kFew positions. Each warp takes every eighth row, and then the warps' sums
// are added in order.
template <bool Whole, class T>
__device__ inline void add_many(Accumulate<T>* dtable, const T* dy, const Sorted& sorted, int64_t group,
                                const ColumnStrips& strips) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  __shared__ Wide of_warp[kWarps][kWarp * kPer];
  __shared__ int64_t begins[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t mine = (group * kWarps + warp) * kFew + lane;
  const int64_t its = id_of(sorted.key(mine));
  const bool begun = mine > 0 && id_of(sorted.key(mine - 1)) == its;
  const bool many = mine + kFew < sorted.rows && id_of(sorted.key(mine + kFew)) == its;
  const unsigned found = __ballot_sync(kAllLanes, many && !begun && its < sorted.held);
  if (lane == 0) begins[warp] = -1;
  __syncwarp();
  if ((found >> lane & 1U) != 0) begins[warp] = mine;
  __syncthreads();
  const int64_t column = (strips.first * kWarp + lane) * kPer;
  const int here[] = {count_at(column, strips.columns, kPer)};
  for (int w = 0; w < kWarps; ++w) {
    const int64_t first = begins[w];
    if (first < 0) continue;
    const int64_t last = end_of_id(sorted, first + kFew);
    Wide sums[1][kPer] = {};
    const auto row_at = [&](int64_t i) { return row_of(sorted.key(first + warp + i * kWarps)); };
    add_rows<Whole, 1, kAhead>(sums, dy + column, row_at, (last - first - warp + kWarps - 1) / kWarps,
                               strips.columns, 0, here);
#pragma unroll
    for (int k = 0; k < kPer; ++k) of_warp[warp][lane * kPer + k] = sums[0][k];
    __syncthreads();
    Wide* out = dtable + id_of(sorted.keys[first]) * strips.columns;
    for (int c = static_cast<int>(threadIdx.x); c < kWarp * kPer; c += kThreads) {
      const int64_t at = strips.first * kWarp * kPer + c;
      if (at >= strips.columns) continue;
      Wide total = of_warp[0][c];
      for (int v = 1; v < kWarps; ++v) total += of_warp[v][c];
      out[at] += total;
    }
    __syncthreads();
  }
}

// The division of work among blocks. The first groups * strips blocks process ids with many rows, which take longest:
// one for each group of positions and each strip of columns. The other blocks process ids with few rows: `blocks` for
// all positions, times warp_strips, where a warp takes every warp_strips-th strip.
struct Division {
  unsigned groups, strips, blocks, warp_strips;
};
Division division_of(int64_t rows, int64_t columns, int per) {
  constexpr int64_t kEnoughWarps = 16384;
  const int64_t strips = parts(columns, kWarp * per);
  const int64_t split = kEnoughWarps / rows < 1 ? 1 : kEnoughWarps / rows;
  return {static_cast<unsigned>(parts(rows, kWarps * kFew)), static_cast<unsigned>(strips),
          static_cast<unsigned>(parts(rows, kWarps)), static_cast<unsigned>(split < strips ? split : strips)};
}

template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads, 3)
    add_by_id(Accumulate<T>* dtable, const T* dy, Sorted sorted, int64_t columns, Division division) {
  const unsigned block = blockIdx.x;
  const unsigned many = division.groups * division.strips;
  if (block < many) {
    add_many<Whole>(dtable, dy, sorted, block / division.strips, {columns, block % division.strips, 1});
    return;
  }
  const unsigned strip = (block - many) / division.blocks;
  const int64_t first = static_cast<int64_t>((block - many) % division.blocks) * kWarps + threadIdx.x / kWarp;
  if (first < sorted.rows) add_few<Whole>(dtable, dy, sorted, first, {columns, strip, division.warp_strips});
}

SortList list_of(void* scratch, int64_t rows, const SortIds& ids) {
  auto* keys = static_cast<uint64_t*>(scratch);
  return {keys, keys + rows, rows, bits_below(ids.held + 1), ids};
}

}  // namespace

template <class T>
void embedding(CudaStream stream, T* y, const T* table, const int32_t* ids, int64_t rows, int64_t columns,
               int64_t first_id, int64_t held, bool accumulate) {
  const int64_t row_packs = parts(columns, kPerPack<T>);
  const int64_t all = rows * row_packs;
  if (all == 0) return;
  TRIFOLD_LAUNCH((embedding_kernel<T>), dim3(static_cast<unsigned>(parts(all, kThreads))), dim3(kThreads), 0,
                 stream, y, table, ids, all, static_cast<uint32_t>(row_packs), columns, first_id, held,
                 accumulate, packs<T>(columns, y, table));
}

// Two copies of the keys, then the scratch for sorting them.
size_t embedding_scratch(int64_t rows) { return embedding_workspace(rows); }

template <class T>
void embedding_backward(CudaStream stream, void* scratch, Accumulate<T>* dtable, const T* dy,
                        const int32_t* ids, int64_t rows, int64_t columns, int64_t first_id, int64_t held) {
  if (rows == 0 || columns == 0) return;
  const SortList list = list_of(scratch, rows, {ids, first_id, held});
  sort_lists(stream, list.spare + rows, {&list, 1});
  const Sorted sorted{sorted_in_spare(sort_passes({&list, 1})) ? list.spare : list.keys, rows, held};
  const Division division = division_of(rows, columns, kPerPack<T>);
  const auto kernel = packs<T>(columns, dy, dtable) ? add_by_id<T, true> : add_by_id<T, false>;
  TRIFOLD_LAUNCH(kernel, dim3(division.groups * division.strips + division.blocks * division.warp_strips),
                 dim3(kThreads), 0, stream, dtable, dy, sorted, columns, division);
}

#define INSTANTIATE(T)                                                                                      \
  template void embedding<T>(CudaStream, T*, const T*, const int32_t*, int64_t, int64_t, int64_t, int64_t,  \
                             bool);                                                                         \
  template void embedding_backward<T>(CudaStream, void*, Accumulate<T>*, const T*, const int32_t*, int64_t, \
                                      int64_t, int64_t, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
