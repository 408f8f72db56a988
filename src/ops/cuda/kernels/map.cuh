// Maps: one kernel template for all elementwise operations. Arrays are matrices with the same number of rows and
// columns, each with its own row stride (0: one row is used for all); flat arrays are matrices of one row. A functor is
// called with one element of each array, in the order of the arrays and in the type of computation; elements of Out and
// Both arrays are passed by reference.
#pragma once

#include "ops/cuda/kernels/pack.cuh"

namespace trifold::cuda {

template <class T>
struct In {
  using Number = T;
  const T* data;
  int64_t stride = 0;
  static constexpr bool kReads = true;
  static constexpr bool kWrites = false;
};
template <class T>
struct Out {
  using Number = T;
  T* data;
  int64_t stride = 0;
  static constexpr bool kReads = false;
  static constexpr bool kWrites = true;
};
template <class T>
struct Both {
  using Number = T;
  T* data;
  int64_t stride = 0;
  static constexpr bool kReads = true;
  static constexpr bool kWrites = true;
};

struct MapShape {
  int64_t packs;  // packs of all rows
  int64_t columns;
  uint32_t row_packs;
  bool flat;  // there is one row
  bool aligned;
};

// N consecutive elements of each array at one position.
template <int N, class... Arrays>
struct Slots {
  __device__ inline void load(int64_t, int64_t, int, bool) {}
  __device__ inline void store(int64_t, int64_t, int, bool) const {}
  template <class F, class... Refs>
  __device__ inline void apply(const F& f, int, Refs&... refs) {
    f(refs...);
  }
};
template <int N, class Array, class... Rest>
struct Slots<N, Array, Rest...> {
  using T = typename Array::Number;
  using Wide = decltype(value(T{}));
  Array array;
  Numbers<T, N> numbers;
  Slots<N, Rest...> rest;

  __device__ inline explicit Slots(const Array& a, const Rest&... others) : array(a), rest(others...) {}

  __device__ inline void load(int64_t row, int64_t column, int count, bool aligned) {
    if constexpr (Array::kReads) numbers.load(array.data + row * array.stride + column, count, aligned);
    rest.load(row, column, count, aligned);
  }
  __device__ inline void store(int64_t row, int64_t column, int count, bool aligned) const {
    if constexpr (Array::kWrites) numbers.store(array.data + row * array.stride + column, count, aligned);
    rest.store(row, column, count, aligned);
  }
  template <class F, class... Refs>
  __device__ inline void apply(const F& f, int i, Refs&... refs) {
    Wide x{};
    if constexpr (Array::kReads) x = value(numbers.at[i]);
    rest.apply(f, i, refs..., x);
    if constexpr (Array::kWrites) put(numbers.at[i], x);
  }
};

// Bytes of the largest type, which decides the number of elements in a pack.
template <class... Arrays>
inline constexpr int kLargest = [] {
  int most = 0;
  ((most = most > static_cast<int>(sizeof(typename Arrays::Number))
               ? most
               : static_cast<int>(sizeof(typename Arrays::Number))),
   ...);
  return most;
}();

constexpr int kMapThreads = 256;
constexpr int kMapPacks = 2;  // per thread: two loads of each array are in flight at a time

struct MapRange {
  int64_t row, column;
  int count;
};
__device__ inline MapRange range_of(int64_t pack, const MapShape& shape, int per) {
  if (pack >= shape.packs) return {0, 0, 0};
  int64_t row = 0;
  int64_t column = pack;
  if (!shape.flat) {
    // A 64-bit division is slow; 32 bits usually suffice.
    row = shape.packs <= 0xffffffff ? static_cast<uint32_t>(pack) / shape.row_packs : pack / shape.row_packs;
    column = pack - row * shape.row_packs;
  }
  column *= per;
  return {row, column, count_at(column, shape.columns, per)};
}

template <int N, class F, class... Arrays>
__global__ void __launch_bounds__(kMapThreads, 1) map_kernel(F f, MapShape shape, Arrays... arrays) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kMapThreads * kMapPacks) + threadIdx.x;
  Slots<N, Arrays...> one(arrays...);
  Slots<N, Arrays...> two(arrays...);
  const MapRange first_range = range_of(first, shape, N);
  const MapRange second_range = range_of(first + kMapThreads, shape, N);
  one.load(first_range.row, first_range.column, first_range.count, shape.aligned);
  two.load(second_range.row, second_range.column, second_range.count, shape.aligned);
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < first_range.count) one.apply(f, i);
  one.store(first_range.row, first_range.column, first_range.count, shape.aligned);
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i < second_range.count) two.apply(f, i);
  two.store(second_range.row, second_range.column, second_range.count, shape.aligned);
}

template <class Array>
uint64_t alignment_bits(const Array& array, int per) {
  const uint64_t size = sizeof(typename Array::Number);
  // An array of a smaller type is moved in smaller words.
  const uint64_t word = size * static_cast<uint64_t>(per) > 16 ? 16 : size * static_cast<uint64_t>(per);
  return (reinterpret_cast<uint64_t>(array.data) | (static_cast<uint64_t>(array.stride) * size)) % word;
}

template <class F, class... Arrays>
void map_rows(CudaStream stream, int64_t rows, int64_t columns, const F& f, Arrays... arrays) {
  if (rows == 0 || columns == 0) return;
  constexpr int kPer = 16 / kLargest<Arrays...>;
  const int64_t row_packs = parts(columns, kPer);
  const MapShape shape{rows * row_packs, columns, static_cast<uint32_t>(row_packs), rows == 1,
                       (alignment_bits(arrays, kPer) | ...) == 0};
  const auto blocks = static_cast<unsigned>(parts(shape.packs, kMapThreads * kMapPacks));
  TRIFOLD_LAUNCH((map_kernel<kPer, F, Arrays...>), dim3(blocks), dim3(kMapThreads), 0, stream, f, shape,
                 arrays...);
}

template <class F, class... Arrays>
void map(CudaStream stream, int64_t count, const F& f, Arrays... arrays) {
  map_rows(stream, 1, count, f, arrays...);
}

}  // namespace trifold::cuda
