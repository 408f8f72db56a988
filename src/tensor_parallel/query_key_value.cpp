#include "tensor_parallel/query_key_value.h"

#include <algorithm>

namespace trifold {

QueryKeyValue::QueryKeyValue(BlockBuilder& builder, const std::string& name, const AttentionHeads& heads,
                             const QueryKeyValueShape& shape)
    : name_(name + ".qkv"), region_(builder), heads_(heads), shape_(shape), x_(builder.slot()) {
  if (heads.heads == heads.kv_heads) {
    add_projection(builder, name, "qkv", 3, heads.heads, 0);
  } else {
    add_projection(builder, name, "query", 1, heads.heads, 0);
    add_projection(builder, name, "key_value", 2, heads.kv_heads, heads.local * heads.head_dim);
  }
}

// `groups` kinds of heads, `all` heads of each kind over all ranks; their packed columns begin at `packed`.
void QueryKeyValue::add_projection(BlockBuilder& builder, const std::string& name, const std::string& part,
                                   int64_t groups, int64_t all, int64_t packed) {
  const int64_t out = all * heads_.head_dim;
  const int dim = groups == 1 ? 0 : 1;
  const std::string full = name + "." + part;
  const ProductWeight weight(
      builder,
      builder.sharded(full + ".weight",
                      groups == 1 ? Shape{out, shape_.width} : Shape{groups, out, shape_.width}, dim,
                      shape_.init, true, all),
      ProductWeight::Cut::Outputs);
  std::optional<ParamId> bias;
  if (shape_.bias)
    bias = builder.sharded(full + ".bias", groups == 1 ? Shape{out} : Shape{groups, out}, dim,
                           {Init::Kind::Zeros}, false, all);
  Projection projection{weight, bias, LowRank(builder, full, weight, groups, LowRank::Cut::Outputs, all),
                        0,      {},   {},
                        {},     {},   {}};
  const int64_t count = all == heads_.heads ? heads_.local : heads_.local_kv;
  for (int64_t group = 0; group < groups; ++group) {
    // The last kind is values; the first is queries, unless the projection has none.
    const bool value = groups > 1 && group == groups - 1;
    Heads heads{count, packed, group * count * heads_.head_dim, !value, {}, {}};
    if (shape_.head_norm && !value) {
      const char* kind = packed == 0 ? ".query_norm" : ".key_norm";
      heads.norm.emplace(builder, name + kind, NormedHeads{all, count, heads_.head_dim, shape_.heads_as_one},
                         NormForm{*shape_.head_norm, shape_.norm_eps, shape_.gain_offset, shape_.norm_bias});
      heads.raw = builder.slot();
    }
    projection.heads.push_back(std::move(heads));
    packed += count * heads_.head_dim;
  }
  reads_input_ |= projection.adapters.any() || !builder.params()[weight.id()].frozen;
  projection.columns = groups * count * heads_.head_dim;
  for (SlotId* form : {&projection.dy, &projection.turned_dy, &projection.sums}) *form = builder.slot();
  if (projection.adapters.scales()) projection.before_scale = builder.slot();
  projections_.push_back(std::move(projection));
}

// Whether a single product writes the packed columns directly.
bool QueryKeyValue::is_plain() const { return projections_.size() == 1 && !shape_.head_norm; }

// Copies heads from one matrix to another, rotated if they are and `rotates` says so.
Rotary QueryKeyValue::turn(const Heads& heads, int64_t x_column, int64_t y_column, bool inverse,
                           bool rotates) const {
  const bool turned = rotates && heads.turned && !shape_.rotary_frequencies.empty();
  return {shape_.rotary_frequencies,
          heads_.head_dim,
          turned ? heads.count : 0,
          heads.count * heads_.head_dim,
          x_column,
          y_column,
          inverse,
          shape_.rotary_scale};
}

bool QueryKeyValue::reads_narrow(const Run& run) const {
  return run.narrow && !region_.slices() &&
         std::none_of(projections_.begin(), projections_.end(),
                      [](const Projection& projection) { return projection.adapters.any(); });
}

Tensor QueryKeyValue::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const int64_t rows = region_.rows_inside(x.row_count());
  const Tensor packed = run.keep->take(run.dtype, {rows, heads_.packed_columns()});
  for (const Projection& projection : projections_)
    for (const Heads& heads : projection.heads)
      if (heads.norm) {
        saved[heads.raw] = run.keep->take(run.dtype, {rows, heads.count * heads_.head_dim});
        heads.norm->take_statistics(run, rows, saved);
      }
  reserve_adapters(run, rows, saved);
  const Arena::Mark mark = run.scratch.mark();
  project(run, packed, region_.gather_rows(run, x, run.scratch, run.stream), saved);
  run.show(name_, "output", packed);
  run.scratch.release(mark);
  return packed;
}

