#include "models/transformer.h"

namespace trifold {

TransformerBlock::TransformerBlock(BlockBuilder& builder, const std::string& name,
                                   const TransformerShape& shape)
    : norm1_(builder, name + ".norm1", shape.width, shape.norm_eps),
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

Tensor TransformerBlock::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor qkv = qkv_.forward(run, norm1_.forward(run, x, saved), saved);
  const Tensor h = add1_.forward(run, x, out_.forward(run, attention_.forward(run, qkv, saved), saved));
  const Tensor up = up_.forward(run, norm2_.forward(run, h, saved), saved);
  return add2_.forward(run, h, down_.forward(run, gelu_.forward(run, up, saved), saved));
}

Tensor TransformerBlock::walk_back(Run& run, Tensor dy, Saved& saved, Step step) const {
  const auto back = [&](const Layer& layer, Tensor gradient) { return (layer.*step)(run, gradient, saved); };
  const Tensor dh = back(norm2_, back(up_, back(gelu_, back(down_, add2_.backward_input(run, dy)))));
  run.ops.add(run.stream, dh, dh, dy);
  const Tensor dx = back(norm1_, back(qkv_, back(attention_, back(out_, add1_.backward_input(run, dh)))));
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
