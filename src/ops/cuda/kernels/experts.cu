// A mixture of experts: one thread routes a token. Products of f32 and f64, and of odd sizes, use tiles in shared
// memory, each with rows of one expert; those in 16 bits use tensor cores (expert_products.cu).
#include <algorithm>
#include <optional>

#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/pack.cuh"
#include "ops/kernels/routing.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kTile = 16;

__device__ inline int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class W>
__global__ void __launch_bounds__(kThreads, 1)
    route_kernel(W* gates, int32_t* chosen, const W* logits, const W* bias, int64_t tokens, int64_t experts,
                 Router router) {
  const int64_t t = thread_index();
  if (t >= tokens) return;
  cpu::route_token(gates + t * router.choices, chosen + t * router.choices, logits + t * experts, bias,
                   experts, router);
}

template <class W>
__global__ void __launch_bounds__(kThreads)
    router_losses_kernel(W* balance, W* z, const int32_t* counts, const W* logits, int64_t tokens,
                         int64_t experts, int64_t seq, Router router) {
  const int64_t t = thread_index();
  if (t >= tokens) return;
  cpu::token_losses(balance[t], z[t], logits + t * experts, counts + t / seq * experts, experts, router);
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    route_backward_kernel(T* dlogits, cpu::RouterGradient<T> in, int64_t tokens) {
  const int64_t t = thread_index();
  if (t < tokens) cpu::token_gradient(dlogits + t * in.experts, in, t);
}

// One block per choice. In packs if Whole: all addresses and rows are whole ones.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads)
    gate_rows_kernel(T* y, const T* x, const Accumulate<T>* gates, const int32_t* row, int64_t columns) {
  constexpr int kPer = kPerPack<T>;
  const Accumulate<T> gate = gates[blockIdx.x];
  const int64_t at = row[blockIdx.x] * columns;
  for (int64_t i = int64_t{threadIdx.x} * kPer; i < columns; i += kThreads * kPer) {
    const int count = count_at(i, columns, kPer);
    FullPack<T> pack;
    pack.template load<Whole>(x + at + i, count);
    for (int j = 0; j < kPer; ++j) put(pack.at[j], gate * value(pack.at[j]));
    pack.template store<Whole>(y + at + i, count);
  }
}

template <class T, bool Whole>
__global__ void __launch_bounds__(kWarp)
    gate_gradient_kernel(T* dx, Accumulate<T>* dgates, const T* dy, const T* x, const Accumulate<T>* gates,
                         const int32_t* row, int64_t columns) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  const Wide gate = gates[blockIdx.x];
  const int64_t at = row[blockIdx.x] * columns;
  Wide sum = 0;
  for (int64_t i = int64_t{threadIdx.x} * kPer; i < columns; i += kWarp * kPer) {
    const int count = count_at(i, columns, kPer);
    FullPack<T> slope, number;
    slope.template load<Whole>(dy + at + i, count);
    number.template load<Whole>(x + at + i, count);
    for (int j = 0; j < kPer; ++j) {
      const Wide d = value(slope.at[j]);
      if (Whole || j < count) sum += d * value(number.at[j]);
      put(slope.at[j], gate * d);
    }
    slope.template store<Whole>(dx + at + i, count);
  }
  sum = combine_lanes(sum, Plus{});
  if (threadIdx.x == 0) dgates[blockIdx.x] = sum;
}

// One block per token.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads)
    sum_choices_kernel(T* y, const T* x, const int32_t* row, int64_t choices, int64_t columns,
                       bool accumulate) {
  constexpr int kPer = kPerPack<T>;
  const int32_t* rows = row + blockIdx.x * choices;
  T* out = y + blockIdx.x * columns;
  for (int64_t i = int64_t{threadIdx.x} * kPer; i < columns; i += kThreads * kPer) {
    const int count = count_at(i, columns, kPer);
    Accumulate<T> sums[kPer] = {};
    FullPack<T> pack;
    if (accumulate) {
      pack.template load<Whole>(out + i, count);
      for (int j = 0; j < kPer; ++j) sums[j] = value(pack.at[j]);
    }
    for (int64_t s = 0; s < choices; ++s) {
      pack.template load<Whole>(x + rows[s] * columns + i, count);
      for (int j = 0; j < kPer; ++j) sums[j] += value(pack.at[j]);
    }
    for (int j = 0; j < kPer; ++j) put(pack.at[j], sums[j]);
    pack.template store<Whole>(out + i, count);
  }
}

