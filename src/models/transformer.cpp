#include "models/transformer.h"

#include "tensor_parallel/latent_projections.h"

namespace trifold {

QueryKeyValueShape projections_of(const TransformerShape& shape) {
  QueryKeyValueShape result;
  result.width = shape.width;
  result.init = {Init::Kind::Normal, shape.init_std};
  result.bias = shape.bias || shape.query_key_value_bias;
  result.rotary_frequencies = shape.rotary_frequencies;
  if (shape.head_norm) result.head_norm = shape.norm;
  result.norm_eps = shape.norm_eps;
  return result;
}

std::unique_ptr<HeadProjections> make_projections(BlockBuilder& builder, const std::string& name,
                                                  const AttentionHeads& heads,
                                                  const TransformerShape& shape) {
  if (!shape.latent) return std::make_unique<QueryKeyValue>(builder, name, heads, projections_of(shape));
  LatentProjectionsShape latent;
  latent.width = shape.width;
  latent.query_rank = shape.latent->query_rank;
  latent.key_value_rank = shape.latent->key_value_rank;
  latent.plain = shape.latent->plain;
  latent.value = shape.latent->value;
  latent.init = {Init::Kind::Normal, shape.init_std};
  latent.rotary_frequencies = shape.rotary_frequencies;
  latent.key_scale = shape.latent->key_scale;
  latent.norm = shape.head_norm ? std::optional(shape.norm) : std::nullopt;
  latent.norm_eps = shape.latent->norm_eps.value_or(shape.norm_eps);
  return std::make_unique<LatentProjections>(builder, name, heads, latent);
}

TransformerBlock::TransformerBlock(BlockBuilder& builder, const std::string& name,
                                   const TransformerShape& shape)
    : TransformerBlock(builder, name, shape,
                       {builder.mesh(), name + ".attention", shape.heads, shape.kv_heads, shape.head_dim,
                        shape.latent ? shape.latent->value : shape.head_dim}) {}

TransformerBlock::TransformerBlock(BlockBuilder& builder, const std::string& name,
                                   const TransformerShape& shape, const AttentionHeads& heads)
    : name_(name),
      selective_(shape.recompute_selective),
      norm1_(builder, name + ".norm1", shape.width, shape.norm, shape.norm_eps),
      qkv_(make_projections(builder, name + ".attention", heads, shape)),
      attention_(builder, name + ".attention", heads, shape.attention_dropout, AttentionSight::Causal,
                 shape.score_scale, shape.context),
      out_(builder, name + ".attention.out", shape.width, heads.heads * heads.value_dim,
           {Init::Kind::Normal, shape.output_init_std}, shape.bias || shape.attention_out_bias),
      add1_(builder, name + ".attention.dropout", shape.hidden_dropout),
      norm2_(builder, name + ".norm2", shape.width, shape.norm, shape.norm_eps),
      feed_forward_(make_feed_forward(builder, name + ".mlp", shape)),
      add2_(builder, name + ".mlp.dropout", shape.hidden_dropout) {}

// Tensors that only the next operation reads are taken from scratch: the results of the two projections into the
// residual stream always, those of the norms and of the activation if backward recomputes them. If kept tensors are in
// scratch too, the caller releases it.
Tensor TransformerBlock::forward(Run& run, Tensor x, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  const auto release = [&] {
    if (&run.keep != &run.scratch) run.scratch.release(mark);
  };
  Run brief = run.keeping_in(run.scratch);
  Run& maybe = selective_ ? brief : run;
  const Tensor qkv = qkv_->forward(run, norm1_.forward(maybe, x, saved), saved);
  const Tensor attention = attention_.forward(run, qkv, saved);
  const Tensor h = out_.forward_added(run, add1_, x, attention, saved);
  release();
  const Tensor y =
      feed_forward_->forward_added(run, maybe.keep, add2_, h, norm2_.forward(maybe, h, saved), saved);
  release();
  return y;
}

Tensor TransformerBlock::walk_back(Run& run, Tensor dy, Saved& saved, bool with_weights) const {
  Arena& brief = with_weights ? run.scratch : run.flow;
  const Arena::Mark mark = brief.mark();
  const auto end_half = [&] {
    if (&brief != &run.flow) brief.release(mark);
  };
  Run inner = run.flowing_in(brief);
  Run again = inner.keeping_in(brief);
  const auto restore = [&](const auto& linear, const auto& its_input) {
    if (selective_) linear.set_input(saved, its_input.repeat(again, saved));
  };
  const auto back = [&](Run& how, const Layer& layer, Tensor gradient) {
    return with_weights ? layer.backward(how, gradient, saved) : layer.backward_input(how, gradient, saved);
  };
  const auto back_norm = [&](const Norm& norm, Tensor gradient, Tensor residual) {
    return with_weights ? norm.backward_added(run, gradient, residual, saved)
                        : norm.backward_input_added(run, gradient, residual, saved);
  };
  const auto input = [&] { return norm2_.repeat(again, saved); };
  const Tensor dx2 =
      feed_forward_->walk_back(inner, again, add2_.backward_input(inner, dy), input, saved, with_weights);
  const Tensor dh = back_norm(norm2_, dx2, dy);
  end_half();
  run.show(name_, "gradient between attention and feed-forward", dh);
  const Tensor dqkv = back(inner, attention_, back(inner, out_, add1_.backward_input(inner, dh)));
  restore(*qkv_, norm1_);
  const Tensor dx = back_norm(norm1_, back(inner, *qkv_, dqkv), dh);
  end_half();
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor TransformerBlock::backward_input(Run& run, Tensor dy, Saved& saved) const {
  return walk_back(run, dy, saved, false);
}

Tensor TransformerBlock::backward(Run& run, Tensor dy, Saved& saved) const {
  return walk_back(run, dy, saved, true);
}

void TransformerBlock::backward_weight(Run& run, Saved& saved) const {
  feed_forward_->backward_weight(run, saved);
  const Layer* const layers[] = {&norm2_, &out_, qkv_.get(), &norm1_};
  for (const Layer* layer : layers) layer->backward_weight(run, saved);
}

}  // namespace trifold