void QueryKeyValue::reserve_adapters(Run& run, int64_t rows, Saved& saved) const {
  for (const Projection& projection : projections_) {
    projection.adapters.reserve(run, rows, saved);
    if (projection.adapters.scales())
      saved[projection.before_scale] = run.keep->take(run.dtype, {rows, projection.columns});
  }
}

void QueryKeyValue::project(Run& run, Tensor packed, Tensor all_x, Saved& saved) const {
  for (const Projection& projection : projections_) {
    const Tensor output =
        is_plain() ? packed : run.scratch.take(run.dtype, {packed.row_count(), projection.columns});
    const LowRank& adapters = projection.adapters;
    const Tensor bias = projection.bias ? run.weight(*projection.bias) : Tensor{};
    const Tensor product = adapters.scales() ? saved[projection.before_scale] : output;
    column_product(run, product, all_x, projection.weight, adapters.scales() ? Tensor{} : bias);
    adapters.forward(run, product, all_x, saved);
    if (adapters.scales()) adapters.scale(run, output, product, bias, saved);
    finish(run, packed, projection, output, saved);
  }
}

// Copies the output of one projection to its packed columns, normalised and rotated if configured.
void QueryKeyValue::finish(Run& run, Tensor packed, const Projection& from, Tensor output,
                           Saved& saved) const {
  const Tensor positions = run.batch->positions.flat();
  for (const Heads& heads : from.heads) {
    if (!heads.norm) {
      const Rotary rotary = turn(heads, heads.column, heads.packed, false);
      if (!is_plain() || rotary.heads > 0) run.ops.rotary(run.stream, packed, output, positions, rotary);
      continue;
    }
    const Arena::Mark mark = run.scratch.mark();
    const Tensor raw = saved[heads.raw];
    const bool after = shape_.norm_after_rope;
    run.ops.rotary(run.stream, raw, output, positions, turn(heads, heads.column, 0, false, after));
    const Tensor normal = run.scratch.take(run.dtype, raw.shape);
    heads.norm->apply(run, normal, raw, saved);
    run.ops.rotary(run.stream, packed, normal, positions, turn(heads, 0, heads.packed, false, !after));
    run.scratch.release(mark);
  }
}

// The adjoint of `finish`.
void QueryKeyValue::undo_heads(Run& run, Tensor dmade, Tensor dpacked, const Projection& projection,
                               Saved& saved) const {
  const Tensor positions = run.batch->positions.flat();
  for (const Heads& heads : projection.heads) {
    if (!heads.norm) {
      const Rotary rotary = turn(heads, heads.packed, heads.column, true);
      if (!is_plain() || rotary.heads > 0) run.ops.rotary(run.stream, dmade, dpacked, positions, rotary);
      continue;
    }
    const Tensor dnormal = run.flow->take(run.dtype, saved[heads.raw].shape);
    const bool after = shape_.norm_after_rope;
    run.ops.rotary(run.stream, dnormal, dpacked, positions, turn(heads, heads.packed, 0, true, !after));
    const Tensor draw = heads.norm->backward_input(run, dnormal, saved);
    run.ops.rotary(run.stream, dmade, draw, positions, turn(heads, 0, heads.column, true, after));
  }
}

