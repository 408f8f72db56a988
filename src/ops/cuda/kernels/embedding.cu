// Table rows by id. Backward first sorts the rows of dy by id, so that every row of the table is processed by
// one warp (few rows of dy) or one block (many), and sums have a fixed order.
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

// Ids that are not held are sorted after all others.
__global__ void __launch_bounds__(kThreads)
    make_keys(uint64_t* keys, const int32_t* ids, int64_t rows, int64_t first_id, int64_t held) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (r >= rows) return;
  const int64_t id = ids[r] - first_id;
  const auto word = static_cast<uint64_t>(id >= 0 && id < held ? id : held);
  keys[r] = word << 32 | static_cast<uint64_t>(r);
}

// The rows of one id that a warp sums; more are summed by a block.
constexpr int64_t kFew = 32;

__device__ inline int64_t id_at(const uint64_t* keys, int64_t i) {
  return static_cast<int64_t>(keys[i] >> 32);
}
__device__ inline int64_t row_at(const uint64_t* keys, int64_t i) {
  return static_cast<int64_t>(keys[i] & 0xffffffffU);
}

// Rows of dy that a thread loads before it adds the first of them: an SM has few threads, which must keep the
// memory busy.
constexpr int kAhead = 4;

// The sum of the rows keys[first], keys[first + step], ... before `last`, for one pack of columns. The
// indices of kAhead rows are loaded at once, then the rows, and then the rows are added. Whole: rows consist
// of whole, aligned packs.
template <bool Whole, class T>
__device__ inline void add_rows(Accumulate<T> (&sum)[kPerPack<T>], const T* dy, const uint64_t* keys,
                                int64_t first, int64_t last, int64_t step, int64_t columns, int64_t column,
                                int count) {
  for (int64_t i = first; i < last; i += kAhead * step) {
    int64_t row[kAhead];
    FullPack<T> packs[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (i + j * step < last) row[j] = row_at(keys, i + j * step);
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (i + j * step < last) packs[j].template load<Whole>(dy + row[j] * columns + column, count);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (i + j * step >= last) continue;
#pragma unroll
      for (int k = 0; k < kPerPack<T>; ++k)
        if (Whole || k < count) sum[k] += value(packs[j].at[k]);
    }
  }
}

// One warp for each position of the sorted list and strip of columns; it has work if an id begins there.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads) add_few(Accumulate<T>* dtable, const T* dy, const uint64_t* keys,
                                                    int64_t rows, int64_t columns, int64_t held) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (first >= rows) return;
  const int64_t id = id_at(keys, first);
  if (id >= held || (first > 0 && id_at(keys, first - 1) == id)) return;
  if (first + kFew < rows && id_at(keys, first + kFew) == id) return;
  int64_t last = first + 1;
  while (last < rows && id_at(keys, last) == id) ++last;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kWarp + threadIdx.x % kWarp) * kPer;
  const int count = count_at(column, columns, kPer);
  if (count == 0) return;
  Wide* out = dtable + id * columns + column;
  Numbers<Wide, kPer> total;
  total.template load<Whole>(out, count);  // loaded while the rows are
  Wide sum[kPer] = {};
  add_rows<Whole>(sum, dy, keys, first, last, 1, columns, column, count);
#pragma unroll
  for (int k = 0; k < kPer; ++k)
    if (Whole || k < count) total.at[k] += sum[k];
  total.template store<Whole>(out, count);
}

// One block for each kFew positions and strip of columns: at most one id with more rows than that begins
// there. Its warps take every eighth row, and then their sums are added in order.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads, 1)
    add_many(Accumulate<T>* dtable, const T* dy, const uint64_t* keys, int64_t rows, int64_t columns,
             int64_t held) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  constexpr int kWarps = kThreads / kWarp;
  __shared__ Wide of_warp[kWarps][kWarp * kPer];
  // The last position in this range at which an id begins.
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kFew;
  const int64_t end = begin + kFew < rows ? begin + kFew : rows;
  int64_t first = end - 1;
  const int64_t id = id_at(keys, first);
  if (id >= held || first + 1 >= rows || id_at(keys, first + 1) != id) return;  // the id ends here: few rows
  while (first > begin && id_at(keys, first - 1) == id) --first;
  if (first == begin && first > 0 && id_at(keys, first - 1) == id) return;  // the id began earlier
  if (first + kFew >= rows || id_at(keys, first + kFew) != id) return;
  int64_t low = first + kFew;  // has the id
  int64_t last = rows;         // does not have it, or is the end
  while (last - low > 1) {
    const int64_t middle = low + (last - low) / 2;
    if (id_at(keys, middle) == id)
      low = middle;
    else
      last = middle;
  }
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kWarp + lane) * kPer;
  const int count = count_at(column, columns, kPer);
  Wide sum[kPer] = {};
  if (count > 0) add_rows<Whole>(sum, dy, keys, first + warp, last, kWarps, columns, column, count);
#pragma unroll
  for (int k = 0; k < kPer; ++k) of_warp[warp][lane * kPer + k] = sum[k];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < kWarp * kPer; c += kThreads) {
    const int64_t at = static_cast<int64_t>(blockIdx.y) * kWarp * kPer + c;
    if (at >= columns) continue;
    Wide total = of_warp[0][c];
    for (int w = 1; w < kWarps; ++w) total += of_warp[w][c];
    dtable[id * columns + at] += total;
  }
}

SortList list_of(void* scratch, int64_t rows, int64_t held) {
  auto* keys = static_cast<uint64_t*>(scratch);
  return {keys, keys + rows, rows, bits_below(held + 1)};
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
  const SortList list = list_of(scratch, rows, held);
  TRIFOLD_LAUNCH(make_keys, dim3(static_cast<unsigned>(parts(rows, kThreads))), dim3(kThreads), 0, stream,
                 list.keys, ids, rows, first_id, held);
  sort_lists(stream, list.spare + rows, {&list, 1});
  const uint64_t* keys = sorted_in_spare(sort_passes({&list, 1})) ? list.spare : list.keys;
  const auto strips = static_cast<unsigned>(parts(columns, kWarp * kPerPack<T>));
  const bool whole = packs<T>(columns, dy, dtable);
  const auto few = whole ? add_few<T, true> : add_few<T, false>;
  const auto many = whole ? add_many<T, true> : add_many<T, false>;
  TRIFOLD_LAUNCH(few, dim3(static_cast<unsigned>(parts(rows, kThreads / kWarp)), strips), dim3(kThreads), 0,
                 stream, dtable, dy, keys, rows, columns, held);
  TRIFOLD_LAUNCH(many, dim3(static_cast<unsigned>(parts(rows, kFew)), strips), dim3(kThreads), 0, stream,
                 dtable, dy, keys, rows, columns, held);
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
