// Plain softmax attention, to check the library against and for f64 and f32: one warp per query, or key,
// whose lanes process 32 keys, or queries, at a time for scores, and columns for sums. Never stores the
// scores of a whole row.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kColumns = static_cast<int>(kPlainAttentionWidth) / kWarp;  // per lane

// The offsets of rows: a query head's in qkv and in out, a key head's in qkv.
struct Places {
  int64_t qkv_stride, out_stride;
  int64_t query, key, value, out;
};
__device__ inline Places places_of(const PlainAttention& how, int64_t b, int64_t head) {
  const int64_t kv_head = head / (how.heads / how.kv_heads);
  const int64_t stride = (how.heads + 2 * how.kv_heads) * how.head_dim;
  const int64_t base = b * how.seq * stride;
  return {stride,
          how.heads * how.head_dim,
          base + head * how.head_dim,
          base + (how.heads + kv_head) * how.head_dim,
          base + (how.heads + how.kv_heads + kv_head) * how.head_dim,
          (b * how.seq * how.heads + head) * how.head_dim};
}

// The number of valid keys of a sample.
__device__ inline int64_t keys_of(const PlainAttention& how, int64_t b) {
  return how.lengths == nullptr ? how.seq : static_cast<int64_t>(how.lengths[b]);
}

// The end of the keys that query i of a sample sees.
__device__ inline int64_t keys_seen(const PlainAttention& how, int64_t b, int64_t i) {
  const int64_t all = keys_of(how, b);
  return how.causal && i + 1 < all ? i + 1 : all;
}

// The first key that query i of a sample sees.
__device__ inline int64_t first_key(const PlainAttention& how, int64_t b, int64_t i) {
  return how.first_keys == nullptr ? 0 : static_cast<int64_t>(how.first_keys[b * how.seq + i]);
}

// The factor of a probability under dropout: the inverse of the keep rate, or 0.
template <class Wide>
__device__ inline Wide kept(const PlainAttention& how, int64_t b, int64_t head, int64_t i, int64_t j) {
  if (!how.rule.active) return 1;
  const uint64_t row = how.first.now() + static_cast<uint64_t>(b * how.global_heads + head);
  const uint64_t element =
      (row * static_cast<uint64_t>(how.seq) + static_cast<uint64_t>(i)) * static_cast<uint64_t>(how.seq) +
      static_cast<uint64_t>(j);
  const cpu::PhiloxWords words = cpu::philox_block(how.rule.key_lo, how.rule.key_hi, element / 4);
  return words.at[element % 4] >= how.rule.threshold ? static_cast<Wide>(how.rule.multiplier) : Wide(0);
}

template <class T>
__device__ inline Accumulate<T> dot(const Accumulate<T>* a, const T* b, int64_t width) {
  Accumulate<T> sum = 0;
  for (int64_t c = 0; c < width; ++c) sum += a[c] * value(b[c]);
  return sum;
}

// sum[k] += for each of the 32 rows from `rows` on, factor[row] times its column lane + 32 k.
template <class T>
__device__ inline void add_rows(Accumulate<T> (&sum)[kColumns], const Accumulate<T>* factor, const T* rows,
                                int64_t stride, int64_t count, int64_t width) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t r = 0; r < count; ++r)
#pragma unroll
    for (int k = 0; k < kColumns; ++k)
      if (lane + k * kWarp < width) sum[k] += factor[r] * value(rows[r * stride + lane + k * kWarp]);
}

// A warp's row in shared memory, in the type of sums.
template <class T>
__device__ inline void share(Accumulate<T>* to, const T* from, int64_t width) {
  for (int64_t c = threadIdx.x % kWarp; c < width; c += kWarp) to[c] = value(from[c]);
}

