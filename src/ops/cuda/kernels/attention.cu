// Plain softmax attention, for calls that cuDNN does not support, and the reference in tests. One warp per query (in
// the gradient of keys: per key) processes 32 keys (queries) at a time: a lane computes the score of one of them, and
// sums some columns over all of them. The scores of a whole row are never stored.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kColumns = static_cast<int>(kPlainAttentionWidth) / kWarp;  // columns per lane

// The offsets of rows: a query head's in qkv and in out, a key head's in the matrix of keys and values.
struct Offsets {
  int64_t qkv_stride, key_stride, out_stride;
  int64_t query, key, value, out;
};
__device__ inline Offsets offsets_of(const PlainAttention& attention, int64_t b, int64_t head) {
  const int64_t kv_head = head / (attention.heads / attention.kv_heads) - attention.first_given;
  const int64_t stride = (attention.heads + 2 * attention.kv_heads) * attention.head_dim;
  const int64_t key_stride = attention.gathered ? 2 * attention.given * attention.head_dim : stride;
  const int64_t keys = b * attention.keys.rows * key_stride;
  const int64_t first_key = attention.gathered ? 0 : attention.heads;
  return {stride,
          key_stride,
          attention.heads * attention.head_dim,
          b * attention.queries.rows * stride + head * attention.head_dim,
          keys + (first_key + kv_head) * attention.head_dim,
          keys + (first_key + attention.given + kv_head) * attention.head_dim,
          (b * attention.queries.rows * attention.heads + head) * attention.head_dim};
}

__device__ inline int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
__device__ inline int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

// The number of valid keys of a sample.
__device__ inline int64_t keys_of(const PlainAttention& attention, int64_t b) {
  if (attention.lengths == nullptr) return attention.seq;
  const auto length = static_cast<int64_t>(attention.lengths[b]);
  return length < 1 ? 1 : length;
}

// The end of the keys that the query at position i of a sample sees.
__device__ inline int64_t keys_seen(const PlainAttention& attention, int64_t b, int64_t i) {
  return earlier(keys_of(attention, b), i + attention.right + 1);
}

// The first key that the query at position i of a sample sees.
__device__ inline int64_t first_key(const PlainAttention& attention, int64_t b, int64_t i) {
  const int64_t in_document =
      attention.first_keys == nullptr ? 0 : static_cast<int64_t>(attention.first_keys[b * attention.seq + i]);
  return later(in_document, i - attention.left);
}

// The score with Attention::soft_cap, and the derivative of that cap, from the score with it.
template <class Wide>
__device__ inline Wide capped(const PlainAttention& attention, Wide score) {
  const auto cap = static_cast<Wide>(attention.soft_cap);
  return cap > 0 ? cap * cpu::tanh_of(score / cap) : score;
}
template <class Wide>
__device__ inline Wide cap_slope(const PlainAttention& attention, Wide score) {
  const auto cap = static_cast<Wide>(attention.soft_cap);
  return cap > 0 ? 1 - score / cap * (score / cap) : Wide(1);
}

// The factor of a probability under dropout: the inverse of the keep rate, or 0.
template <class Wide>
__device__ inline Wide kept(const PlainAttention& attention, int64_t b, int64_t head, int64_t i, int64_t j) {
  if (!attention.rule.active) return 1;
  const uint64_t row = attention.first.now() + static_cast<uint64_t>(b * attention.global_heads + head);
  const uint64_t element = (row * static_cast<uint64_t>(attention.seq) + static_cast<uint64_t>(i)) *
                               static_cast<uint64_t>(attention.seq) +
                           static_cast<uint64_t>(j);
  const cpu::PhiloxWords words = cpu::philox_block(attention.rule.key_lo, attention.rule.key_hi, element / 4);
  return words.at[element % 4] >= attention.rule.threshold ? static_cast<Wide>(attention.rule.multiplier)
                                                           : Wide(0);
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

// The work item of a warp, from its index over all blocks: one of `each` queries (or keys) of a head, and
// the sample and head, one of `heads` from `first_head` on.
struct Item {
  int64_t at, head, sample;
  bool valid;
};
__device__ inline Item item_of(int64_t each, int64_t first_head, int64_t heads, int64_t batch) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  return {n % each, first_head + n / each % heads, n / each / heads, n < each * heads * batch};
}

