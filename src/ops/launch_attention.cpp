// Launchers of attention. One worker computes a whole head of a sample; in backward, all heads that share a
// key head, so that the gradients of keys and values are summed in one fixed order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

// The values of an Attention that the enqueued work needs.
struct Layout {
  explicit Layout(const Attention& attention)
      : batch(attention.batch),
        seq(attention.seq),
        rows(attention.rows.rows() > 0 ? attention.rows : SequenceRows(attention.seq)),
        gathered(attention.rows.rows() > 0),
        key_rows(attention.in_steps() ? attention.key_rows : SequenceRows(attention.seq)),
        in_steps(attention.in_steps()),
        further(attention.further),
        heads(attention.heads),
        kv_heads(attention.kv_heads),
        first_given(attention.first_given),
        given(attention.given()),
        head_dim(attention.head_dim),
        global_heads(attention.global_heads),
        causal(attention.causal),
        left(attention.left < 0 ? attention.seq : std::min(attention.left, attention.seq)),
        right(attention.causal      ? 0
              : attention.right < 0 ? attention.seq
                                    : std::min(attention.right, attention.seq)),
        scale(attention.scale),
        soft_cap(attention.soft_cap),
        lengths(memory_of(attention.lengths)),
        first_keys(memory_of(attention.first_keys)) {}

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
  SequenceRows rows;  // positions of the queries
  bool gathered;      // keys and values are in a separate matrix
  SequenceRows key_rows;
  bool in_steps, further;  // as in Attention
  int64_t heads, kv_heads, first_given, given, head_dim, global_heads;
  bool causal;
  int64_t left, right;  // up to `seq`
  double scale, soft_cap;
  const int32_t* lengths;     // or null
  const int32_t* first_keys;  // or null
};

// The scratch that a head needs, according to kernels.h.
int64_t scratch_of(const Layout& layout, int64_t scores, int64_t blocks, int64_t panel_copies) {
  return scores * kScoreScratch +
         (blocks * kQueryBlock + panel_copies * ((layout.most_keys() + kPanel - 1) / kPanel * kPanel)) *
             layout.head_dim;
}

HeadShape shape_of(const Layout& layout, const LateIndex& first, int64_t sample, int64_t head,
                   const RowRun& run, const RowRun& keys) {
  const uint64_t row = first.now() + static_cast<uint64_t>(sample * layout.global_heads + head);
  const auto seq = static_cast<uint64_t>(layout.seq);
  const int64_t seen = std::min(keys.end(), run.end() + layout.right);
  // Under a causal mask positions are counted from the first key; otherwise only keys are, and queries may come first.
  const int64_t origin = layout.causal ? keys.begin : 0;
  return {
      .seq = layout.seq,
      .origin = keys.begin,
      .held = keys.count,
      .keys = std::min(layout.existing(sample), seen) - keys.begin,
      .first_query = run.begin - origin,
      .queries = run.count,
      .first_keys = layout.first_keys == nullptr ? nullptr : layout.first_keys + sample * layout.seq + origin,
      .width = layout.head_dim,
      .query_stride = layout.query_stride(),
      .key_stride = layout.key_stride(),
      .out_stride = layout.heads * layout.head_dim,
      .shift = origin - keys.begin,
      .left = layout.left,
      .right = layout.right,
      .hides = layout.first_keys != nullptr || layout.left < layout.seq,
      .scale = layout.scale,
      .soft_cap = layout.soft_cap,
      .element = row * seq * seq + static_cast<uint64_t>(origin) * seq + static_cast<uint64_t>(keys.begin)};
}

// Calls body(keys, first) for the runs of keys that some query of a run sees, beginning with the run of the same
// positions, if present. Returns whether there is any run.
template <class Body>
bool for_each_key_run(const Layout& layout, int64_t sample, const RowRun& queries, Body body) {
  const int64_t end = std::min(layout.existing(sample), queries.end() + layout.right);
  bool first = true;
  for (const bool own : {true, false})
    for (const RowRun& keys : layout.key_rows.runs()) {
      const bool same = keys.begin == queries.begin && keys.count == queries.count;
      if (same != own || keys.begin >= end || keys.end() <= queries.begin - layout.left) continue;
      body(keys, first);
      first = false;
    }
  return !first;
}

// Where the first query of a run, and the first key and value of its head in a run of keys, lie in their
// matrices, in elements.
struct Offsets {
  int64_t query, key, value;
};
Offsets offsets_of(const Layout& layout, int64_t sample, int64_t head, const RowRun& run,
                   const RowRun& key_run) {
  const int64_t query = (sample * layout.rows.rows() + run.row) * layout.query_stride();
  const int64_t keys = (sample * layout.key_rows.rows() + key_run.row) * layout.key_stride();
  const int64_t first_key = layout.gathered ? 0 : layout.heads;
  const int64_t kv_head = head / layout.shared() - layout.first_given;
  return {query + head * layout.head_dim, keys + (first_key + kv_head) * layout.head_dim,
          keys + (first_key + layout.given + kv_head) * layout.head_dim};
}

