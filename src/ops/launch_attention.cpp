// Launchers of attention. One worker computes a whole head of a sample; in backward, all heads that share a
// key head, so that the gradients of keys and values are summed in one fixed order.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

// The parts of an Attention that the enqueued work keeps.
struct Heads {
  explicit Heads(const Attention& how)
      : batch(how.batch),
        seq(how.seq),
        rows(how.rows.rows() > 0 ? how.rows : SequenceRows(how.seq)),
        gathered(how.rows.rows() > 0),
        key_rows(how.in_steps() ? how.key_rows : SequenceRows(how.seq)),
        in_steps(how.in_steps()),
        further(how.further),
        heads(how.heads),
        kv_heads(how.kv_heads),
        first_given(how.first_given),
        given(how.given()),
        head_dim(how.head_dim),
        global_heads(how.global_heads),
        causal(how.causal),
        scale(how.scale),
        lengths(memory_of(how.lengths)),
        first_keys(memory_of(how.first_keys)) {}

  static const int32_t* memory_of(const Tensor& tensor) {
    return tensor.data == nullptr ? nullptr : tensor.as<int32_t>();
  }

  int64_t query_stride() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t key_stride() const { return gathered ? 2 * given * head_dim : query_stride(); }
  // Positions of a sample, without padding.
  int64_t existing(int64_t sample) const {
    return lengths == nullptr ? seq : std::clamp<int64_t>(lengths[sample], 1, seq);
  }
  int64_t shared() const { return heads / kv_heads; }  // query heads that read a key head
  int64_t most_keys() const {
    int64_t most = 0;
    for (const RowRun& run : key_rows.runs()) most = std::max(most, run.count);
    return most;
  }

  int64_t batch, seq;
  SequenceRows rows;  // of the queries
  bool gathered;      // keys and values are in a separate matrix
  SequenceRows key_rows;
  bool in_steps, further;  // as in Attention
  int64_t heads, kv_heads, first_given, given, head_dim, global_heads;
  bool causal;
  double scale;
  const int32_t* lengths;     // or null
  const int32_t* first_keys;  // or null
};

// The scratch that a head needs, according to kernels.h.
int64_t scratch_of(const Heads& how, int64_t scores, int64_t blocks, int64_t panel_copies) {
  return scores * kScoreScratch +
         (blocks * kQueryBlock + panel_copies * ((how.most_keys() + kPanel - 1) / kPanel * kPanel)) *
             how.head_dim;
}

HeadShape shape_of(const Heads& how, const LateIndex& first, int64_t sample, int64_t head, const RowRun& run,
                   const RowRun& keys) {
  const uint64_t row = first.now() + static_cast<uint64_t>(sample * how.global_heads + head);
  const auto seq = static_cast<uint64_t>(how.seq);
  const int64_t seen = std::min(keys.end(), how.causal ? run.end() : how.seq);
  // Under a causal mask positions are counted from the first key; otherwise only keys are, and queries may come first.
  const int64_t origin = how.causal ? keys.begin : 0;
  return {
      .seq = how.seq,
      .origin = keys.begin,
      .held = keys.count,
      .keys = std::min(how.existing(sample), seen) - keys.begin,
      .first_query = run.begin - origin,
      .queries = run.count,
      .first_keys = how.first_keys == nullptr ? nullptr : how.first_keys + sample * how.seq + origin,
      .width = how.head_dim,
      .query_stride = how.query_stride(),
      .key_stride = how.key_stride(),
      .out_stride = how.heads * how.head_dim,
      .causal = how.causal,
      .scale = how.scale,
      .element = row * seq * seq + static_cast<uint64_t>(origin) * seq + static_cast<uint64_t>(keys.begin)};
}

// Calls body(keys, first) for the runs of keys that a run of queries sees: its own first, if it is among them. Returns
// whether there is any.
template <class Body>
bool for_each_key_run(const Heads& how, int64_t sample, const RowRun& queries, Body body) {
  const int64_t end = std::min(how.existing(sample), how.causal ? queries.end() : how.seq);
  bool first = true;
  for (const bool own : {true, false})
    for (const RowRun& keys : how.key_rows.runs()) {
      const bool same = keys.begin == queries.begin && keys.count == queries.count;
      if (same != own || keys.begin >= end) continue;
      body(keys, first);
      first = false;
    }
  return !first;
}

// Where the first query of a run, and the first key and value of its head in a run of keys, lie in their
// matrices, counted in numbers.
struct Offsets {
  int64_t query, key, value;
};
Offsets offsets_of(const Heads& how, int64_t sample, int64_t head, const RowRun& run, const RowRun& key_run) {
  const int64_t query = (sample * how.rows.rows() + run.row) * how.query_stride();
  const int64_t keys = (sample * how.key_rows.rows() + key_run.row) * how.key_stride();
  const int64_t first_key = how.gathered ? 0 : how.heads;
  const int64_t kv_head = head / how.shared() - how.first_given;
  return {query + head * how.head_dim, keys + (first_key + kv_head) * how.head_dim,
          keys + (first_key + how.given + kv_head) * how.head_dim};
}

// The offset of a run's first row of the output, and of its first log of the sum.
int64_t out_offset(const Heads& how, int64_t sample, int64_t head, const RowRun& run) {
  return ((sample * how.rows.rows() + run.row) * how.heads + head) * how.head_dim;
}
int64_t lse_offset(const Heads& how, int64_t sample, int64_t head, const RowRun& run) {
  return (sample * how.heads + head) * how.rows.rows() + run.row;
}