// The query of a warp, in a head that this call computes.
__device__ inline Item query_of(const PlainAttention& attention) {
  const int64_t shared_by = attention.heads / attention.kv_heads;
  return item_of(attention.queries.rows, attention.first_given * shared_by, attention.given * shared_by,
                 attention.batch);
}

// A step over further keys continues from the sums over earlier ones, which are in out and lse.
template <class T>
__global__ void __launch_bounds__(kThreads, 1) attention_kernel(PlainForward<T> t, PlainAttention attention) {
  using Wide = Accumulate<T>;
  __shared__ Wide query[kWarps][kPlainAttentionWidth];
  __shared__ Wide probability[kWarps][kWarp];
  const Item item = query_of(attention);
  if (!item.valid) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Offsets at = offsets_of(attention, item.sample, item.head);
  const int64_t i = attention.queries.position(item.at);
  const int64_t out_row = at.out + item.at * at.out_stride;
  Wide* log_sum = t.lse + (item.sample * attention.heads + item.head) * attention.queries.rows + item.at;
  share(query[warp], t.qkv + at.query + item.at * at.qkv_stride, attention.head_dim);
  __syncwarp();
  Wide most = attention.further ? *log_sum : cpu::kLowest<Wide>;
  Wide total = attention.further ? Wide(1) : Wide(0);
  Wide sum[kColumns] = {};
#pragma unroll
  for (int k = 0; k < kColumns; ++k)
    if (attention.further && lane + k * kWarp < attention.head_dim)
      sum[k] = t.wide_out[out_row + lane + k * kWarp];
  for (int run = 0; run < 2; ++run) {
    const int64_t end = earlier(attention.keys.end(run), keys_seen(attention, item.sample, i));
    const int64_t row_of_zero = attention.keys.first_row(run) - attention.keys.begin[run];
    for (int64_t first = later(attention.keys.begin[run], first_key(attention, item.sample, i)); first < end;
         first += kWarp) {
      const int64_t j = first + lane;
      Wide score = cpu::kLowest<Wide>;
      if (j < end)
        score = capped(attention, dot(query[warp], t.keys + at.key + (row_of_zero + j) * at.key_stride,
                                      attention.head_dim) *
                                      static_cast<Wide>(attention.scale));
      const Wide now = cpu::larger(most, combine_lanes(score, Most{}));
      const Wide p = j < end ? cpu::exp_of(score - now) : Wide(0);
      const Wide shrink = cpu::exp_of(most - now);
      most = now;
      total = total * shrink + combine_lanes(p, Plus{});
      probability[warp][lane] = j < end ? p * kept<Wide>(attention, item.sample, item.head, i, j) : Wide(0);
#pragma unroll
      for (int k = 0; k < kColumns; ++k) sum[k] *= shrink;
      __syncwarp();
      add_rows(sum, probability[warp], t.keys + at.value + (row_of_zero + first) * at.key_stride,
               at.key_stride, earlier(end - first, kWarp), attention.head_dim);
      __syncwarp();
    }
  }
  const bool none = total == Wide(0);  // all keys that the query could see in this step are padding
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int64_t c = lane + k * kWarp;
    if (c >= attention.head_dim) continue;
    const Wide result = none ? Wide(0) : sum[k] / total;
    if (attention.in_steps)
      t.wide_out[out_row + c] = result;
    else
      put(t.out[out_row + c], result);
  }
  __syncwarp();  // lanes have read the sums before
  if (lane == 0) *log_sum = none ? most : most + cpu::log_of(total);
}