// blockIdx.x counts the tiles of rows of all experts one after another; there may be more blocks than tiles.
template <class T>
__global__ void __launch_bounds__(kTile* kTile)
    expert_product_kernel(T* y, const T* x, const T* w, const int32_t* first, int64_t experts, int64_t n,
                          int64_t k, bool transposed) {
  using Wide = Accumulate<T>;
  __shared__ Wide left[kTile][kTile + 1];
  __shared__ Wide right[kTile][kTile + 1];
  int64_t tile = blockIdx.x;
  int64_t expert = 0;
  for (; expert < experts; ++expert) {
    const int64_t here = (first[expert + 1] - first[expert] + kTile - 1) / kTile;
    if (tile < here) break;
    tile -= here;
  }
  if (expert == experts) return;
  const auto column_here = static_cast<int>(threadIdx.x) % kTile;
  const auto row_here = static_cast<int>(threadIdx.x) / kTile;
  const int64_t row = first[expert] + tile * kTile + row_here;
  const int64_t end = first[expert + 1];
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kTile + column_here;
  const T* weights = w + expert * n * k;
  Wide sum = 0;
  for (int64_t d = 0; d < k; d += kTile) {
    const int64_t across = d + column_here;
    const int64_t down = d + row_here;
    left[row_here][column_here] = row < end && across < k ? value(x[row * k + across]) : Wide(0);
    right[row_here][column_here] =
        down < k && column < n ? value(weights[transposed ? column * k + down : down * n + column]) : Wide(0);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += left[row_here][i] * right[i][column_here];
    __syncthreads();
  }
  if (row < end && column < n) put(y[row * n + column], sum);
}

template <class T>
__global__ void __launch_bounds__(kTile* kTile)
    expert_gradient_kernel(Accumulate<T>* dw, const T* dy, const T* x, const int32_t* first, int64_t m,
                           int64_t n, bool accumulate) {
  using Wide = Accumulate<T>;
  __shared__ Wide left[kTile][kTile + 1];
  __shared__ Wide right[kTile][kTile + 1];
  const auto down = static_cast<unsigned>((m + kTile - 1) / kTile);  // tiles of one expert
  const int64_t expert = blockIdx.x / down;
  const auto column_here = static_cast<int>(threadIdx.x) % kTile;
  const auto row_here = static_cast<int>(threadIdx.x) / kTile;
  const int64_t tile_row = int64_t{blockIdx.x % down} * kTile;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kTile + column_here;
  const int64_t end = first[expert + 1];
  Wide sum = 0;
  for (int64_t d = first[expert]; d < end; d += kTile) {
    const int64_t at = d + row_here;
    const int64_t across = tile_row + column_here;
    left[row_here][column_here] = at < end && across < m ? value(dy[at * m + across]) : Wide(0);
    right[row_here][column_here] = at < end && column < n ? value(x[at * n + column]) : Wide(0);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += left[i][row_here] * right[i][column_here];
    __syncthreads();
  }
  const int64_t row = tile_row + row_here;
  if (row >= m || column >= n) return;
  Wide& out = dw[(expert * m + row) * n + column];
  out = accumulate ? out + sum : sum;
}

dim3 blocks_for(int64_t threads) { return dim3(static_cast<unsigned>(parts(threads, kThreads))); }
unsigned extent(int64_t count) { return static_cast<unsigned>(count); }

}  // namespace

template <class W>
void route(CudaStream stream, W* gates, int32_t* chosen, const W* logits, const W* bias, int64_t tokens,
           int64_t experts, const Router& router) {
  if (tokens == 0) return;
  TRIFOLD_LAUNCH(route_kernel<W>, blocks_for(tokens), dim3(kThreads), 0, stream, gates, chosen, logits, bias,
                 tokens, experts, router);
}

template <class W>
void router_losses(CudaStream stream, void* scratch, W* balance, W* z, int32_t* counts, const W* logits,
                   const int32_t* padding, int64_t tokens, int64_t experts, int64_t seq,
                   const Router& router) {
  if (tokens == 0) return;
  if (!router.counted) {
    // The gates are not needed, and groups do not matter.
    auto* chosen = static_cast<int32_t*>(scratch);
    auto* gates = reinterpret_cast<W*>(chosen + 2 * tokens * router.choices);
    Router plain = router;
    plain.groups = plain.kept_groups = 1;
    route<W>(stream, gates, chosen, logits, nullptr, tokens, experts, plain);
    count_choices(stream, counts, chosen, {padding, router.choices}, experts, seq * router.choices,
                  tokens / seq);
  }
  TRIFOLD_LAUNCH(router_losses_kernel<W>, blocks_for(tokens), dim3(kThreads), 0, stream, balance, z, counts,
                 logits, tokens, experts, seq, router);
}

template <class T>
void route_backward(CudaStream stream, T* dlogits, const cpu::RouterGradient<T>& in, int64_t tokens) {
  if (tokens == 0) return;
  TRIFOLD_LAUNCH(route_backward_kernel<T>, blocks_for(tokens), dim3(kThreads), 0, stream, dlogits, in,
                 tokens);
}