// The work item of a warp, from its number over all blocks: one of `each` queries (or keys) of a head, and
// the sample and head.
struct Item {
  int64_t at, head, sample;
  bool valid;
};
__device__ inline Item item_of(int64_t each, int64_t heads, int64_t batch) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  return {n % each, n / each % heads, n / each / heads, n < each * heads * batch};
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(T* out, Accumulate<T>* lse, const T* qkv, PlainAttention how) {
  using Wide = Accumulate<T>;
  __shared__ Wide query[kWarps][kPlainAttentionWidth];
  __shared__ Wide probability[kWarps][kWarp];
  const Item item = item_of(how.seq, how.heads, how.batch);
  if (!item.valid) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Places at = places_of(how, item.sample, item.head);
  const int64_t i = item.at;
  share(query[warp], qkv + at.query + i * at.qkv_stride, how.head_dim);
  __syncwarp();
  const int64_t keys = keys_seen(how, item.sample, i);
  Wide most = cpu::kLowest<Wide>;
  Wide total = 0;
  Wide sum[kColumns] = {};
  for (int64_t first = first_key(how, item.sample, i); first < keys; first += kWarp) {
    const int64_t j = first + lane;
    Wide score = cpu::kLowest<Wide>;
    if (j < keys)
      score = dot(query[warp], qkv + at.key + j * at.qkv_stride, how.head_dim) * static_cast<Wide>(how.scale);
    const Wide now = cpu::larger(most, combine_lanes(score, Most{}));
    const Wide p = j < keys ? cpu::exp_of(score - now) : Wide(0);
    const Wide shrink = cpu::exp_of(most - now);
    most = now;
    total = total * shrink + combine_lanes(p, Plus{});
    probability[warp][lane] = j < keys ? p * kept<Wide>(how, item.sample, item.head, i, j) : Wide(0);
#pragma unroll
    for (int k = 0; k < kColumns; ++k) sum[k] *= shrink;
    __syncwarp();
    const int64_t count = keys - first < kWarp ? keys - first : kWarp;
    add_rows(sum, probability[warp], qkv + at.value + first * at.qkv_stride, at.qkv_stride, count,
             how.head_dim);
    __syncwarp();
  }
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int64_t c = lane + k * kWarp;
    if (c < how.head_dim) put(out[at.out + i * at.out_stride + c], sum[k] / total);
  }
  if (lane == 0) lse[(item.sample * how.heads + item.head) * how.seq + i] = most + cpu::log_of(total);
}

