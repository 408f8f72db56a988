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
                 shape.score_scale, shape.context),
      out_(builder, name + ".attention.out", shape.width, shape.heads * shape.head_dim,
           {Init::Kind::Normal, shape.output_init_std}, shape.bias),
      add1_(builder, name + ".attention.dropout", shape.hidden_dropout),
      norm1_(builder, name + ".norm1", shape.width, shape.norm, shape.norm_eps),
      feed_forward_(make_feed_forward(builder, name + ".mlp", shape)),
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
  Run sums = run.keeping_in(run.keep);  // norm2 reads the sum in backward too, so it does not leave the rank
  sums.repeats = false;
  const Tensor sum2 = feed_forward_->forward_added(sums, maybe.keep, add2_, h, h, saved);
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
  const auto back = [&](Run& how, const Layer& layer, Tensor gradient) {
    return with_weights ? layer.backward(how, gradient, saved) : layer.backward_input(how, gradient, saved);
  };
  const auto input = [&] { return norm1_.repeat(again, saved); };
  const Tensor dsum2 = back(inner, norm2_, dy);
  const Tensor dh =
      feed_forward_->walk_back(inner, again, add2_.backward_input(inner, dsum2), input, saved, with_weights);
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
  norm2_.backward_weight(run, saved);
  feed_forward_->backward_weight(run, saved);
  const Layer* const layers[] = {&norm1_, &out_, &qkv_};
  for (const Layer* layer : layers) layer->backward_weight(run, saved);
}

}  // namespace trifold
