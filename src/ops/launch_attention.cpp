// Launchers of attention. One worker does a head of a sample wholly; going backward, all heads that share a
// key head, so that the gradients of keys and values are summed in one fixed order.
#include <algorithm>
#include <vector>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

// What the enqueued work keeps of an Attention.
struct Heads {
  explicit Heads(const Attention& how)
      : batch(how.batch),
        seq(how.seq),
        heads(how.heads),
        kv_heads(how.kv_heads),
        head_dim(how.head_dim),
        global_heads(how.global_heads),
        causal(how.causal),
        scale(how.scale),
        lengths(memory_of(how.lengths)),
        first_keys(memory_of(how.first_keys)) {}

  static const int32_t* memory_of(const Tensor& tensor) {
    return tensor.data == nullptr ? nullptr : tensor.as<int32_t>();
  }

  int64_t batch, seq, heads, kv_heads, head_dim, global_heads;
  bool causal;
  double scale;
  const int32_t* lengths;     // or null
  const int32_t* first_keys;  // or null
};

// What kernels.h says a head needs.
int64_t scratch_of(const Heads& how, int64_t scores, int64_t blocks, int64_t panel_copies) {
  return scores * kScoreScratch +
         (blocks * kQueryBlock + panel_copies * ((how.seq + kPanel - 1) / kPanel * kPanel)) * how.head_dim;
}

HeadShape shape_of(const Heads& how, const LateIndex& first, int64_t sample, int64_t head) {
  const uint64_t row = first.now() + static_cast<uint64_t>(sample * how.global_heads + head);
  const auto seq = static_cast<uint64_t>(how.seq);
  const int64_t keys = how.lengths == nullptr ? how.seq : how.lengths[sample];
  return {.seq = how.seq,
          .keys = std::clamp<int64_t>(keys, 1, how.seq),
          .first_keys = how.first_keys == nullptr ? nullptr : how.first_keys + sample * how.seq,
          .width = how.head_dim,
          .qkv_stride = (how.heads + 2 * how.kv_heads) * how.head_dim,
          .out_stride = how.heads * how.head_dim,
          .causal = how.causal,
          .scale = how.scale,
          .element = row * seq * seq};
}

// Where the head's first query, key and value lie in a packed matrix, counted in numbers.
struct Offsets {
  int64_t query, key, value;
};
Offsets offsets_of(const Heads& how, int64_t sample, int64_t head) {
  const int64_t base = sample * how.seq * (how.heads + 2 * how.kv_heads) * how.head_dim;
  const int64_t kv_head = head / (how.heads / how.kv_heads);
  return {base + head * how.head_dim, base + (how.heads + kv_head) * how.head_dim,
          base + (how.heads + how.kv_heads + kv_head) * how.head_dim};
}

// The output's first row of a head, and its first log of the sum.
int64_t out_offset(const Heads& how, int64_t sample, int64_t head) {
  return (sample * how.seq * how.heads + head) * how.head_dim;
}
int64_t lse_offset(const Heads& how, int64_t sample, int64_t head) {
  return (sample * how.heads + head) * how.seq;
}

template <class T>
struct Forward {
  const StorageKernels<T>& kernels;
  Heads how;
  LateIndex first;
  DropRule rule;
  T* out;
  Accumulate<T>* lse;
  const T* qkv;

  void head(int64_t sample, int64_t head) const {
    const Offsets at = offsets_of(how, sample, head);
    kernels.attention_forward(out + out_offset(how, sample, head), lse + lse_offset(how, sample, head),
                              {qkv + at.query, qkv + at.key, qkv + at.value},
                              shape_of(how, first, sample, head), rule,
                              scratch<Accumulate<T>>(scratch_of(how, 1, 2, 2)));
  }
};

template <class T>
struct Backward {
  const StorageKernels<T>& kernels;
  Heads how;
  LateIndex first;
  DropRule rule;
  T* dqkv;
  const T* dout;
  const T* qkv;
  const T* out;
  const Accumulate<T>* lse;

  // All query heads that read one key head.
  void group(int64_t sample, int64_t kv_head) const {
    const int64_t shared = how.heads / how.kv_heads;
    for (int64_t i = 0; i < shared; ++i) {
      const int64_t head = kv_head * shared + i;
      const Offsets at = offsets_of(how, sample, head);
      const int64_t row = out_offset(how, sample, head);
      kernels.attention_backward({dqkv + at.query, dqkv + at.key, dqkv + at.value}, dout + row, out + row,
                                 lse + lse_offset(how, sample, head),
                                 {qkv + at.query, qkv + at.key, qkv + at.value},
                                 shape_of(how, first, sample, head), rule, i == 0, i == shared - 1,
                                 scratch<Accumulate<T>>(scratch_of(how, 2, 3, 5)));
    }
  }
};

}  // namespace

void attention(const KernelTable& table, Stream& stream, Tensor out, Tensor lse, Tensor qkv,
               const Attention& how) {
  const DropRule rule = drop_rule("attention", how.dropout);
  const LateIndex first = first_head("attention", how);
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Forward<T> work{storage_kernels<T>(table), Heads(how), first, rule, out.as<T>(),
                          lse.as<Accumulate<T>>(),   qkv.as<T>()};
    stream.run([pool = &stream.pool(), work] {
      pool->parallel_for(work.how.batch * work.how.heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work.head(i / work.how.heads, i % work.how.heads);
      });
    });
  });
}

void attention_backward(const KernelTable& table, Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv,
                        Tensor out, Tensor lse, const Attention& how) {
  const DropRule rule = drop_rule("attention_backward", how.dropout);
  const LateIndex first = first_head("attention_backward", how);
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Backward<T> work{storage_kernels<T>(table),
                           Heads(how),
                           first,
                           rule,
                           dqkv.as<T>(),
                           dout.as<T>(),
                           qkv.as<T>(),
                           out.as<T>(),
                           lse.as<Accumulate<T>>()};
    stream.run([pool = &stream.pool(), work] {
      pool->parallel_for(work.how.batch * work.how.kv_heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work.group(i / work.how.kv_heads, i % work.how.kv_heads);
      });
    });
  });
}

void add_attention(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::attention, attention>(ops, table);
  bind<&OpTable::attention_backward, attention_backward>(ops, table);
}

}  // namespace trifold::cpu
