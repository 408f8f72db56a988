// The elementwise parts of recommender models.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/map.cuh"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

struct BiasRelu {
  bool relu;
  template <class W>
  __device__ void operator()(W& y, W bias) const {
    const W sum = y + bias;
    y = relu && sum < 0 ? W(0) : sum;  // keeps NaNs
  }
};
struct CrossOf {
  template <class W>
  __device__ void operator()(W& y, W x0, W u, W x) const {
    y = x0 * u + x;
  }
};
struct CrossSlope {
  template <class W>
  __device__ void operator()(W& du, W& dx0, W dy, W x0, W u) const {
    du = dy * x0;
    dx0 += dy * u;
  }
};
struct SigmoidOf {
  template <class W>
  __device__ void operator()(W& p, W z) const {
    p = cpu::sigmoid_of(z);
  }
};
template <class W>
struct InverseRootOf {
  cpu::InverseRoot<W> root;
  __device__ void operator()(W& y, W x) const { y = root(x); }
};
struct ClickLossOf {
  bool squared;
  template <class W>
  __device__ void operator()(W& loss, W z, float label) const {
    loss = cpu::Click::loss(z, static_cast<W>(label), squared);
  }
};
template <class W>
struct ClickSlope {
  cpu::LateFactor scale;
  bool squared;
  __device__ void operator()(W& dz, W z, float label, float weight) const {
    dz = static_cast<W>(weight) * static_cast<W>(scale.now()) *
         cpu::Click::slope(z, static_cast<W>(label), squared);
  }
};

struct Scaled {
  template <class W>
  __device__ void operator()(W& y, W x) const {
    y = x;
  }
  template <class W>
  __device__ void operator()(W& y, W x, W factor) const {
    y = factor * x;
  }
};
struct ScaledSum {
  template <class W>
  __device__ void operator()(W& y, W x) const {
    y += x;
  }
  template <class W>
  __device__ void operator()(W& y, W x, W factor) const {
    y += factor * x;
  }
};

// A warp copies a row, so that reads of host memory are few and long.
constexpr int kRowsOfBlock = 8;

template <class W>
__global__ void __launch_bounds__(kWarp* kRowsOfBlock)
    copy_rows_kernel(W* y, const int32_t* to, const W* x, const int32_t* from, int64_t n, int64_t width) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarp;
  if (i >= n) return;
  const W* in = x + from[i] * width;
  W* out = y + to[i] * width;
  for (int64_t c = threadIdx.x % kWarp; c < width; c += kWarp) out[c] = in[c];
}

// One number per row, the same for all its columns.
template <class T>
struct OfRow {
  using Number = T;
  const T* data;
  int64_t stride = 1;
};

}  // namespace

template <int N, class T, class... Rest>
struct Slots<N, OfRow<T>, Rest...> {
  T number{};
  const T* data;
  Slots<N, Rest...> rest;
  __device__ inline explicit Slots(const OfRow<T>& a, const Rest&... others)
      : data(a.data), rest(others...) {}
  __device__ inline void load(int64_t row, int64_t column, int count, bool aligned) {
    if (count > 0) number = data[row];
    rest.load(row, column, count, aligned);
  }
  __device__ inline void store(int64_t row, int64_t column, int count, bool aligned) const {
    rest.store(row, column, count, aligned);
  }
  template <class F, class... Refs>
  __device__ inline void apply(const F& f, int i, Refs&... refs) {
    rest.apply(f, i, refs..., number);
  }
};

template <class T>
uint64_t alignment_bits(const OfRow<T>&, int) {
  return 0;
}

