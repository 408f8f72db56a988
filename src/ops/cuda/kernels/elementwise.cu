// Movement and sums of arrays.
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/map.cuh"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

template <class Wide>
struct FillWith {
  Wide number;
  __device__ void operator()(Wide& y) const { y = number; }
};

// Also converts: one side is f32, and every other type is computed in f32.
struct Move {
  template <class Y, class X>
  __device__ void operator()(Y& y, X x) const {
    y = static_cast<Y>(x);
  }
};

template <class Wide>
struct ScaleBy {
  Wide factor;
  cpu::LateFactor late;  // used instead if it has a number: rounded to the type once per element
  __device__ void operator()(Wide& y) const {
    y *= late.number == nullptr ? factor : static_cast<Wide>(late.now());
  }
};

struct AddBoth {
  template <class Wide>
  __device__ void operator()(Wide& y, Wide a, Wide b) const {
    y = a + b;
  }
};

struct TakeLarger {
  template <class Wide>
  __device__ void operator()(Wide& y, Wide x) const {
    y = cpu::maximum_of(y, x);
  }
};

__global__ void dropout_seed_kernel(int64_t* to, cpu::DropRule key, cpu::LateIndex first) {
  const cpu::PhiloxWords words = cpu::philox_block(key.key_lo, key.key_hi, first.now());
  to[0] = static_cast<int64_t>((static_cast<uint64_t>(words.at[0] >> 1) << 32) | words.at[1]);
  to[1] = 0;
}

__global__ void clear_behind_kernel(uint4* y, const int32_t* lengths, int64_t seq, int64_t row_words,
                                    int64_t first_word) {
  const int64_t row = blockIdx.x;
  if (row % seq < lengths[row / seq]) return;
  for (int64_t word = first_word + threadIdx.x; word < row_words; word += blockDim.x)
    y[row * row_words + word] = uint4{0, 0, 0, 0};
}

}  // namespace

void clear_behind(CudaStream stream, void* y, const int32_t* lengths, int64_t batch, int64_t seq,
                  int64_t row_bytes, int64_t first_byte) {
  if (batch * seq == 0) return;
  constexpr int64_t kWord = sizeof(uint4);
  TRIFOLD_LAUNCH(clear_behind_kernel, dim3(static_cast<unsigned>(batch * seq)), dim3(128), 0, stream,
                 static_cast<uint4*>(y), lengths, seq, row_bytes / kWord, first_byte / kWord);
}

void dropout_seed(CudaStream stream, int64_t* to, const cpu::DropRule& key, const cpu::LateIndex& first) {
  TRIFOLD_LAUNCH(dropout_seed_kernel, dim3(1), dim3(1), 0, stream, to, key, first);
}

// In the largest units that divide both addresses and the length.
void copy_bytes(CudaStream stream, void* y, const void* x, int64_t bytes) {
  const uint64_t bits =
      reinterpret_cast<uint64_t>(y) | reinterpret_cast<uint64_t>(x) | static_cast<uint64_t>(bytes);
  if (bits % 4 == 0)
    map(stream, bytes / 4, Move{}, Out<int32_t>{static_cast<int32_t*>(y)},
        In<int32_t>{static_cast<const int32_t*>(x)});
  else if (bits % 2 == 0)
    map(stream, bytes / 2, Move{}, Out<uint16_t>{static_cast<uint16_t*>(y)},
        In<uint16_t>{static_cast<const uint16_t*>(x)});
  else
    map(stream, bytes, Move{}, Out<uint8_t>{static_cast<uint8_t*>(y)},
        In<uint8_t>{static_cast<const uint8_t*>(x)});
}

template <class T>
void fill(CudaStream stream, T* y, int64_t n, double number) {
  using Wide = Accumulate<T>;
  map(stream, n, FillWith<Wide>{static_cast<Wide>(number)}, Out<T>{y});
}
template <class T>
void to_f32(CudaStream stream, float* y, const T* x, int64_t n) {
  map(stream, n, Move{}, Out<float>{y}, In<T>{x});
}
template <class T>
void from_f32(CudaStream stream, T* y, const float* x, int64_t n) {
  map(stream, n, Move{}, Out<T>{y}, In<float>{x});
}
template <class T>
void scale(CudaStream stream, T* y, int64_t n, const cpu::LateFactor& a) {
  map(stream, n, ScaleBy<Accumulate<T>>{static_cast<Accumulate<T>>(a.constant), a}, Both<T>{y});
}
template <class T>
void add(CudaStream stream, T* y, const T* a, const T* b, int64_t n) {
  map(stream, n, AddBoth{}, Out<T>{y}, In<T>{a}, In<T>{b});
}
template <class T>
void maximum(CudaStream stream, T* y, const T* x, int64_t n) {
  map(stream, n, TakeLarger{}, Both<T>{y}, In<T>{x});
}
template <class T>
void fill_rows(CudaStream stream, T* y, const T* row, int64_t rows, int64_t columns) {
  map_rows(stream, rows, columns, Move{}, Out<T>{y, columns}, In<T>{row, 0});
}

#define INSTANTIATE(T)                                                     \
  template void fill<T>(CudaStream, T*, int64_t, double);                  \
  template void to_f32<T>(CudaStream, float*, const T*, int64_t);          \
  template void from_f32<T>(CudaStream, T*, const float*, int64_t);        \
  template void scale<T>(CudaStream, T*, int64_t, const cpu::LateFactor&); \
  template void fill_rows<T>(CudaStream, T*, const T*, int64_t, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE
template void fill<int32_t>(CudaStream, int32_t*, int64_t, double);

#define INSTANTIATE(T)                                               \
  template void add<T>(CudaStream, T*, const T*, const T*, int64_t); \
  template void maximum<T>(CudaStream, T*, const T*, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)
#undef INSTANTIATE

}  // namespace trifold::cuda
