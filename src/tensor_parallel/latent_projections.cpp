#include "tensor_parallel/latent_projections.h"

namespace trifold {

namespace {

int64_t turned_of(const LatentProjectionsShape& shape) {
  return 2 * static_cast<int64_t>(shape.rotary_frequencies.size());
}

// Copies `columns` columns of x, from column `from` on, to y, from column `to` on.
void copy_part(const Run& run, Tensor y, int64_t to, Tensor x, int64_t from, int64_t columns) {
  if (columns == 0) return;
  const ColumnCopy copy = column_copy(to, from, columns);
  run.ops.copy_columns(run.stream, y, x, {&copy, 1});
}

}  // namespace

LatentProjections::LatentProjections(BlockBuilder& builder, const std::string& name,
                                     const AttentionHeads& heads, const LatentProjectionsShape& shape)
    : name_(name + ".heads"),
      region_(builder),
      heads_(heads),
      shape_(shape),
      query_latent_(shape.query_rank > 0
                        ? std::optional(make_latent(builder, name + ".query", shape.query_rank, 0))
                        : std::nullopt),
      key_value_latent_(make_latent(builder, name + ".key_value", shape.key_value_rank, turned_of(shape))),
      query_(make_up(builder, name + (query_latent_ ? ".query_up" : ".query"), shape.plain + turned_of(shape),
                     query_latent_ ? shape.query_rank : shape.width)),
      key_value_(make_up(builder, name + ".key_value_up", shape.plain + shape.value, shape.key_value_rank)),
      x_(builder.slot()),
      dkey_(builder.slot()) {
  check(heads.heads == heads.kv_heads, "{}: each of {} query heads needs its own key head, but there are {}",
        name, heads.heads, heads.kv_heads);
}

LatentProjections::Latent LatentProjections::make_latent(BlockBuilder& builder, const std::string& name,
                                                         int64_t rank, int64_t more) const {
  const std::string layer = name + "_down";
  const ProductWeight down(
      builder, builder.replicated(layer + ".weight", {rank + more, shape_.width}, shape_.init, true),
      ProductWeight::Cut::None);
  Latent latent{rank, more,           down,           LowRank(builder, layer, down, 1, LowRank::Cut::None),
                {},   builder.slot(), builder.slot(), builder.slot()};
  if (shape_.norm)
    latent.norm.emplace(builder, name + "_norm", rank,
                        NormForm{*shape_.norm, shape_.norm_eps, shape_.gain_offset, shape_.norm_bias});
  return latent;
}

// `columns` of each head.
LatentProjections::Up LatentProjections::make_up(BlockBuilder& builder, std::string name, int64_t columns,
                                                 int64_t in) const {
  const ProductWeight weight(
      builder, builder.sharded(name + ".weight", {heads_.heads * columns, in}, 0, shape_.init, true),
      ProductWeight::Cut::Outputs);
  LowRank adapters(builder, name, weight, 1, LowRank::Cut::Outputs);
  return {std::move(name),     weight,        heads_.local * columns, builder.slot(),
          std::move(adapters), builder.slot()};
}

LatentHeads LatentProjections::heads_of_rank() const {
  return {shape_.rotary_frequencies, heads_.local,    shape_.plain, shape_.value,
          heads_.head_dim,           shape_.key_scale};
}

void LatentProjections::plain_product(Run& run, Tensor y, Tensor x, const Latent& latent, int64_t first,
                                      int64_t last) const {
  const Arena::Mark mark = run.scratch.mark();
  run.ops.affine(run.stream, y, x, latent.down.read(run).rows(first, last), {});
  run.scratch.release(mark);
}

void LatentProjections::take_latent(Run& run, const Latent& latent, Tensor x, Tensor rest,
                                    Saved& saved) const {
  const Tensor raw = run.keep->take(run.dtype, {x.row_count(), latent.rank});
  if (latent.adapters.any())
    adapted_product(run, latent, x, raw, rest, saved);
  else
    plain_product(run, raw, x, latent, 0, latent.rank);
  saved[latent.y] = latent.norm ? latent.norm->forward(run, raw, saved) : raw;
}

void LatentProjections::adapted_product(Run& run, const Latent& latent, Tensor x, Tensor raw, Tensor rest,
                                        Saved& saved) const {
  const Shape shape{x.row_count(), latent.rank + latent.more};
  latent.adapters.reserve(run, x.row_count(), saved);
  if (latent.adapters.scales()) saved[latent.product] = run.keep->take(run.dtype, shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor y = run.scratch.take(run.dtype, shape);
  const Tensor product = latent.adapters.scales() ? saved[latent.product] : y;
  plain_product(run, product, x, latent, 0, latent.rank + latent.more);
  latent.adapters.forward(run, product, x, saved);
  if (latent.adapters.scales()) latent.adapters.scale(run, y, product, {}, saved);
  copy_part(run, raw, 0, y, 0, latent.rank);
  copy_part(run, rest, 0, y, latent.rank, latent.more);
  run.scratch.release(mark);
}

void LatentProjections::reserve_up(Run& run, const Up& up, int64_t rows, Saved& saved) const {
  up.adapters.reserve(run, rows, saved);
  if (up.adapters.scales()) saved[up.product] = run.keep->take(run.dtype, {rows, up.columns});
}

// Returns y for all rows of x, in scratch.
Tensor LatentProjections::multiplied(Run& run, const Up& up, Tensor x, Saved& saved) const {
  const Tensor y = run.scratch.take(run.dtype, {region_.rows_inside(x.row_count()), up.columns});
  const Tensor product = up.adapters.scales() ? saved[up.product] : y;
  const Tensor all_x = region_.gather_rows(run, x, run.scratch, run.stream);
  column_product(run, product, all_x, up.weight, {});
  up.adapters.forward(run, product, all_x, saved);
  if (up.adapters.scales()) up.adapters.scale(run, y, product, {}, saved);
  run.show(up.name, "output", y);
  return y;
}

Tensor LatentProjections::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const int64_t rows = region_.rows_inside(x.row_count());
  const Tensor packed = run.keep->take(run.dtype, {rows, heads_.packed_columns()});
  const bool adapted = key_value_latent_.adapters.any();
  Tensor key;
  if (adapted) key = run.keep->take(run.dtype, {x.row_count(), turned_of(shape_)});
  if (query_latent_) take_latent(run, *query_latent_, x, {}, saved);
  take_latent(run, key_value_latent_, x, key, saved);
  for (const Up* up : {&query_, &key_value_}) reserve_up(run, *up, rows, saved);
  const Arena::Mark mark = run.scratch.mark();
  if (!adapted) {
    key = run.scratch.take(run.dtype, {x.row_count(), turned_of(shape_)});
    const Latent& latent = key_value_latent_;
    plain_product(run, key, x, latent, latent.rank, latent.rank + latent.more);
  }
  const Tensor all_keys = region_.gather_rows(run, key, run.scratch, run.stream);
  const Tensor queries = multiplied(run, query_, query_input(saved), saved);
  const Tensor key_values = multiplied(run, key_value_, saved[key_value_latent_.y], saved);
  run.ops.latent_heads(run.stream, packed, queries, key_values, all_keys, run.batch->positions.flat(),
                       heads_of_rank());
  run.show(name_, "output", packed);
  run.scratch.release(mark);
  return packed;
}

Tensor LatentProjections::backward_up(Run& run, const Up& up, Tensor x, Saved& saved,
                                      bool with_weights) const {
  ColumnGradient gradient{up.adapters.begin_backward(run, saved[up.dy], saved), &up.weight, {}, {}};
  if (with_weights && run.trains(up.weight.id())) {
    gradient.dw = run.grad(up.weight.id());
    gradient.adds = run.adds_to(up.weight.id());
    return both_gradients(region_, run, up.name, {&gradient, 1}, x);
  }
  Tensor dx;
  if (run.wants_dx)
    dx = input_gradient(region_, run, up.name, {&gradient, 1},
                        [&](Tensor partial) { up.adapters.backward_input(run, partial, saved); });
  else
    up.adapters.backward_input(run, {}, saved);
  if (with_weights) adapter_gradients(run, up, x, saved);
  return dx;
}

void LatentProjections::adapter_gradients(Run& run, const Up& up, Tensor x, Saved& saved) const {
  if (!up.adapters.any()) return;
  const Arena::Mark mark = run.scratch.mark();
  up.adapters.backward_weight(run, region_.gather_rows(run, x, run.scratch, run.stream), saved);
  run.scratch.release(mark);
}

void LatentProjections::backward_norm(Run& run, const Latent& latent, Tensor dy, Saved& saved,
                                      bool with_weights) const {
  saved[latent.dz] = !latent.norm   ? dy
                     : with_weights ? latent.norm->backward(run, dy, saved)
                                    : latent.norm->backward_input(run, dy, saved);
}

void LatentProjections::add_down(Run& run, const Latent& latent, Tensor dx, double beta, Tensor drest,
                                 Saved& saved) const {
  if (latent.adapters.any()) {
    const Tensor dy = run.flow->take(run.dtype, {saved[latent.dz].row_count(), latent.rank + latent.more});
    copy_part(run, dy, 0, saved[latent.dz], 0, latent.rank);
    copy_part(run, dy, latent.rank, drest, 0, latent.more);
    const Tensor dproduct = latent.adapters.begin_backward(run, dy, saved);
    if (dx.rank() > 0) {
      const Arena::Mark mark = run.scratch.mark();
      run.ops.affine_backward_input(run.stream, dx, dproduct, latent.down.read(run), beta);
      run.scratch.release(mark);
    }
    latent.adapters.backward_input(run, dx, saved);
  } else if (dx.rank() > 0) {
    const Arena::Mark mark = run.scratch.mark();
    const Tensor down = latent.down.read(run);
    run.ops.affine_backward_input(run.stream, dx, saved[latent.dz], down.rows(0, latent.rank), beta);
    if (latent.more > 0)
      run.ops.affine_backward_input(run.stream, dx, drest, down.rows(latent.rank, down.row_count()), 1);
    run.scratch.release(mark);
  }
}

// Splits dy into the gradients of both products and of k, which is a sum over heads and therefore over ranks. The
// gradient of x follows from these and from the gradients of the latent vectors.
Tensor LatentProjections::compute_backward(Run& run, Tensor dy, Saved& saved, bool with_weights) const {
  saved[query_.dy] = run.flow->take(run.dtype, {dy.row_count(), query_.columns});
  saved[key_value_.dy] = run.flow->take(run.dtype, {dy.row_count(), key_value_.columns});
  const Region::Sum key = region_.take_sum(run, *run.flow, dy.row_count(), turned_of(shape_));
  run.ops.latent_heads_backward(run.stream, saved[query_.dy], saved[key_value_.dy], key.partial, dy,
                                run.batch->positions.flat(), heads_of_rank());
  region_.add_up(run, key, run.stream);
  run.scratch.release(key.mark);
  saved[dkey_] = key.result;

  Run inside = run;  // gradients of latent vectors are needed in any case
  inside.wants_dx = true;
  const Tensor dlatent = backward_up(inside, key_value_, saved[key_value_latent_.y], saved, with_weights);
  backward_norm(run, key_value_latent_, dlatent, saved, with_weights);
  Tensor dx = backward_up(query_latent_ ? inside : run, query_, query_input(saved), saved, with_weights);
  if (query_latent_) {
    backward_norm(run, *query_latent_, dx, saved, with_weights);
    dx = run.wants_dx ? run.flow->take(run.dtype, {dx.row_count(), shape_.width}) : Tensor{};
    add_down(run, *query_latent_, dx, 0, {}, saved);
  }
  if (!run.wants_dx) dx = {};
  add_down(run, key_value_latent_, dx, 1, saved[dkey_], saved);
  if (dx.rank() > 0) run.show(name_, "input gradient", dx);
  return dx;
}

void LatentProjections::down_gradients(Run& run, Saved& saved) const {
  const Tensor x = saved[x_];
  for (const Latent* latent : {&key_value_latent_, query_latent_ ? &*query_latent_ : nullptr})
    if (latent != nullptr) latent->adapters.backward_weight(run, x, saved);
  if (!run.trains(key_value_latent_.down.id())) return;
  const auto add = [&](Tensor dw, Tensor dy, bool adds) {
    run.ops.affine_backward_weight(run.stream, dw, {}, dy, x, adds);
  };
  if (query_latent_)
    add(run.grad(query_latent_->down.id()), saved[query_latent_->dz], run.adds_to(query_latent_->down.id()));
  const bool adds = run.adds_to(key_value_latent_.down.id());
  const Tensor down = run.grad(key_value_latent_.down.id());
  const int64_t rank = key_value_latent_.rank;
  add(down.rows(0, rank), saved[key_value_latent_.dz], adds);
  add(down.rows(rank, down.row_count()), saved[dkey_], adds);
}

Tensor LatentProjections::backward_input(Run& run, Tensor dy, Saved& saved) const {
  return compute_backward(run, dy, saved, false);
}

void LatentProjections::backward_weight(Run& run, Saved& saved) const {
  const auto up = [&](const Up& product, Tensor x) {
    adapter_gradients(run, product, x, saved);
    if (!run.trains(product.weight.id())) return;
    const ColumnGradient gradient{
        saved[product.dy], nullptr, run.grad(product.weight.id()), {}, run.adds_to(product.weight.id())};
    weight_gradient(region_, run, {&gradient, 1}, x);
  };
  up(key_value_, saved[key_value_latent_.y]);
  up(query_, query_input(saved));
  for (const Latent* latent : {&key_value_latent_, query_latent_ ? &*query_latent_ : nullptr})
    if (latent != nullptr && latent->norm) latent->norm->backward_weight(run, saved);
  down_gradients(run, saved);
}

Tensor LatentProjections::backward(Run& run, Tensor dy, Saved& saved) const {
  const Tensor dx = compute_backward(run, dy, saved, true);
  down_gradients(run, saved);
  return dx;
}

}  // namespace trifold
