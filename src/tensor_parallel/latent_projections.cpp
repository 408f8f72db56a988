#include "tensor_parallel/latent_projections.h"

namespace trifold {

namespace {

int64_t turned_of(const LatentProjectionsShape& shape) {
  return 2 * static_cast<int64_t>(shape.rotary_frequencies.size());
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
      query_{name + (query_latent_ ? ".query_up" : ".query"),
             {},
             heads.local * (shape.plain + turned_of(shape)),
             builder.slot()},
      key_value_latent_(make_latent(builder, name + ".key_value", shape.key_value_rank, turned_of(shape))),
      key_value_{name + ".key_value_up", {}, heads.local * (shape.plain + shape.value), builder.slot()},
      x_(builder.slot()),
      dkey_(builder.slot()) {
  check(heads.heads == heads.kv_heads, "{}: each of {} query heads needs its own key head, but there are {}",
        name, heads.heads, heads.kv_heads);
  const int64_t query_columns = heads.heads * (shape.plain + turned_of(shape));
  query_.weight.emplace(
      builder,
      builder.sharded(query_.name + ".weight",
                      {query_columns, query_latent_ ? shape.query_rank : shape.width}, 0, shape.init, true),
      ProductWeight::Cut::Outputs);
  key_value_.weight.emplace(
      builder,
      builder.sharded(key_value_.name + ".weight",
                      {heads.heads * (shape.plain + shape.value), shape.key_value_rank}, 0, shape.init, true),
      ProductWeight::Cut::Outputs);
}

LatentProjections::Latent LatentProjections::make_latent(BlockBuilder& builder, const std::string& name,
                                                         int64_t rank, int64_t more) const {
  Latent latent{
      rank,
      {builder, builder.replicated(name + "_down.weight", {rank + more, shape_.width}, shape_.init, true),
       ProductWeight::Cut::Outputs},
      {},
      builder.slot(),
      builder.slot()};
  if (shape_.norm)
    latent.norm.emplace(builder, name + "_norm", rank,
                        NormForm{*shape_.norm, shape_.norm_eps, shape_.gain_offset, shape_.norm_bias});
  return latent;
}

LatentHeads LatentProjections::heads_of_rank() const {
  return {shape_.rotary_frequencies, heads_.local,    shape_.plain, shape_.value,
          heads_.head_dim,           shape_.key_scale};
}

void LatentProjections::take_latent(Run& run, const Latent& latent, Tensor x, Saved& saved) const {
  const Tensor raw = run.keep->take(run.dtype, {x.row_count(), latent.rank});
  const Arena::Mark mark = run.scratch.mark();
  run.ops.affine(run.stream, raw, x, latent.down.read(run).rows(0, latent.rank), {});
  run.scratch.release(mark);
  saved[latent.y] = latent.norm ? latent.norm->forward(run, raw, saved) : raw;
}

// Returns y for all rows of x, in scratch.
Tensor LatentProjections::multiplied(Run& run, const Up& up, Tensor x) const {
  const Tensor y = run.scratch.take(run.dtype, {region_.rows_inside(x.row_count()), up.columns});
  column_product(run, y, region_.gather_rows(run, x, run.scratch, run.stream), *up.weight, {});
  run.show(up.name, "output", y);
  return y;
}

Tensor LatentProjections::forward(Run& run, Tensor x, Saved& saved) const {
  saved[x_] = x;
  const Tensor packed =
      run.keep->take(run.dtype, {region_.rows_inside(x.row_count()), heads_.packed_columns()});
  if (query_latent_) take_latent(run, *query_latent_, x, saved);
  take_latent(run, key_value_latent_, x, saved);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor key = run.scratch.take(run.dtype, {x.row_count(), turned_of(shape_)});
  const Arena::Mark before_down = run.scratch.mark();
  const Tensor down = key_value_latent_.down.read(run);
  run.ops.affine(run.stream, key, x, down.rows(key_value_latent_.rank, down.row_count()), {});
  run.scratch.release(before_down);
  const Tensor all_keys = region_.gather_rows(run, key, run.scratch, run.stream);
  const Tensor queries = multiplied(run, query_, query_input(saved));
  const Tensor key_values = multiplied(run, key_value_, saved[key_value_latent_.y]);
  run.ops.latent_heads(run.stream, packed, queries, key_values, all_keys, run.batch->positions.flat(),
                       heads_of_rank());
  run.show(name_, "output", packed);
  run.scratch.release(mark);
  return packed;
}

Tensor LatentProjections::backward_up(Run& run, const Up& up, Tensor x, Saved& saved,
                                      bool with_weights) const {
  ColumnGradient gradient{saved[up.dy], &*up.weight, {}, {}};
  if (!with_weights || !run.trains(up.weight->id()))
    return input_gradient(region_, run, up.name, {&gradient, 1});
  gradient.dw = run.grad(up.weight->id());
  gradient.adds = run.adds_to(up.weight->id());
  return both_gradients(region_, run, up.name, {&gradient, 1}, x);
}

void LatentProjections::backward_norm(Run& run, const Latent& latent, Tensor dy, Saved& saved,
                                      bool with_weights) const {
  saved[latent.dz] = !latent.norm   ? dy
                     : with_weights ? latent.norm->backward(run, dy, saved)
                                    : latent.norm->backward_input(run, dy, saved);
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

  const Tensor dlatent = backward_up(run, key_value_, saved[key_value_latent_.y], saved, with_weights);
  backward_norm(run, key_value_latent_, dlatent, saved, with_weights);
  Tensor dx = backward_up(run, query_, query_input(saved), saved, with_weights);
  if (query_latent_) {
    backward_norm(run, *query_latent_, dx, saved, with_weights);
    dx = run.flow->take(run.dtype, {dx.row_count(), shape_.width});
    const Arena::Mark mark = run.scratch.mark();
    run.ops.affine_backward_input(run.stream, dx, saved[query_latent_->dz], query_latent_->down.read(run), 0);
    run.scratch.release(mark);
  }
  const Arena::Mark mark = run.scratch.mark();
  const Tensor down = key_value_latent_.down.read(run);
  const int64_t rank = key_value_latent_.rank;
  run.ops.affine_backward_input(run.stream, dx, saved[key_value_latent_.dz], down.rows(0, rank), 1);
  run.ops.affine_backward_input(run.stream, dx, saved[dkey_], down.rows(rank, down.row_count()), 1);
  run.scratch.release(mark);
  run.show(name_, "input gradient", dx);
  return dx;
}

void LatentProjections::down_gradients(Run& run, Saved& saved) const {
  if (!run.trains(key_value_latent_.down.id())) return;
  const Tensor x = saved[x_];
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
    if (!run.trains(product.weight->id())) return;
    const ColumnGradient gradient{
        saved[product.dy], nullptr, run.grad(product.weight->id()), {}, run.adds_to(product.weight->id())};
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
