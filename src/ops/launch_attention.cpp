// Launchers of attention.
//
// Queries are taken kQueries at a time, keys kKeys at a time; scores exist only as one such block per worker.
// Going forward, the softmax is kept online: each block of keys raises the running maximum and sum of its
// queries and rescales what was accumulated. Going backward, probabilities are made again from the saved log
// of the sum, and one worker does a key head of a sample wholly, so that the gradients of keys and values are
// summed in one fixed order. Under a causal mask blocks above the diagonal are skipped.
#include <limits>
#include <vector>

#include "ops/gemm.h"
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

constexpr int64_t kQueries = 64;
constexpr int64_t kKeys = 512;

// Memory a worker keeps from call to call; it grows to what the largest call needs.
template <class T>
std::vector<T>& scratch(size_t count) {
  static thread_local std::vector<T> memory;
  if (memory.size() < count) memory.resize(count);
  return memory;
}

// Where the heads of one sample lie in a packed matrix. T may be const.
template <class T>
struct Heads {
  T* query;
  T* key;
  T* value;
  int64_t stride;
};

template <class T>
Heads<T> heads_of(T* qkv, const Attention& how, int64_t sample, int64_t head) {
  const int64_t stride = (how.heads + 2 * how.kv_heads) * how.head_dim;
  const int64_t kv_head = head / (how.heads / how.kv_heads);
  T* base = qkv + sample * how.seq * stride;
  return {base + head * how.head_dim, base + (how.heads + kv_head) * how.head_dim,
          base + (how.heads + how.kv_heads + kv_head) * how.head_dim, stride};
}

uint64_t first_element(const Attention& how, int64_t sample, int64_t head) {
  const int64_t row = (how.first_sample + sample) * how.global_heads + how.first_head + head;
  return static_cast<uint64_t>(row) * static_cast<uint64_t>(how.seq) * static_cast<uint64_t>(how.seq);
}

template <class T>
struct Forward {
  const Kernels<T>& kernels;
  Attention how;
  DropRule rule;
  T* out;
  T* lse;
  const T* qkv;

  void head(int64_t sample, int64_t head) const {
    const Heads<const T> in = heads_of(qkv, how, sample, head);
    const int64_t out_stride = how.heads * how.head_dim;
    T* result = out + sample * how.seq * out_stride + head * how.head_dim;
    T* log_sums = lse + (sample * how.heads + head) * how.seq;
    for (int64_t q = 0; q < how.seq; q += kQueries)
      queries(in, result + q * out_stride, log_sums + q, q, first_element(how, sample, head));
  }

  void queries(const Heads<const T>& in, T* result, T* log_sums, int64_t q, uint64_t element) const {
    const int64_t rows = std::min(kQueries, how.seq - q);
    const int64_t end = how.causal ? q + rows : how.seq;
    const int64_t stride = how.heads * how.head_dim;
    T* scores = scratch<T>(static_cast<size_t>(kQueries * std::min(kKeys, how.seq))).data();
    T max[kQueries];
    T sum[kQueries];
    std::fill_n(max, rows, std::numeric_limits<T>::lowest());
    std::fill_n(sum, rows, T(0));
    for (int64_t key = 0; key < end; key += kKeys) {
      const ScoreBlock block{rows, std::min(kKeys, end - key), q, key, how.seq, how.causal, element};
      gemm_block(scores, block.keys, {in.query + q * in.stride, in.stride},
                 {in.key + key * in.stride, in.stride, true}, rows, block.keys, how.head_dim, how.scale, 0);
      kernels.attention_softmax(scores, max, sum, result, how.head_dim, stride, block, rule);
      gemm_block(result, stride, {scores, block.keys}, {in.value + key * in.stride, in.stride}, rows,
                 how.head_dim, block.keys, 1, key == 0 ? 0 : 1);
    }
    kernels.attention_finish(result, log_sums, max, sum, rows, how.head_dim, stride);
  }
};

template <class T>
struct Backward {
  const Kernels<T>& kernels;
  Attention how;
  DropRule rule;
  T* dqkv;
  const T* dout;
  const T* qkv;
  const T* out;
  const T* lse;

  // All queries that read one key head. The last block of queries sees every key and goes first: it assigns
  // the gradients of keys and values, the others add to them.
  void group(int64_t sample, int64_t kv_head) const {
    const int64_t shared = how.heads / how.kv_heads;
    bool first = true;
    for (int64_t head = kv_head * shared; head < (kv_head + 1) * shared; ++head)
      for (int64_t q = (how.seq - 1) / kQueries * kQueries; q >= 0; q -= kQueries) {
        queries(sample, head, q, first);
        first = false;
      }
  }

