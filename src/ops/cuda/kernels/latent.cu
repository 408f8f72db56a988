// The heads of multi-head latent attention. A block packs, or takes apart, one row, whose sines and cosines its
// threads compute once, in f64 as the CPU does.
#include "ops/cuda/kernels/frequencies.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"
#include "ops/kernels/angle.h"

namespace trifold::cuda {

namespace {

constexpr int kLatentThreads = 256;

// Lengths in a row, in 32 bits: divisions of 64 bits are function calls, around which registers spill.
struct Lengths {
  int heads, plain, value, width;
  int turned;       // the turned part of a head
  int query_width;  // a head of q
  int kv_width;     // a head of kv
  int row_width;    // all heads in the packed matrix

  __device__ explicit Lengths(const cpu::LatentShape& shape)
      : heads(static_cast<int>(shape.heads)),
        plain(static_cast<int>(shape.plain)),
        value(static_cast<int>(shape.value)),
        width(static_cast<int>(shape.width)),
        turned(2 * static_cast<int>(shape.pairs)),
        query_width(plain + turned),
        kv_width(plain + value),
        row_width(heads * width) {}
};

template <class Wide, int64_t Most>
struct Angles {
  Wide sine[Most];
  Wide cosine[Most];

  __device__ void set(const Frequencies<Most>& frequencies, int pairs, double position) {
    for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kLatentThreads) {
      double s = 0;
      double c = 0;
      cpu::sine_and_cosine(position * frequencies.at[i], s, c);
      sine[i] = static_cast<Wide>(s);
      cosine[i] = static_cast<Wide>(c);
    }
    __syncthreads();
  }
  // Element i of the rotated part, where a and b are the pair that contains it.
  __device__ Wide turned(int i, Wide a, Wide b) const {
    const Wide c = cosine[i / 2];
    const Wide s = sine[i / 2];
    return i % 2 == 0 ? a * c - b * s : b * c + a * s;
  }
  template <class T>
  __device__ Wide turned(int i, const T* from) const {
    return turned(i, value(from[i / 2 * 2]), value(from[i / 2 * 2 + 1]));
  }
};

template <class T, int64_t Most>
__global__ void __launch_bounds__(kLatentThreads)
    latent_kernel(T* packed, const T* q, const T* kv, const T* key, const int32_t* positions,
                  cpu::LatentShape shape, Frequencies<Most> frequencies) {
  using Wide = Accumulate<T>;
  __shared__ Angles<Wide, Most> angles;
  const int64_t r = blockIdx.x;
  const Lengths row(shape);
  angles.set(frequencies, row.turned / 2, static_cast<double>(positions[r]));
  T* queries = packed + r * 3 * row.row_width;
  T *keys = queries + row.row_width, *values = keys + row.row_width;
  q += r * row.heads * row.query_width;
  kv += r * row.heads * row.kv_width;
  key += r * row.turned;
  const Wide factor = static_cast<Wide>(shape.key_scale);
  for (int i = static_cast<int>(threadIdx.x); i < row.row_width; i += kLatentThreads) {
    const int head = i / row.width;
    const int c = i - head * row.width;
    const T* from = q + head * row.query_width;
    const T* from_pair = kv + head * row.kv_width;
    Wide of_query = 0;
    Wide of_key = 0;
    if (c < row.plain) {
      of_query = value(from[c]);
      of_key = value(from_pair[c]);
    } else if (c < row.query_width) {
      of_query = angles.turned(c - row.plain, from + row.plain);
      of_key = factor * angles.turned(c - row.plain, key);
    }
    put(queries[i], of_query);
    put(keys[i], of_key);
    put(values[i], c < row.value ? value(from_pair[row.plain + c]) : Wide(0));
  }
}

template <class T, int64_t Most>
__global__ void __launch_bounds__(kLatentThreads)
    latent_gradient_kernel(T* dq, T* dkv, T* dkey, const T* dpacked, const int32_t* positions,
                           cpu::LatentShape shape, Frequencies<Most> frequencies) {
  using Wide = Accumulate<T>;
  __shared__ Angles<Wide, Most> angles;
  const int64_t r = blockIdx.x;
  const Lengths row(shape);
  angles.set(frequencies, row.turned / 2, -static_cast<double>(positions[r]));
  const T* queries = dpacked + r * 3 * row.row_width;
  const T *keys = queries + row.row_width, *values = keys + row.row_width;
  dq += r * row.heads * row.query_width;
  for (int i = static_cast<int>(threadIdx.x); i < row.heads * row.query_width; i += kLatentThreads) {
    const int head = i / row.query_width;
    const int c = i - head * row.query_width;
    const T* from = queries + head * row.width;
    put(dq[i], c < row.plain ? value(from[c]) : angles.turned(c - row.plain, from + row.plain));
  }
  dkv += r * row.heads * row.kv_width;
  for (int i = static_cast<int>(threadIdx.x); i < row.heads * row.kv_width; i += kLatentThreads) {
    const int head = i / row.kv_width;
    const int c = i - head * row.kv_width;
    const int first = head * row.width;
    dkv[i] = c < row.plain ? keys[first + c] : values[first + c - row.plain];
  }
  const Wide factor = static_cast<Wide>(shape.key_scale);
  for (int i = static_cast<int>(threadIdx.x); i < row.turned; i += kLatentThreads) {
    Wide a = 0;
    Wide b = 0;
    for (int head = 0; head < row.heads; ++head) {
      const T* from = keys + head * row.width + row.plain + i / 2 * 2;
      a += value(from[0]);
      b += value(from[1]);
    }
    put(dkey[r * row.turned + i], factor * angles.turned(i, a, b));
  }
}

template <class T>
__global__ void __launch_bounds__(kLatentThreads)
    fit_columns_kernel(T* y, const T* x, int64_t elements, int64_t y_columns, int64_t x_columns) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kLatentThreads + threadIdx.x;
  if (i >= elements) return;
  const int64_t c = i % y_columns;
  put(y[i], c < x_columns ? value(x[i / y_columns * x_columns + c]) : Accumulate<T>(0));
}

