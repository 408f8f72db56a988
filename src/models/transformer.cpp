#include "models/transformer.h"

namespace trifold {

TransformerBlock::TransformerBlock(BlockBuilder& builder, const std::string& name,
                                   const TransformerShape& shape)
    : selective_(shape.recompute_selective),
      norm1_(builder, name + ".norm1", shape.width, shape.norm_eps),
      qkv_(builder, name + ".attention.qkv", 3, shape.width, shape.width,
           {Init::Kind::Normal, shape.init_std}),
      attention_(builder, name + ".attention", shape.heads, shape.width / shape.heads,
                 shape.attention_dropout),
      out_(builder, name + ".attention.out", shape.width, shape.width,
           {Init::Kind::Normal, shape.output_init_std}),
      add1_(builder, name + ".attention.dropout", shape.hidden_dropout),
      norm2_(builder, name + ".norm2", shape.width, shape.norm_eps),
      up_(builder, name + ".mlp.up", 1, shape.ffn, shape.width, {Init::Kind::Normal, shape.init_std}),
      gelu_(builder),
      down_(builder, name + ".mlp.down", shape.width, shape.ffn, {Init::Kind::Normal, shape.output_init_std}),
      add2_(builder, name + ".mlp.dropout", shape.hidden_dropout) {}

// What only the next operation reads is taken from scratch: the results of the two projections into the
// residual stream always, those of the norms and of the GELU where backward computes them again.
Tensor TransformerBlock::forward(Run& run, Tensor x, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  Run brief = run.keeping_in(run.scratch);
  Run& maybe = selective_ ? brief : run;
  const Tensor qkv = qkv_.forward(run, norm1_.forward(maybe, x, saved), saved);
  const Tensor attention = attention_.forward(run, qkv, saved);
  const Tensor h = add1_.forward(run, x, out_.forward(brief, attention, saved));
  run.scratch.release(mark);
  const Tensor up = up_.forward(run, norm2_.forward(maybe, h, saved), saved);
  run.scratch.release(mark);
  const Tensor y = add2_.forward(run, h, down_.forward(brief, gelu_.forward(maybe, up, saved), saved));
  run.scratch.release(mark);
  return y;
}

Tensor TransformerBlock::walk_back(Run& run, Tensor dy, Saved& saved, Step step) const {
  Run again = run.keeping_in(run.flow);
  const auto restore = [&](const auto& linear, const auto& its_input) {
    if (selective_) linear.set_input(saved, its_input.repeat(again, saved));
  };
  const auto back = [&](const Layer& layer, Tensor gradient) { return (layer.*step)(run, gradient, saved); };
  restore(down_, gelu_);
  const Tensor du = back(gelu_, back(down_, add2_.backward_input(run, dy)));
  restore(up_, norm2_);
  const Tensor dh = back(norm2_, back(up_, du));
  run.ops.add(run.stream, dh, dh, dy);
  const Tensor dqkv = back(attention_, back(out_, add1_.backward_input(run, dh)));
  restore(qkv_, norm1_);
  const Tensor dx = back(norm1_, back(qkv_, dqkv));
  run.ops.add(run.stream, dx, dx, dh);
  return dx;
}

Tensor TransformerBlock::backward_input(Run& run, Tensor dy, Saved& saved) const {
  return walk_back(run, dy, saved, &Layer::backward_input);
}

Tensor TransformerBlock::backward(Run& run, Tensor dy, Saved& saved) const {
  return walk_back(run, dy, saved, &Layer::backward);
}

void TransformerBlock::backward_weight(Run& run, Saved& saved) const {
  const Layer* const layers[] = {&down_, &up_, &norm2_, &out_, &qkv_, &norm1_};
  for (const Layer* layer : layers) layer->backward_weight(run, saved);
}

}  // namespace trifold