template <class T>
void bias_relu(CudaStream stream, T* y, const T* bias, int64_t rows, int64_t columns, bool relu) {
  map_rows(stream, rows, columns, BiasRelu{relu}, Both<T>{y, columns}, In<T>{bias, 0});
}
template <class T>
void cross(CudaStream stream, T* y, const T* x0, const T* u, const T* x, int64_t n) {
  map(stream, n, CrossOf{}, Out<T>{y}, In<T>{x0}, In<T>{u}, In<T>{x});
}
template <class T>
void cross_backward(CudaStream stream, T* du, T* dx0, const T* dy, const T* x0, const T* u, int64_t n) {
  map(stream, n, CrossSlope{}, Out<T>{du}, Both<T>{dx0}, In<T>{dy}, In<T>{x0}, In<T>{u});
}
template <class W>
void sigmoid(CudaStream stream, W* p, const W* z, int64_t n) {
  map(stream, n, SigmoidOf{}, Out<W>{p}, In<W>{z});
}
template <class W>
void click_loss(CudaStream stream, W* loss, const W* z, const float* labels, int64_t n, bool squared) {
  map(stream, n, ClickLossOf{squared}, Out<W>{loss}, In<W>{z}, In<float>{labels});
}
template <class W>
void click_loss_backward(CudaStream stream, W* dz, const W* z, const float* labels, const float* weight,
                         const cpu::LateFactor& scale, int64_t n, bool squared) {
  map(stream, n, ClickSlope<W>{scale, squared}, Out<W>{dz}, In<W>{z}, In<float>{labels}, In<float>{weight});
}
template <class W>
void copy_columns(CudaStream stream, W* y, int64_t y_stride, const W* x, int64_t x_stride, const W* row_scale,
                  int64_t rows, int64_t width, bool add) {
  const In<W> from{x, x_stride};
  if (add && row_scale != nullptr)
    map_rows(stream, rows, width, ScaledSum{}, Both<W>{y, y_stride}, from, OfRow<W>{row_scale});
  else if (add)
    map_rows(stream, rows, width, ScaledSum{}, Both<W>{y, y_stride}, from);
  else if (row_scale != nullptr)
    map_rows(stream, rows, width, Scaled{}, Out<W>{y, y_stride}, from, OfRow<W>{row_scale});
  else
    map_rows(stream, rows, width, Scaled{}, Out<W>{y, y_stride}, from);
}

template <class W>
void copy_rows(CudaStream stream, W* y, const int32_t* to, const W* x, const int32_t* from, int64_t n,
               int64_t width) {
  if (n == 0) return;
  const auto blocks = static_cast<uint32_t>((n + kRowsOfBlock - 1) / kRowsOfBlock);
  TRIFOLD_LAUNCH(copy_rows_kernel<W>, dim3(blocks), dim3(kWarp * kRowsOfBlock), 0, stream, y, to, x, from, n,
                 width);
}
template <class W>
void inverse_root(CudaStream stream, W* y, const W* x, double eps, int64_t n) {
  map(stream, n, InverseRootOf<W>{{static_cast<W>(eps)}}, Out<W>{y}, In<W>{x});
}

#define INSTANTIATE(T)                                                           \
  template void bias_relu<T>(CudaStream, T*, const T*, int64_t, int64_t, bool);  \
  template void cross<T>(CudaStream, T*, const T*, const T*, const T*, int64_t); \
  template void cross_backward<T>(CudaStream, T*, T*, const T*, const T*, const T*, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE
#define INSTANTIATE(W)                                                                                    \
  template void sigmoid<W>(CudaStream, W*, const W*, int64_t);                                            \
  template void click_loss<W>(CudaStream, W*, const W*, const float*, int64_t, bool);                     \
  template void click_loss_backward<W>(CudaStream, W*, const W*, const float*, const float*,              \
                                       const cpu::LateFactor&, int64_t, bool);                            \
  template void copy_rows<W>(CudaStream, W*, const int32_t*, const W*, const int32_t*, int64_t, int64_t); \
  template void inverse_root<W>(CudaStream, W*, const W*, double, int64_t);                               \
  template void copy_columns<W>(CudaStream, W*, int64_t, const W*, int64_t, const W*, int64_t, int64_t, bool);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace trifold::cuda