// The offset of a run's first row of the output, and of its first log of the sum.
int64_t out_offset(const Layout& layout, int64_t sample, int64_t head, const RowRun& run) {
  return ((sample * layout.rows.rows() + run.row) * layout.heads + head) * layout.head_dim;
}
int64_t lse_offset(const Layout& layout, int64_t sample, int64_t head, const RowRun& run) {
  return (sample * layout.heads + head) * layout.rows.rows() + run.row;
}

template <class T>
struct Forward {
  const StorageKernels<T>& kernels;
  Layout layout;
  LateIndex first;
  DropRule rule;
  T* out;                   // or null
  Accumulate<T>* wide_out;  // or null
  Accumulate<T>* lse;
  const T* qkv;
  const T* keys;  // qkv, or Attention::key_values

  void head(int64_t sample, int64_t head) const {
    for (const RowRun& run : layout.rows.runs()) {
      const bool any = for_each_key_run(layout, sample, run, [&](const RowRun& key_run, bool first_run) {
        const Offsets at = offsets_of(layout, sample, head, run, key_run);
        kernels.attention_forward(output(sample, head, run, layout.further || !first_run),
                                  {qkv + at.query, keys + at.key, keys + at.value},
                                  shape_of(layout, first, sample, head, run, key_run), rule,
                                  scratch<Accumulate<T>>(scratch_of(layout, 1, 2, 2)));
      });
      if (!any && !layout.further) begin_without_keys(sample, head, run);
    }
  }

  // The first step of queries whose own keys are all padding: initialises the sums, to which later steps add.
  void begin_without_keys(int64_t sample, int64_t head, const RowRun& run) const {
    Accumulate<T>* from = wide_out + out_offset(layout, sample, head, run);
    for (int64_t r = 0; r < run.count; ++r)
      std::fill_n(from + r * layout.heads * layout.head_dim, layout.head_dim, Accumulate<T>(0));
    std::fill_n(lse + lse_offset(layout, sample, head, run), run.count,
                std::numeric_limits<Accumulate<T>>::lowest());
  }

  HeadOutput<T> output(int64_t sample, int64_t head, const RowRun& run, bool adds) const {
    const int64_t at = out_offset(layout, sample, head, run);
    Accumulate<T>* sums = lse + lse_offset(layout, sample, head, run);
    if (layout.in_steps) return {nullptr, sums, wide_out + at, adds};
    return {out + at, sums};
  }
};

template <class T>
struct Backward {
  const StorageKernels<T>& kernels;
  Layout layout;
  LateIndex first;
  DropRule rule;
  T* dqkv;
  Accumulate<T>* dkeys;     // gradients of `keys`, or null
  Accumulate<T>* dqueries;  // or null
  const T* dout;
  const T* qkv;
  const T* keys;
  const T* out;
  const Accumulate<T>* lse;

  // Processes all query heads that share one key head.
  void group(int64_t sample, int64_t kv_head) const {
    const int64_t shared = layout.shared();
    for (int64_t i = 0; i < shared; ++i) {
      const int64_t head = kv_head * shared + i;
      const std::span<const RowRun> runs = layout.rows.runs();
      for (const RowRun& run : runs)
        for_each_key_run(layout, sample, run, [&](const RowRun& key_run, bool) {
          const Offsets at = offsets_of(layout, sample, head, run, key_run);
          const int64_t row = out_offset(layout, sample, head, run);
          kernels.attention_backward(
              gradient(at, row), dout + row, out + row, lse + lse_offset(layout, sample, head, run),
              {qkv + at.query, keys + at.key, keys + at.value},
              shape_of(layout, first, sample, head, run, key_run), rule,
              !layout.in_steps && i == 0 && &run == &runs.front(), i == shared - 1 && &run == &runs.back(),
              scratch<Accumulate<T>>(scratch_of(layout, 2, 3, 5)));
        });
    }
  }

  HeadGradient<T> gradient(const Offsets& at, int64_t row) const {
    if (layout.in_steps) return {nullptr, nullptr, nullptr, dkeys + at.key, dkeys + at.value, dqueries + row};
    if (!layout.gathered) return {dqkv + at.query, dqkv + at.key, dqkv + at.value};
    return {dqkv + at.query, nullptr, nullptr, dkeys + at.key, dkeys + at.value};
  }
};

}  // namespace