// With P = exp(scale S - lse), its kept part D = kept P, and delta = dout . out: dS = P (kept dout . v -
// delta). The two kernels below compute P and dS of one query, or one key, 32 at a time.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    query_gradient_kernel(PlainBackward<T> t, PlainAttention attention) {
  using Wide = Accumulate<T>;
  __shared__ Wide query[kWarps][kPlainAttentionWidth];
  __shared__ Wide grad[kWarps][kPlainAttentionWidth];
  __shared__ Wide score_gradient[kWarps][kWarp];
  const Item item = query_of(attention);
  if (!item.valid) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Offsets at = offsets_of(attention, item.sample, item.head);
  const int64_t i = attention.queries.position(item.at);
  const int64_t out_row = at.out + item.at * at.out_stride;
  share(query[warp], t.qkv + at.query + item.at * at.qkv_stride, attention.head_dim);
  share(grad[warp], t.dout + out_row, attention.head_dim);
  __syncwarp();
  const Wide delta = dot(grad[warp], t.out + out_row, attention.head_dim);
  const Wide log_sum = t.lse[(item.sample * attention.heads + item.head) * attention.queries.rows + item.at];
  const auto scale = static_cast<Wide>(attention.scale);
  Wide sum[kColumns] = {};
  for (int run = 0; run < 2; ++run) {
    const int64_t end = earlier(attention.keys.end(run), keys_seen(attention, item.sample, i));
    const int64_t row_of_zero = attention.keys.first_row(run) - attention.keys.begin[run];
    for (int64_t first = later(attention.keys.begin[run], first_key(attention, item.sample, i)); first < end;
         first += kWarp) {
      const int64_t j = first + lane;
      Wide ds = 0;
      if (j < end) {
        const int64_t row = (row_of_zero + j) * at.key_stride;
        const Wide score =
            capped(attention, dot(query[warp], t.keys + at.key + row, attention.head_dim) * scale);
        const Wide p = cpu::exp_of(score - log_sum);
        const Wide dp = dot(grad[warp], t.keys + at.value + row, attention.head_dim) *
                        kept<Wide>(attention, item.sample, item.head, i, j);
        ds = p * (dp - delta) * cap_slope(attention, score) * scale;
      }
      score_gradient[warp][lane] = ds;
      __syncwarp();
      add_rows(sum, score_gradient[warp], t.keys + at.key + (row_of_zero + first) * at.key_stride,
               at.key_stride, earlier(end - first, kWarp), attention.head_dim);
      __syncwarp();
    }
  }
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int64_t c = lane + k * kWarp;
    if (c >= attention.head_dim) continue;
    if (t.dqueries != nullptr)
      t.dqueries[out_row + c] += sum[k];
    else
      put(t.dqkv[at.query + item.at * at.qkv_stride + c], sum[k]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    key_gradient_kernel(PlainBackward<T> t, PlainAttention attention) {
  using Wide = Accumulate<T>;
  __shared__ Wide key[kWarps][kPlainAttentionWidth];
  __shared__ Wide val[kWarps][kPlainAttentionWidth];
  __shared__ Wide score_gradient[kWarps][kWarp];
  __shared__ Wide probability[kWarps][kWarp];
  const Item item = item_of(attention.keys.rows, attention.first_given, attention.given, attention.batch);
  if (!item.valid) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t shared_by = attention.heads / attention.kv_heads;
  const int64_t j = attention.keys.position(item.at);
  const auto scale = static_cast<Wide>(attention.scale);
  Wide dkey[kColumns] = {};
  Wide dvalue[kColumns] = {};
  const Offsets at_keys = offsets_of(attention, item.sample, item.head * shared_by);
  const int64_t key_row = item.at * at_keys.key_stride;
  share(key[warp], t.keys + at_keys.key + key_row, attention.head_dim);
  share(val[warp], t.keys + at_keys.value + key_row, attention.head_dim);
  __syncwarp();
  const bool exists = j < keys_of(attention, item.sample);
  for (int64_t h = item.head * shared_by; exists && h < (item.head + 1) * shared_by; ++h) {
    const Offsets at = offsets_of(attention, item.sample, h);
    const Wide* log_sums = t.lse + (item.sample * attention.heads + h) * attention.queries.rows;
    for (int run = 0; run < 2; ++run) {
      const int64_t end = attention.queries.end(run);
      const int64_t row_of_zero = attention.queries.first_row(run) - attention.queries.begin[run];
      for (int64_t first = later(attention.queries.begin[run], j - attention.right); first < end;
           first += kWarp) {
        if (first_key(attention, item.sample, first) > j) break;  // no later query sees the key either
        const int64_t i = first + lane;
        Wide ds = 0;
        Wide p = 0;
        if (i < end && first_key(attention, item.sample, i) <= j) {
          const int64_t row = row_of_zero + i;
          const T* grad = t.dout + at.out + row * at.out_stride;
          const T* result = t.out + at.out + row * at.out_stride;
          Wide delta = 0;
          for (int64_t c = 0; c < attention.head_dim; ++c) delta += value(grad[c]) * value(result[c]);
          const Wide score = capped(
              attention, dot(key[warp], t.qkv + at.query + row * at.qkv_stride, attention.head_dim) * scale);
          p = cpu::exp_of(score - log_sums[row]);
          const Wide keep = kept<Wide>(attention, item.sample, h, i, j);
          ds = p * (dot(val[warp], grad, attention.head_dim) * keep - delta) * cap_slope(attention, score) *
               scale;
          p *= keep;
        }
        score_gradient[warp][lane] = ds;
        probability[warp][lane] = p;
        __syncwarp();
        const int64_t count = earlier(end - first, kWarp);
        const int64_t first_row = row_of_zero + first;
        add_rows(dkey, score_gradient[warp], t.qkv + at.query + first_row * at.qkv_stride, at.qkv_stride,
                 count, attention.head_dim);
        add_rows(dvalue, probability[warp], t.dout + at.out + first_row * at.out_stride, at.out_stride, count,
                 attention.head_dim);
        __syncwarp();
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int64_t c = lane + k * kWarp;
    if (c >= attention.head_dim) continue;
    if (t.dkeys == nullptr) {
      put(t.dqkv[at_keys.key + key_row + c], dkey[k]);
      put(t.dqkv[at_keys.value + key_row + c], dvalue[k]);
      continue;
    }
    Wide& to_key = t.dkeys[at_keys.key + key_row + c];
    Wide& to_value = t.dkeys[at_keys.value + key_row + c];
    to_key = attention.in_steps ? to_key + dkey[k] : dkey[k];
    to_value = attention.in_steps ? to_value + dvalue[k] : dvalue[k];
  }
}

// A warp for each row of a head.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sinks_kernel(T* out, Accumulate<T>* lse, const T* sinks, int64_t heads, int64_t queries, int64_t width,
                 int64_t items) {
  using Wide = Accumulate<T>;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (item >= items) return;
  const int64_t query = item % queries, head = item / queries % heads, sample = item / queries / heads;
  const Wide before = lse[item];
  const Wide sink = value(sinks[head]);
  const Wide most = cpu::larger(before, sink);
  const Wide sum = most + cpu::log_of(cpu::exp_of(before - most) + cpu::exp_of(sink - most));
  const Wide factor = cpu::exp_of(before - sum);
  T* row = out + ((sample * queries + query) * heads + head) * width;
  for (int64_t c = threadIdx.x % kWarp; c < width; c += kWarp) put(row[c], value(row[c]) * factor);
  __syncwarp();  // all lanes have read `before`
  if (threadIdx.x % kWarp == 0) lse[item] = sum;
}

// A block for each head. Its threads take rows in turn; their sums, in f64, are added in order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sinks_gradient_kernel(Accumulate<T>* dsinks, const T* dout, const T* out, const Accumulate<T>* lse,
                          const T* sinks, int64_t batch, int64_t queries, int64_t width) {
  __shared__ double sums[kThreads];
  const int64_t head = blockIdx.x, heads = gridDim.x;
  const Accumulate<T> sink = value(sinks[head]);
  double total = 0;
  for (int64_t item = threadIdx.x; item < batch * queries; item += kThreads) {
    const int64_t sample = item / queries, query = item % queries;
    const int64_t row = (item * heads + head) * width;
    double product = 0;
    for (int64_t c = 0; c < width; ++c)
      product += static_cast<double>(value(dout[row + c])) * static_cast<double>(value(out[row + c]));
    total +=
        product * static_cast<double>(cpu::exp_of(sink - lse[(sample * heads + head) * queries + query]));
  }
  sums[threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int thread = 1; thread < kThreads; ++thread) total += sums[thread];
  dsinks[head] = static_cast<Accumulate<T>>(-total);
}

int64_t query_items(const PlainAttention& attention) {
  return attention.batch * attention.given * (attention.heads / attention.kv_heads) * attention.queries.rows;
}

}  // namespace