template <class T, int64_t Most>
void launch_forward(CudaStream stream, T* packed, const T* q, const T* kv, const T* key,
                    const int32_t* positions, int64_t rows, const cpu::LatentShape& shape) {
  const Frequencies<Most> frequencies(shape.frequencies, shape.pairs);
  TRIFOLD_LAUNCH((latent_kernel<T, Most>), dim3(static_cast<unsigned>(rows)), dim3(kLatentThreads), 0, stream,
                 packed, q, kv, key, positions, shape, frequencies);
}

template <class T, int64_t Most>
void launch_backward(CudaStream stream, T* dq, T* dkv, T* dkey, const T* dpacked, const int32_t* positions,
                     int64_t rows, const cpu::LatentShape& shape) {
  const Frequencies<Most> frequencies(shape.frequencies, shape.pairs);
  TRIFOLD_LAUNCH((latent_gradient_kernel<T, Most>), dim3(static_cast<unsigned>(rows)), dim3(kLatentThreads),
                 0, stream, dq, dkv, dkey, dpacked, positions, shape, frequencies);
}

}  // namespace

template <class T>
void latent_heads(CudaStream stream, T* packed, const T* q, const T* kv, const T* key,
                  const int32_t* positions, int64_t rows, const cpu::LatentShape& shape) {
  if (rows == 0) return;
  if (shape.pairs <= kUsualPairs)
    launch_forward<T, kUsualPairs>(stream, packed, q, kv, key, positions, rows, shape);
  else
    launch_forward<T, cpu::kRotaryPairs>(stream, packed, q, kv, key, positions, rows, shape);
}

template <class T>
void latent_heads_backward(CudaStream stream, T* dq, T* dkv, T* dkey, const T* dpacked,
                           const int32_t* positions, int64_t rows, const cpu::LatentShape& shape) {
  if (rows == 0) return;
  if (shape.pairs <= kUsualPairs)
    launch_backward<T, kUsualPairs>(stream, dq, dkv, dkey, dpacked, positions, rows, shape);
  else
    launch_backward<T, cpu::kRotaryPairs>(stream, dq, dkv, dkey, dpacked, positions, rows, shape);
}

template <class T>
void fit_columns(CudaStream stream, T* y, const T* x, int64_t rows, int64_t y_columns, int64_t x_columns) {
  const int64_t elements = rows * y_columns;
  if (elements == 0) return;
  const auto blocks = static_cast<unsigned>((elements + kLatentThreads - 1) / kLatentThreads);
  TRIFOLD_LAUNCH(fit_columns_kernel<T>, dim3(blocks), dim3(kLatentThreads), 0, stream, y, x, elements,
                 y_columns, x_columns);
}

#define INSTANTIATE(T)                                                                                 \
  template void latent_heads<T>(CudaStream, T*, const T*, const T*, const T*, const int32_t*, int64_t, \
                                const cpu::LatentShape&);                                              \
  template void latent_heads_backward<T>(CudaStream, T*, T*, T*, const T*, const int32_t*, int64_t,    \
                                         const cpu::LatentShape&);                                     \
  template void fit_columns<T>(CudaStream, T*, const T*, int64_t, int64_t, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
