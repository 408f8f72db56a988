// Cases of attention.
#include "conformance/op_table.h"

namespace trifold::conformance {

namespace {

// The first key of every query, where documents of these lengths are packed into each sample.
Values first_keys_of(const Attention& how, const Values& documents) {
  Values first_keys;
  for (int64_t b = 0; b < how.batch; ++b) {
    double begin = 0;
    for (const double length : documents) {
      first_keys.insert(first_keys.end(), static_cast<size_t>(length), begin);
      begin += length;
    }
  }
  return first_keys;
}

struct Kind {
  bool causal;
  double drop;
  Values lengths;    // none: all keys
  Values documents;  // lengths of those in each sample; none: one
  int64_t width = 16;
  int64_t left = -1, right = -1;
  double soft_cap = 0;
};

void attention_of(OpRun& run, const std::vector<Kind>& kinds) {
  for (const auto& [causal, drop, lengths, documents, width, left, right, soft_cap] : kinds) {
    Attention how{.batch = 2,
                  .seq = 35,
                  .heads = 2,
                  .kv_heads = 1,
                  .head_dim = width,
                  .causal = causal,
                  .scale = 0.25,
                  .left = left,
                  .right = right,
                  .soft_cap = soft_cap,
                  .dropout = {drop, philox_key(3, "attention"), 0},
                  .first_sample = 1,
                  .first_head = 2,
                  .global_heads = 8};
    if (!lengths.empty()) how.lengths = run.in(DType::I32, {how.batch}, lengths);
    if (!documents.empty())
      how.first_keys = run.in(DType::I32, {how.batch, how.seq}, first_keys_of(how, documents));
    if (!causal) how.sample = run.in(DType::I64, {1}, {77});  // set late
    const int64_t rows = how.batch * how.seq;
    const int64_t wide = (how.heads + 2 * how.kv_heads) * how.head_dim;
    const int64_t narrow = how.heads * how.head_dim;
    const Tensor qkv = run.in({rows, wide}, normal(rows * wide, 1));
    const Tensor out = run.out({rows, narrow});
    const Tensor lse = run.out(run.wide(), {how.batch, how.heads, how.seq});
    run.ops().attention(run.stream(), out, lse, qkv, how);
    run.ops().attention_backward(run.stream(), run.out({rows, wide}),
                                 run.in({rows, narrow}, normal(rows * narrow, 2)), qkv, out, lse, how);
  }
}

// On Hopper GPUs cuDNN masks documents for heads of 64.
void attention(OpRun& run) {
  attention_of(run, {{true, 0, {}, {}},
                     {false, 0, {}, {}},
                     {true, 0, {7, 35}, {}},
                     {true, 0.25, {}, {1, 16, 4, 14}},
                     {true, 0, {}, {1, 16, 4, 14}},
                     {true, 0, {}, {1, 16, 4, 14}, 64},
                     {true, 0, {}, {}, 16, 4},
                     {true, 0.25, {}, {1, 16, 4, 14}, 16, 9, -1, 2},
                     {false, 0, {33, 35}, {}, 16, 3, 5}});
}

// On CUDA the masks of 16-bit weights are cuDNN's own, unless there are documents (ops/cuda/attention_choice.h).
void attention_with_dropout(OpRun& run) {
  attention_of(run, {{true, 0.25, {35, 35}, {}}, {false, 0.25, {33, 1}, {}}, {true, 0.25, {}, {}}});
}

// The queries of a context-parallel rank with the keys of all positions, of the heads that `how` says.
void gathered(OpRun& run, Attention how, const Tensor& qkv, const Tensor& dout) {
  const int64_t columns = 2 * how.given() * how.head_dim;
  const Shape keys{how.batch * how.seq, columns};
  how.key_values = run.in(keys, normal(keys.elements(), 5));
  how.dkey_values = run.summed(keys);
  // What belongs to other heads is left alone.
  const Shape sums{how.batch, how.heads, how.queries()};
  const Tensor out = run.out(dout.shape, Values(static_cast<size_t>(dout.elements()), 1));
  const Tensor lse = run.out(run.wide(), sums, Values(static_cast<size_t>(sums.elements()), 1));
  run.ops().attention(run.stream(), out, lse, qkv, how);
  // From another output, which both tables round alike. The gradients of the keys in dqkv are not written.
  run.ops().attention_backward(run.stream(),
                               run.out(qkv.shape, Values(static_cast<size_t>(qkv.elements()), 1)), dout, qkv,
                               run.in(dout.shape, normal(dout.elements(), 6)), lse, how);
}

// The same with the keys of the second head alone.
void gathered_head(OpRun& run, Attention how, const Tensor& qkv, const Tensor& dout) {
  how.first_given = how.given_heads = 1;
  gathered(run, how, qkv, dout);
}

// The same in steps, first over the keys of its own positions.
void in_steps(OpRun& run, Attention how, int parts, int part, const Tensor& qkv, const Tensor& dout) {
  const Tensor sums = run.summed(dout.shape);
  const Tensor lse = run.out(run.wide(), {how.batch, how.heads, how.queries()});
  const Tensor out = run.in(dout.shape, normal(dout.elements(), 6));
  how.dqueries = run.summed(dout.shape, normal(dout.elements(), 7));
  const Shape keys{how.batch * how.queries(), 2 * how.kv_heads * how.head_dim};
  for (int step = 0; step < parts; ++step) {
    how.key_rows = SequenceRows::zig_zag(how.seq, (part + step) % parts, parts);
    how.further = step > 0;
    how.key_values = run.in(keys, normal(keys.elements(), static_cast<uint64_t>(8 + step)));
    how.dkey_values = run.summed(keys, normal(keys.elements(), static_cast<uint64_t>(20 + step)));
    run.ops().attention(run.stream(), sums, lse, qkv, how);
  }
  for (int step = 0; step < parts; ++step) {
    how.key_rows = SequenceRows::zig_zag(how.seq, (part + step) % parts, parts);
    how.further = step > 0;
    how.key_values = run.in(keys, normal(keys.elements(), static_cast<uint64_t>(8 + step)));
    how.dkey_values = run.summed(keys, normal(keys.elements(), static_cast<uint64_t>(20 + step)));
    run.ops().attention_backward(run.stream(),
                                 run.out(qkv.shape, Values(static_cast<size_t>(qkv.elements()), 1)), dout,
                                 qkv, out, lse, how);
  }
}

void of_ranks(OpRun& run) {
  constexpr int kParts = 3;
  struct {
    bool causal;
    double drop;
    Values lengths, documents;  // as above
    int part;
    int64_t left = -1, right = -1;
  } const kinds[] = {
      {true, 0.25, {}, {}, 0},     {true, 0, {}, {1, 16, 5, 26}, 1},  {false, 0, {48, 7}, {}, 1},
      {false, 0.25, {}, {}, 2},    {true, 0, {20, 3}, {}, 2},         {true, 0, {}, {1, 16, 5, 26}, 1, 6},
      {true, 0.25, {}, {}, 2, 10}, {false, 0, {48, 47}, {}, 1, 3, 4}, {false, 0, {}, {}, 2, -1, 0}};
  for (const auto& [causal, drop, lengths, documents, part, left, right] : kinds) {
    Attention how{.batch = 2,
                  .seq = 48,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 12,
                  .causal = causal,
                  .scale = 0.25,
                  .left = left,
                  .right = right,
                  .dropout = {drop, philox_key(3, "attention"), 0},
                  .first_sample = 1,
                  .first_head = 2,
                  .global_heads = 8};
    how.rows = SequenceRows::zig_zag(how.seq, part, kParts);
    if (!lengths.empty()) how.lengths = run.in(DType::I32, {how.batch}, lengths);
    if (!documents.empty())
      how.first_keys = run.in(DType::I32, {how.batch, how.seq}, first_keys_of(how, documents));
    const Shape packed{how.batch * how.queries(), (how.heads + 2 * how.kv_heads) * how.head_dim};
    const Shape narrow{how.batch * how.queries(), how.heads * how.head_dim};
    const Tensor qkv = run.in(packed, normal(packed.elements(), 1));
    const Tensor dout = run.in(narrow, normal(narrow.elements(), 2));
    gathered(run, how, qkv, dout);
    gathered_head(run, how, qkv, dout);
    in_steps(run, how, kParts, part, qkv, dout);
  }
}

// Runs of whole tiles, without what cuDNN does not compute for runs: on a GPU in 16 bits, blocks that are merged.
void of_ranks_in_blocks(OpRun& run) {
  constexpr int kParts = 2;
  for (const bool causal : {true, false}) {
    Attention how{.batch = 1,
                  .seq = 512,
                  .heads = 4,
                  .kv_heads = 2,
                  .head_dim = 16,
                  .causal = causal,
                  .scale = 0.25,
                  .dropout = {}};
    const int part = causal ? 1 : 0;
    how.rows = SequenceRows::zig_zag(how.seq, part, kParts);
    const Shape packed{how.batch * how.queries(), (how.heads + 2 * how.kv_heads) * how.head_dim};
    const Shape narrow{how.batch * how.queries(), how.heads * how.head_dim};
    const Tensor qkv = run.in(packed, normal(packed.elements(), 1));
    const Tensor dout = run.in(narrow, normal(narrow.elements(), 2));
    gathered(run, how, qkv, dout);
    gathered_head(run, how, qkv, dout);
    in_steps(run, how, kParts, part, qkv, dout);
  }
}

void sinks(OpRun& run) {
  constexpr int64_t kSamples = 2, kQueries = 19, kHeads = 3, kColumns = 40;
  const Shape rows{kSamples * kQueries, kHeads * kColumns};
  const Shape sums{kSamples, kHeads, kQueries};
  const Tensor logits = run.in({kHeads}, normal(kHeads, 1));
  const Tensor out = run.out(rows, normal(rows.elements(), 2));
  const Tensor lse = run.out(run.wide(), sums, normal(sums.elements(), 3));
  run.ops().attention_sinks(run.stream(), out, lse, logits);
  // From another output, which both tables round alike.
  run.ops().attention_sinks_backward(
      run.stream(), run.out(run.wide(), {kHeads}), run.in(rows, normal(rows.elements(), 4)),
      run.in(rows, normal(rows.elements(), 5)), run.in(run.wide(), sums, normal(sums.elements(), 6)), logits);
}

}  // namespace

std::vector<OpCase> attention_op_cases() {
  const std::vector<size_t> both = entries(&OpTable::attention, &OpTable::attention_backward);
  return {{"attention", both, false, 4, attention},
          {"attention with dropout", both, true, 4, attention_with_dropout},
          {"attention of ranks' positions", both, false, 4, of_ranks},
          {"attention sinks", entries(&OpTable::attention_sinks, &OpTable::attention_sinks_backward), false,
           4, sinks}};
}

std::vector<OpCase> block_op_cases() {
  return {{"attention of ranks' whole tiles", entries(&OpTable::attention, &OpTable::attention_backward),
           false, 4, of_ranks_in_blocks}};
}

}  // namespace trifold::conformance