  void queries(int64_t sample, int64_t head, int64_t q, bool first) const {
    const Heads<const T> in = heads_of(qkv, how, sample, head);
    const Heads<T> grad = heads_of(dqkv, how, sample, head);
    const int64_t rows = std::min(kQueries, how.seq - q);
    const int64_t end = how.causal ? q + rows : how.seq;
    const int64_t width = how.head_dim;
    const int64_t stride = how.heads * width;
    const int64_t offset = (sample * how.seq + q) * stride + head * width;
    const Matrix<T> dresult{dout + offset, stride};
    const size_t area = static_cast<size_t>(kQueries * std::min(kKeys, how.seq));
    T* scores = scratch<T>(2 * area).data();
    T* dscores = scores + area;
    T delta[kQueries];
    kernels.attention_delta(delta, dout + offset, out + offset, rows, width, stride);
    for (int64_t key = 0; key < end; key += kKeys) {
      const ScoreBlock block{rows,       std::min(kKeys, end - key),      q, key, how.seq,
                             how.causal, first_element(how, sample, head)};
      const int64_t keys = block.keys;
      const Matrix<T> queries_here{in.query + q * in.stride, in.stride};
      const Matrix<T> keys_here{in.key + key * in.stride, in.stride};
      const Matrix<T> values_here{in.value + key * in.stride, in.stride};
      gemm_block(scores, keys, queries_here, transposed(keys_here), rows, keys, width, how.scale, 0);
      gemm_block(dscores, keys, dresult, transposed(values_here), rows, keys, width, 1, 0);
      kernels.attention_gradient(scores, dscores, lse + (sample * how.heads + head) * how.seq + q, delta,
                                 block, rule);
      const Matrix<T> probabilities{scores, keys};
      const Matrix<T> slopes{dscores, keys};
      const double keep = first ? 0 : 1;
      gemm_block(grad.value + key * grad.stride, grad.stride, transposed(probabilities), dresult, keys, width,
                 rows, 1, keep);
      gemm_block(grad.key + key * grad.stride, grad.stride, transposed(slopes), queries_here, keys, width,
                 rows, how.scale, keep);
      gemm_block(grad.query + q * grad.stride, grad.stride, slopes, keys_here, rows, width, keys, how.scale,
                 key == 0 ? 0 : 1);
    }
  }

  static Matrix<T> transposed(Matrix<T> matrix) { return {matrix.data, matrix.stride, !matrix.transposed}; }
};

void check_attention(const char* op, const Attention& how) {
  check(how.batch >= 0 && how.seq >= 0 && how.head_dim >= 1,
        "{}: batch {}, seq {}, head_dim {} make no sense", op, how.batch, how.seq, how.head_dim);
  check(how.kv_heads >= 1 && how.heads >= 1 && how.heads % how.kv_heads == 0,
        "{}: {} query heads cannot share {} key heads evenly", op, how.heads, how.kv_heads);
  check(how.dropout.probability == 0 || how.global_heads >= how.first_head + how.heads,
        "{}: heads [{}, {}) are not among the {} of the whole model", op, how.first_head,
        how.first_head + how.heads, how.global_heads);
}

int64_t qkv_elements(const Attention& how) {
  return how.batch * how.seq * (how.heads + 2 * how.kv_heads) * how.head_dim;
}

}  // namespace

void attention(const KernelTable& table, Stream& stream, Tensor out, Tensor lse, Tensor qkv,
               const Attention& how) {
  check_attention("attention", how);
  expect("attention", "qkv", qkv, out.dtype, qkv_elements(how));
  expect("attention", "out", out, out.dtype, how.batch * how.seq * how.heads * how.head_dim);
  expect("attention", "lse", lse, out.dtype, how.batch * how.heads * how.seq);
  const DropRule rule = drop_rule("attention", how.dropout);
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Forward<T> work{kernels<T>(table), how, rule, out.as<T>(), lse.as<T>(), qkv.as<T>()};
    stream.run([pool = &stream.pool(), work] {
      pool->parallel_for(work.how.batch * work.how.heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work.head(i / work.how.heads, i % work.how.heads);
      });
    });
  });
}

void attention_backward(const KernelTable& table, Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv,
                        Tensor out, Tensor lse, const Attention& how) {
  check_attention("attention_backward", how);
  expect("attention_backward", "dqkv", dqkv, out.dtype, qkv_elements(how));
  expect("attention_backward", "qkv", qkv, out.dtype, qkv_elements(how));
  expect("attention_backward", "dout", dout, out.dtype, out.elements());
  expect("attention_backward", "out", out, out.dtype, how.batch * how.seq * how.heads * how.head_dim);
  expect("attention_backward", "lse", lse, out.dtype, how.batch * how.heads * how.seq);
  const DropRule rule = drop_rule("attention_backward", how.dropout);
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Backward<T> work{kernels<T>(table), how,         rule,        dqkv.as<T>(),
                           dout.as<T>(),      qkv.as<T>(), out.as<T>(), lse.as<T>()};
    stream.run([pool = &stream.pool(), work] {
      pool->parallel_for(work.how.batch * work.how.kv_heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work.group(i / work.how.kv_heads, i % work.how.kv_heads);
      });
    });
  });
}

}  // namespace trifold::cpu
