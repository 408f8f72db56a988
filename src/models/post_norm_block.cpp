#include "models/post_norm_block.h"

namespace trifold {

PostNormBlock::PostNormBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape)
    : PostNormBlock(builder, name, shape,
                    {builder.mesh(), name + ".attention", shape.heads, shape.kv_heads, shape.head_dim}) {}

PostNormBlock::PostNormBlock(BlockBuilder& builder, const std::string& name, const TransformerShape& shape,
                             const AttentionHeads& heads)
    : name_(name),
      selective_(shape.recompute_selective),
      qkv_(builder, name + ".attention", heads, projections_of(shape)),
      attention_(builder, name + ".attention", heads, shape.attention_dropout, AttentionSight::Both,
                 shape.score_scale, shape.context_sharing),
      out_(builder, name + ".attention.out", shape.width, shape.heads * shape.head_dim,
           {Init::Kind::Normal, shape.output_init_std}, shape.bias),
      add1_(builder, name + ".attention.dropout", shape.hidden_dropout),
      norm1_(builder, name + ".norm1", shape.width, shape.norm, shape.norm_eps),
      up_(builder, name + ".mlp.up", 1, shape.ffn, shape.width, {Init::Kind::Normal, shape.init_std},
          shape.bias),
      activation_(builder, name + ".mlp.activation", shape.activation),
      down_(builder, name + ".mlp.down", shape.width, shape.ffn, {Init::Kind::Normal, shape.output_init_std},
            shape.bias),
      add2_(builder, name + ".mlp.dropout", shape.hidden_dropout),
      norm2_(builder, name + ".norm2", shape.width, shape.norm, shape.norm_eps) {}

// As in TransformerBlock::forward, tensors that are read only here are taken from scratch: the results of the two
// projections always, those of norm1 and of the activation if backward recomputes them.
Tensor PostNormBlock::forward(Run& run, Tensor x, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  const auto release = [&] {
    if (&run.keep != &run.scratch) run.scratch.release(mark);
  };
  Run brief = run.keeping_in(run.scratch);
  Run& maybe = selective_ ? brief : run;
  const Tensor attention = attention_.forward(run, qkv_.forward(run, x, saved), saved);
  const Tensor sum1 = out_.forward_added(run, add1_, x, attention, saved);
  release();
  const Tensor h = norm1_.forward(maybe, sum1, saved);
  const Tensor inner = up_.forward_activated(run, maybe.keep, activation_, h, saved);
  const Tensor sum2 = down_.forward_added(run, add2_, h, inner, saved);
  release();
  const Tensor y = run.output().take(run.dtype, sum2.shape);
  norm2_.forward_to(run, y, sum2, saved);
  return y;
}

Tensor PostNormBlock::walk_back(Run& run, Tensor dy, Saved& saved, bool with_weights) const {
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
  const Tensor dsum2 = back(inner, norm2_, dy);
  restore(down_, activation_);
  const Tensor du =
      down_.backward_input_activated(inner, activation_, add2_.backward_input(inner, dsum2), saved);
  if (with_weights) down_.backward_weight(inner, saved);
  restore(up_, norm1_);
  const Tensor dh = back(inner, up_, du);
  run.ops.add(run.stream, dh, dh, dsum2);
  run.show(name_, "gradient between attention and feed-forward", dh);
  const Tensor dsum1 = back(run, norm1_, dh);
  end_half();
  const Tensor dqkv = back(inner, attention_, back(inner, out_, add1_.backward_input(inner, dsum1)));
  const Tensor dx = back(run, qkv_, dqkv);
  end_half();
  run.ops.add(run.stream, dx, dx, dsum1);
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor PostNormBlock::backward_input(Run& run, Tensor dy, Saved& saved) const {
  return walk_back(run, dy, saved, false);
}

Tensor PostNormBlock::backward(Run& run, Tensor dy, Saved& saved) const {
  return walk_back(run, dy, saved, true);
}

void PostNormBlock::backward_weight(Run& run, Saved& saved) const {
  const Layer* const layers[] = {&norm2_, &down_, &up_, &norm1_, &out_, &qkv_};
  for (const Layer* layer : layers) layer->backward_weight(run, saved);
}

}  // namespace trifold