template <class T>
void gate_rows(CudaStream stream, T* y, const T* x, const Accumulate<T>* gates, const int32_t* row,
               int64_t choices, int64_t columns) {
  if (choices == 0) return;
  const dim3 grid(extent(choices)), block(kThreads);
  if (packs<T>(columns, y, x))
    TRIFOLD_LAUNCH((gate_rows_kernel<T, true>), grid, block, 0, stream, y, x, gates, row, columns);
  else
    TRIFOLD_LAUNCH((gate_rows_kernel<T, false>), grid, block, 0, stream, y, x, gates, row, columns);
}

template <class T>
void gate_rows_backward(CudaStream stream, T* dx, Accumulate<T>* dgates, const T* dy, const T* x,
                        const Accumulate<T>* gates, const int32_t* row, int64_t choices, int64_t columns) {
  if (choices == 0) return;
  const dim3 grid(extent(choices)), block(kWarp);
  if (packs<T>(columns, dx, dy, x))
    TRIFOLD_LAUNCH((gate_gradient_kernel<T, true>), grid, block, 0, stream, dx, dgates, dy, x, gates, row,
                   columns);
  else
    TRIFOLD_LAUNCH((gate_gradient_kernel<T, false>), grid, block, 0, stream, dx, dgates, dy, x, gates, row,
                   columns);
}

template <class T>
void sum_choices(CudaStream stream, T* y, const T* x, const int32_t* row, int64_t tokens, int64_t choices,
                 int64_t columns, bool accumulate) {
  if (tokens == 0) return;
  const dim3 grid(extent(tokens)), block(kThreads);
  if (packs<T>(columns, y, x))
    TRIFOLD_LAUNCH((sum_choices_kernel<T, true>), grid, block, 0, stream, y, x, row, choices, columns,
                   accumulate);
  else
    TRIFOLD_LAUNCH((sum_choices_kernel<T, false>), grid, block, 0, stream, y, x, row, choices, columns,
                   accumulate);
}

template <class T>
void expert_product(CudaStream stream, T* y, const T* x, const T* w, const int32_t* first, int64_t rows,
                    int64_t experts, int64_t n, int64_t k, bool transposed) {
  if (rows == 0) return;
  if constexpr (!cpu::kIsWide<T>)
    if (const auto unit = best_product_unit();
        unit && grouped_product<T>(stream, *unit, y, x, w, first, rows, experts, n, k, transposed))
      return;
  const dim3 grid(extent(parts(rows, kTile) + experts), extent(parts(n, kTile)));
  TRIFOLD_LAUNCH(expert_product_kernel<T>, grid, dim3(kTile * kTile), 0, stream, y, x, w, first, experts, n,
                 k, transposed);
}

template <class T>
void expert_product_weight(CudaStream stream, Accumulate<T>* dw, const T* dy, const T* x,
                           const int32_t* first, int64_t rows, int64_t experts, int64_t m, int64_t n,
                           bool accumulate) {
  if constexpr (!cpu::kIsWide<T>)
    if (const auto unit = best_product_unit();
        unit && grouped_product_weight<T>(stream, *unit, dw, dy, x, first, rows, experts, m, n, accumulate))
      return;
  const dim3 grid(extent(parts(m, kTile) * experts), extent(parts(n, kTile)));
  TRIFOLD_LAUNCH(expert_gradient_kernel<T>, grid, dim3(kTile * kTile), 0, stream, dw, dy, x, first, m, n,
                 accumulate);
}

#define INSTANTIATE(W)                                                                                   \
  template void route<W>(CudaStream, W*, int32_t*, const W*, const W*, int64_t, int64_t, const Router&); \
  template void router_losses<W>(CudaStream, void*, W*, W*, int32_t*, const W*, const int32_t*, int64_t, \
                                 int64_t, int64_t, const Router&);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE
#define INSTANTIATE(T)                                                                                     \
  template void route_backward<T>(CudaStream, T*, const cpu::RouterGradient<T>&, int64_t);                 \
  template void gate_rows<T>(CudaStream, T*, const T*, const Accumulate<T>*, const int32_t*, int64_t,      \
                             int64_t);                                                                     \
  template void gate_rows_backward<T>(CudaStream, T*, Accumulate<T>*, const T*, const T*,                  \
                                      const Accumulate<T>*, const int32_t*, int64_t, int64_t);             \
  template void sum_choices<T>(CudaStream, T*, const T*, const int32_t*, int64_t, int64_t, int64_t, bool); \
  template void expert_product<T>(CudaStream, T*, const T*, const T*, const int32_t*, int64_t, int64_t,    \
                                  int64_t, int64_t, bool);                                                 \
  template void expert_product_weight<T>(CudaStream, Accumulate<T>*, const T*, const T*, const int32_t*,   \
                                         int64_t, int64_t, int64_t, int64_t, bool);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