void attention(const KernelTable& table, Stream& stream, Tensor out, Tensor lse, Tensor qkv,
               const Attention& attention) {
  const DropRule rule = drop_rule("attention", attention.dropout);
  const LateIndex first = first_head("attention", attention);
  dispatch_float(qkv.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* packed = qkv.as<T>();
    const Forward<T> work{storage_kernels<T>(table),
                          Layout(attention),
                          first,
                          rule,
                          attention.in_steps() ? nullptr : out.as<T>(),
                          attention.in_steps() ? out.as<Accumulate<T>>() : nullptr,
                          lse.as<Accumulate<T>>(),
                          packed,
                          attention.rows.rows() > 0 ? attention.key_values.as<T>() : packed};
    stream.run([pool = &stream.pool(), work] {
      const int64_t first_of_run = work.layout.first_given * work.layout.shared();
      const int64_t heads = work.layout.given * work.layout.shared();
      pool->parallel_for(work.layout.batch * heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work.head(i / heads, first_of_run + i % heads);
      });
    });
  });
}

void attention_backward(const KernelTable& table, Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv,
                        Tensor out, Tensor lse, const Attention& attention) {
  const DropRule rule = drop_rule("attention_backward", attention.dropout);
  const LateIndex first = first_head("attention_backward", attention);
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool gathered = attention.rows.rows() > 0;
    const T* packed = qkv.as<T>();
    const Backward<T> work{storage_kernels<T>(table),
                           Layout(attention),
                           first,
                           rule,
                           dqkv.as<T>(),
                           gathered ? attention.dkey_values.as<Accumulate<T>>() : nullptr,
                           attention.in_steps() ? attention.dqueries.as<Accumulate<T>>() : nullptr,
                           dout.as<T>(),
                           packed,
                           gathered ? attention.key_values.as<T>() : packed,
                           out.as<T>(),
                           lse.as<Accumulate<T>>()};
    stream.run([pool = &stream.pool(), work] {
      const int64_t heads = work.layout.given;
      pool->parallel_for(work.layout.batch * heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) work.group(i / heads, work.layout.first_given + i % heads);
      });
    });
  });
}

namespace {

// The rows of a head in `out`, and its sums in `lse`, of one sample.
struct SinkLayout {
  SinkLayout(const Tensor& out, const Tensor& lse)
      : batch(lse.dim(0)), heads(lse.dim(1)), queries(lse.dim(2)), width(out.last_dim() / heads) {}
  int64_t row(int64_t sample, int64_t head, int64_t query) const {
    return ((sample * queries + query) * heads + head) * width;
  }
  int64_t sums(int64_t sample, int64_t head) const { return (sample * heads + head) * queries; }
  int64_t batch, heads, queries, width;
};

}  // namespace

void attention_sinks(const KernelTable&, Stream& stream, Tensor out, Tensor lse, Tensor sinks) {
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    stream.run([pool = &stream.pool(), at = SinkLayout(out, lse), rows = out.as<T>(), sums = lse.as<Wide>(),
                logits = sinks.as<T>()] {
      pool->parallel_for(at.batch * at.heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t sample = i / at.heads, head = i % at.heads;
          const auto sink = static_cast<Wide>(logits[head]);
          Wide* of_head = sums + at.sums(sample, head);
          for (int64_t query = 0; query < at.queries; ++query) {
            const Wide most = std::max(of_head[query], sink);
            const Wide sum = most + std::log(std::exp(of_head[query] - most) + std::exp(sink - most));
            const Wide factor = std::exp(of_head[query] - sum);
            T* row = rows + at.row(sample, head, query);
            for (int64_t c = 0; c < at.width; ++c)
              row[c] = static_cast<T>(static_cast<Wide>(row[c]) * factor);
            of_head[query] = sum;
          }
        }
      });
    });
  });
}

// A head's sum is in f64 and in one order, so it does not depend on the threads.
void attention_sinks_backward(const KernelTable&, Stream& stream, Tensor dsinks, Tensor dout, Tensor out,
                              Tensor lse, Tensor sinks) {
  dispatch_float(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Wide = Accumulate<T>;
    stream.run([pool = &stream.pool(), at = SinkLayout(out, lse), gradient = dsinks.as<Wide>(),
                drows = dout.as<T>(), rows = out.as<T>(), sums = lse.as<Wide>(), logits = sinks.as<T>()] {
      pool->parallel_for(at.heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t head = begin; head < end; ++head) {
          const auto sink = static_cast<Wide>(logits[head]);
          double total = 0;
          for (int64_t sample = 0; sample < at.batch; ++sample)
            for (int64_t query = 0; query < at.queries; ++query) {
              const int64_t row = at.row(sample, head, query);
              double product = 0;
              for (int64_t c = 0; c < at.width; ++c)
                product += static_cast<double>(drows[row + c]) * static_cast<double>(rows[row + c]);
              total += product * std::exp(sink - sums[at.sums(sample, head) + query]);
            }
          gradient[head] = static_cast<Wide>(-total);
        }
      });
    });
  });
}

void add_attention(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::attention, attention>(ops, table);
  bind<&OpTable::attention_backward, attention_backward>(ops, table);
  bind<&OpTable::attention_sinks, attention_sinks>(ops, table);
  bind<&OpTable::attention_sinks_backward, attention_sinks_backward>(ops, table);
}

}  // namespace trifold::cpu