template <class T>
void plain_attention(CudaStream stream, const PlainForward<T>& tensors, const PlainAttention& attention) {
  const int64_t queries = query_items(attention);
  if (queries == 0) return;
  TRIFOLD_LAUNCH((attention_kernel<T>), dim3(static_cast<unsigned>(parts(queries, kWarps))), dim3(kThreads),
                 0, stream, tensors, attention);
}
template <class T>
void plain_attention_backward(CudaStream stream, const PlainBackward<T>& tensors,
                              const PlainAttention& attention) {
  const int64_t queries = query_items(attention);
  const int64_t keys = attention.batch * attention.given * attention.keys.rows;
  if (queries == 0) return;
  TRIFOLD_LAUNCH((query_gradient_kernel<T>), dim3(static_cast<unsigned>(parts(queries, kWarps))),
                 dim3(kThreads), 0, stream, tensors, attention);
  TRIFOLD_LAUNCH((key_gradient_kernel<T>), dim3(static_cast<unsigned>(parts(keys, kWarps))), dim3(kThreads),
                 0, stream, tensors, attention);
}

template <class T>
void attention_sinks(CudaStream stream, T* out, Accumulate<T>* lse, const T* sinks, int64_t batch,
                     int64_t heads, int64_t queries, int64_t width) {
  const int64_t items = batch * heads * queries;
  if (items == 0) return;
  TRIFOLD_LAUNCH((sinks_kernel<T>), dim3(static_cast<unsigned>(parts(items, kWarps))), dim3(kThreads), 0,
                 stream, out, lse, sinks, heads, queries, width, items);
}
template <class T>
void attention_sinks_backward(CudaStream stream, Accumulate<T>* dsinks, const T* dout, const T* out,
                              const Accumulate<T>* lse, const T* sinks, int64_t batch, int64_t heads,
                              int64_t queries, int64_t width) {
  TRIFOLD_LAUNCH((sinks_gradient_kernel<T>), dim3(static_cast<unsigned>(heads)), dim3(kThreads), 0, stream,
                 dsinks, dout, out, lse, sinks, batch, queries, width);
}

#define INSTANTIATE(T)                                                                                   \
  template void plain_attention<T>(CudaStream, const PlainForward<T>&, const PlainAttention&);           \
  template void plain_attention_backward<T>(CudaStream, const PlainBackward<T>&, const PlainAttention&); \
  template void attention_sinks<T>(CudaStream, T*, Accumulate<T>*, const T*, int64_t, int64_t, int64_t,  \
                                   int64_t);                                                             \
  template void attention_sinks_backward<T>(CudaStream, Accumulate<T>*, const T*, const T*,              \
                                            const Accumulate<T>*, const T*, int64_t, int64_t, int64_t,   \
                                            int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