template <class T>
struct Forward {
  const StorageKernels<T>& kernels;
  Heads how;
  LateIndex first;
  DropRule rule;
  T* out;                   // or null
  Accumulate<T>* wide_out;  // or null
  Accumulate<T>* lse;
  const T* qkv;
  const T* keys;  // qkv, or keys and values of all positions, or of some

  void head(int64_t sample, int64_t head) const {
    for (const RowRun& run : how.rows.runs()) {
      const bool any = for_each_key_run(how, sample, run, [&](const RowRun& key_run, bool first_run) {
        const Offsets at = offsets_of(how, sample, head, run, key_run);
        kernels.attention_forward(output(sample, head, run, how.further || !first_run),
                                  {qkv + at.query, keys + at.key, keys + at.value},
                                  shape_of(how, first, sample, head, run, key_run), rule,
                                  scratch<Accumulate<T>>(scratch_of(how, 1, 2, 2)));
      });
      if (!any && !how.further) begin_without_keys(sample, head, run);
    }
  }

  // The first step of queries whose own keys are all padding: sums over no keys, to which the next step adds.
  void begin_without_keys(int64_t sample, int64_t head, const RowRun& run) const {
    Accumulate<T>* from = wide_out + out_offset(how, sample, head, run);
    for (int64_t r = 0; r < run.count; ++r)
      std::fill_n(from + r * how.heads * how.head_dim, how.head_dim, Accumulate<T>(0));
    std::fill_n(lse + lse_offset(how, sample, head, run), run.count,
                std::numeric_limits<Accumulate<T>>::lowest());
  }

  HeadOutput<T> output(int64_t sample, int64_t head, const RowRun& run, bool adds) const {
    const int64_t at = out_offset(how, sample, head, run);
    Accumulate<T>* sums = lse + lse_offset(how, sample, head, run);
    if (how.in_steps) return {nullptr, sums, wide_out + at, adds};
    return {out + at, sums};
  }
};

template <class T>
struct Backward {
  const StorageKernels<T>& kernels;
  Heads how;
  LateIndex first;
  DropRule rule;
  T* dqkv;
  Accumulate<T>* dkeys;     // of the keys that are given, or null
  Accumulate<T>* dqueries;  // or null
  const T* dout;
  const T* qkv;
  const T* keys;
  const T* out;
  const Accumulate<T>* lse;

  // Processes all query heads that share one key head.
  void group(int64_t sample, int64_t kv_head) const {
    const int64_t shared = how.shared();
    for (int64_t i = 0; i < shared; ++i) {
      const int64_t head = kv_head * shared + i;
      const std::span<const RowRun> runs = how.rows.runs();
      for (const RowRun& run : runs)
        for_each_key_run(how, sample, run, [&](const RowRun& key_run, bool) {
          const Offsets at = offsets_of(how, sample, head, run, key_run);
          const int64_t row = out_offset(how, sample, head, run);
          kernels.attention_backward(
              gradient(at, row), dout + row, out + row, lse + lse_offset(how, sample, head, run),
              {qkv + at.query, keys + at.key, keys + at.value},
              shape_of(how, first, sample, head, run, key_run), rule,
              !how.in_steps && i == 0 && &run == &runs.front(), i == shared - 1 && &run == &runs.back(),
              scratch<Accumulate<T>>(scratch_of(how, 2, 3, 5)));
        });
    }
  }

  HeadGradient<T> gradient(const Offsets& at, int64_t row) const {
    if (how.in_steps) return {nullptr, nullptr, nullptr, dkeys + at.key, dkeys + at.value, dqueries + row};
    if (!how.gathered) return {dqkv + at.query, dqkv + at.key, dqkv + at.value};
    return {dqkv + at.query, nullptr, nullptr, dkeys + at.key, dkeys + at.value};
  }
};

}  // namespace

void attention(const KernelTable& table, Stream& stream, Tensor out, Tensor lse, Tensor qkv,
               const Attention& how) {
  const DropRule rule = drop_rule("attention", how.dropout);
  const LateIndex first = first_head("attention", how);
  dispatch_float(qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* packed = qkv.as<T>();
    const Forward<T> work{storage_kernels<T>(table),
                          Heads(how),
                          first,
                          rule,
                          how.in_steps() ? nullptr : out.as<T>(),
                          how.in_steps() ? out.as<Accumulate<T>>() : nullptr,
                          lse.as<Accumulate<T>>(),
                          packed,
                          how.rows.rows() > 0 ? how.key_values.as<T>() : packed};
    stream.run([pool = &stream.pool(), work] {
      const int64_t first_of_run = work.how.first_given * work.how.shared();
      const int64_t heads = work.how.given * work.how.shared();
      pool->parallel_for(work.how.batch * heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work.head(i / heads, first_of_run + i % heads);
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
    const bool gathered = how.rows.rows() > 0;
    const T* packed = qkv.as<T>();
    const Backward<T> work{storage_kernels<T>(table),
                           Heads(how),
                           first,
                           rule,
                           dqkv.as<T>(),
                           gathered ? how.dkey_values.as<Accumulate<T>>() : nullptr,
                           how.in_steps() ? how.dqueries.as<Accumulate<T>>() : nullptr,
                           dout.as<T>(),
                           packed,
                           gathered ? how.key_values.as<T>() : packed,
                           out.as<T>(),
                           lse.as<Accumulate<T>>()};
    stream.run([pool = &stream.pool(), work] {
      const int64_t heads = work.how.given;
      pool->parallel_for(work.how.batch * heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work.group(i / heads, work.how.first_given + i % heads);
      });
    });
  });
}

void add_attention(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::attention, attention>(ops, table);
  bind<&OpTable::attention_backward, attention_backward>(ops, table);
}

}  // namespace trifold::cpu