// With P = exp(scale S - lse), its kept part D = kept P, and delta = dout . out: dS = P (kept dout . v -
// delta). The two kernels below compute P and dS of one query, or one key, 32 at a time.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    query_gradient_kernel(T* dqkv, const T* dout, const T* qkv, const T* out, const Accumulate<T>* lse,
                          PlainAttention how) {
  using Wide = Accumulate<T>;
  __shared__ Wide query[kWarps][kPlainAttentionWidth];
  __shared__ Wide grad[kWarps][kPlainAttentionWidth];
  __shared__ Wide score_gradient[kWarps][kWarp];
  const Item item = item_of(how.seq, how.heads, how.batch);
  if (!item.valid) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Places at = places_of(how, item.sample, item.head);
  const int64_t i = item.at;
  share(query[warp], qkv + at.query + i * at.qkv_stride, how.head_dim);
  share(grad[warp], dout + at.out + i * at.out_stride, how.head_dim);
  __syncwarp();
  const Wide delta = dot(grad[warp], out + at.out + i * at.out_stride, how.head_dim);
  const Wide log_sum = lse[(item.sample * how.heads + item.head) * how.seq + i];
  const auto scale = static_cast<Wide>(how.scale);
  const int64_t keys = keys_seen(how, item.sample, i);
  Wide sum[kColumns] = {};
  for (int64_t first = first_key(how, item.sample, i); first < keys; first += kWarp) {
    const int64_t j = first + lane;
    Wide ds = 0;
    if (j < keys) {
      const Wide p =
          cpu::exp_of(dot(query[warp], qkv + at.key + j * at.qkv_stride, how.head_dim) * scale - log_sum);
      const Wide dp = dot(grad[warp], qkv + at.value + j * at.qkv_stride, how.head_dim) *
                      kept<Wide>(how, item.sample, item.head, i, j);
      ds = p * (dp - delta) * scale;
    }
    score_gradient[warp][lane] = ds;
    __syncwarp();
    const int64_t count = keys - first < kWarp ? keys - first : kWarp;
    add_rows(sum, score_gradient[warp], qkv + at.key + first * at.qkv_stride, at.qkv_stride, count,
             how.head_dim);
    __syncwarp();
  }
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int64_t c = lane + k * kWarp;
    if (c < how.head_dim) put(dqkv[at.query + i * at.qkv_stride + c], sum[k]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    key_gradient_kernel(T* dqkv, const T* dout, const T* qkv, const T* out, const Accumulate<T>* lse,
                        PlainAttention how) {
  using Wide = Accumulate<T>;
  __shared__ Wide key[kWarps][kPlainAttentionWidth];
  __shared__ Wide val[kWarps][kPlainAttentionWidth];
  __shared__ Wide score_gradient[kWarps][kWarp];
  __shared__ Wide probability[kWarps][kWarp];
  const Item item = item_of(how.seq, how.kv_heads, how.batch);
  if (!item.valid) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t shared_by = how.heads / how.kv_heads;
  const int64_t j = item.at;
  const auto scale = static_cast<Wide>(how.scale);
  Wide dkey[kColumns] = {};
  Wide dvalue[kColumns] = {};
  const Places own = places_of(how, item.sample, item.head * shared_by);
  share(key[warp], qkv + own.key + j * own.qkv_stride, how.head_dim);
  share(val[warp], qkv + own.value + j * own.qkv_stride, how.head_dim);
  __syncwarp();
  const bool exists = j < keys_of(how, item.sample);
  for (int64_t h = item.head * shared_by; exists && h < (item.head + 1) * shared_by; ++h) {
    const Places at = places_of(how, item.sample, h);
    const Wide* log_sums = lse + (item.sample * how.heads + h) * how.seq;
    for (int64_t first = how.causal ? j : 0; first < how.seq; first += kWarp) {
      if (first_key(how, item.sample, first) > j) break;  // no later query sees the key either
      const int64_t i = first + lane;
      Wide ds = 0;
      Wide p = 0;
      if (i < how.seq && first_key(how, item.sample, i) <= j) {
        const T* grad = dout + at.out + i * at.out_stride;
        Wide delta = 0;
        for (int64_t c = 0; c < how.head_dim; ++c)
          delta += value(grad[c]) * value(out[at.out + i * at.out_stride + c]);
        p = cpu::exp_of(dot(key[warp], qkv + at.query + i * at.qkv_stride, how.head_dim) * scale -
                        log_sums[i]);
        const Wide keep = kept<Wide>(how, item.sample, h, i, j);
        ds = p * (dot(val[warp], grad, how.head_dim) * keep - delta) * scale;
        p *= keep;
      }
      score_gradient[warp][lane] = ds;
      probability[warp][lane] = p;
      __syncwarp();
      const int64_t count = how.seq - first < kWarp ? how.seq - first : kWarp;
      add_rows(dkey, score_gradient[warp], qkv + at.query + first * at.qkv_stride, at.qkv_stride, count,
               how.head_dim);
      add_rows(dvalue, probability[warp], dout + at.out + first * at.out_stride, at.out_stride, count,
               how.head_dim);
      __syncwarp();
    }
  }
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int64_t c = lane + k * kWarp;
    if (c >= how.head_dim) continue;
    put(dqkv[own.key + j * own.qkv_stride + c], dkey[k]);
    put(dqkv[own.value + j * own.qkv_stride + c], dvalue[k]);
  }
}

}  // namespace

template <class T>
void plain_attention(CudaStream stream, T* out, Accumulate<T>* lse, const T* qkv, const PlainAttention& how) {
  const int64_t queries = how.batch * how.heads * how.seq;
  if (queries == 0) return;
  TRIFOLD_LAUNCH((attention_kernel<T>), dim3(static_cast<unsigned>(parts(queries, kWarps))), dim3(kThreads),
                 0, stream, out, lse, qkv, how);
}
template <class T>
void plain_attention_backward(CudaStream stream, T* dqkv, const T* dout, const T* qkv, const T* out,
                              const Accumulate<T>* lse, const PlainAttention& how) {
  const int64_t queries = how.batch * how.heads * how.seq;
  const int64_t keys = how.batch * how.kv_heads * how.seq;
  if (queries == 0) return;
  TRIFOLD_LAUNCH((query_gradient_kernel<T>), dim3(static_cast<unsigned>(parts(queries, kWarps))),
                 dim3(kThreads), 0, stream, dqkv, dout, qkv, out, lse, how);
  TRIFOLD_LAUNCH((key_gradient_kernel<T>), dim3(static_cast<unsigned>(parts(keys, kWarps))), dim3(kThreads),
                 0, stream, dqkv, dout, qkv, out, lse, how);
}

#define INSTANTIATE(T)                                                                               \
  template void plain_attention<T>(CudaStream, T*, Accumulate<T>*, const T*, const PlainAttention&); \
  template void plain_attention_backward<T>(CudaStream, T*, const T*, const T*, const T*,            \
                                            const Accumulate<T>*, const PlainAttention&);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