void QueryKeyValue::undo(Run& run, Tensor dpacked, Saved& saved) const {
  const int64_t rows = dpacked.row_count();
  for (const Projection& projection : projections_) {
    Forms dy = is_plain() ? dpacked : run.flow->take(run.dtype, {rows, projection.columns});
    undo_heads(run, dy.rows, dpacked, projection, saved);
    if (reads_narrow(run)) {
      const Tensor wide = dy.rows;
      dy = take_gradient(run, rows, projection.columns, run.trains(projection.weight.id()),
                         projection.bias.has_value());
      if (is_present(dy.rows) || is_present(dy.turned)) run.ops.write_forms(run.stream, dy, wide);
    }
    saved[projection.dy] = dy.rows;
    saved[projection.turned_dy] = dy.turned;
    saved[projection.sums] = dy.sums;
  }
}

QueryKeyValue::Gradients QueryKeyValue::gradients(Run& run, bool inputs, bool weights, Saved& saved) const {
  Gradients all;
  for (const Projection& projection : projections_) {
    const bool trains = weights && run.trains(projection.weight.id());
    Forms dy =
        inputs ? projection.adapters.begin_backward(run, saved[projection.dy], saved) : saved[projection.dy];
    dy.turned = saved[projection.turned_dy];
    dy.sums = saved[projection.sums];
    all.items[all.count++] = {dy, inputs ? &projection.weight : nullptr,
                              trains ? run.grad(projection.weight.id()) : Tensor{},
                              trains && projection.bias ? run.grad(*projection.bias) : Tensor{},
                              trains && run.adds_to(projection.weight.id(), projection.bias)};
  }
  return all;
}

void QueryKeyValue::norm_gradients(Run& run, Saved& saved) const {
  for (const Projection& projection : projections_)
    for (const Heads& heads : projection.heads)
      if (heads.norm) heads.norm->backward_weight(run, saved);
}

// Of all projections with adapters, which share the gathered input.
void QueryKeyValue::adapter_gradients(Run& run, Saved& saved) const {
  if (std::none_of(projections_.begin(), projections_.end(),
                   [](const Projection& projection) { return projection.adapters.any(); }))
    return;
  const Arena::Mark mark = run.scratch.mark();
  const Tensor all_x = region_.gather_rows(run, saved[x_], run.scratch, run.stream);
  for (const Projection& projection : projections_) projection.adapters.backward_weight(run, all_x, saved);
  run.scratch.release(mark);
}

Tensor QueryKeyValue::backward_input(Run& run, Tensor dy, Saved& saved) const {
  undo(run, dy, saved);
  if (!run.wants_dx) {
    for (const Projection& projection : projections_) {
      projection.adapters.begin_backward(run, saved[projection.dy], saved);
      projection.adapters.backward_input(run, {}, saved);
    }
    return {};
  }
  return input_gradient(region_, run, name_, gradients(run, true, false, saved).all(), [&](Tensor dx) {
    for (const Projection& projection : projections_) projection.adapters.backward_input(run, dx, saved);
  });
}

void QueryKeyValue::backward_weight(Run& run, Saved& saved) const {
  adapter_gradients(run, saved);
  weight_gradient(region_, run, gradients(run, false, true, saved).all(), saved[x_]);
  norm_gradients(run, saved);
}

Tensor QueryKeyValue::backward(Run& run, Tensor dy, Saved& saved) const {
  if (!run.wants_dx || !run.trains(projections_.front().weight.id())) return Layer::backward(run, dy, saved);
  undo(run, dy, saved);
  norm_gradients(run, saved);
  return both_gradients(region_, run, name_, gradients(run, true, true, saved).all(), saved[x_]);
}

}  // namespace trifold
