#include "models/transformer.h"

#include "tensor_parallel/latent_projections.h"

namespace trifold {

namespace {

std::optional<Norm> norm_if(bool wanted, BlockBuilder& builder, const std::string& name,
                            const TransformerShape& shape) {
  if (!wanted) return std::nullopt;
  return Norm(builder, name, shape.width,
              NormForm{shape.norm, shape.norm_eps, shape.gain_offset, shape.norm_bias});
}

ResidualShape residual_of(BlockBuilder& builder, const std::string& part, const TransformerShape& shape) {
  return {shape.residual_multiplier, norm_if(shape.norms.output, builder, part + ".output_norm", shape)};
}

}  // namespace

QueryKeyValueShape projections_of(const TransformerShape& shape) {
  QueryKeyValueShape result;
  result.width = shape.width;
  result.init = {Init::Kind::Normal, shape.init_std};
  result.bias = shape.bias || shape.query_key_value_bias;
  result.rotary_frequencies = shape.rotary_frequencies;
  result.rotary_scale = shape.rotary_scale;
  if (shape.head_norm) result.head_norm = shape.norm;
  result.heads_as_one = shape.heads_as_one;
  result.norm_after_rope = shape.norm_after_rope;
  result.norm_eps = shape.norm_eps;
  result.gain_offset = shape.gain_offset;
  result.norm_bias = shape.norm_bias;
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
  latent.gain_offset = shape.gain_offset;
  latent.norm_bias = shape.norm_bias;
  return std::make_unique<LatentProjections>(builder, name, heads, latent);
}

TransformerBlock::TransformerBlock(BlockBuilder& builder, const std::string& name,
                                   const TransformerShape& shape)
    : TransformerBlock(
          builder, name, shape,
          {builder.mesh(), name + ".attention", shape.heads, shape.kv_heads, shape.head_dim,
           shape.latent ? shape.latent->value : shape.head_dim,
           shape.latent ? shape.latent->plain + 2 * std::ssize(shape.rotary_frequencies) : shape.head_dim}) {}

TransformerBlock::TransformerBlock(BlockBuilder& builder, const std::string& name,
                                   const TransformerShape& shape, const AttentionHeads& heads)
    : name_(name),
      selective_(shape.recompute_selective),
      order_(shape.order),
      first_norm_(norm_if(shape.norms.input && shape.norms.attention_input, builder, name + ".norm1", shape)),
      qkv_(make_projections(builder, name + ".attention", heads, shape)),
      attention_(builder, name + ".attention", heads, shape.attention_dropout, shape.scores, shape.context),
      out_(builder, name + ".attention.out", shape.width, heads.heads * heads.value_dim,
           {Init::Kind::Normal, shape.output_init_std}, shape.bias || shape.attention_out_bias),
      add1_(builder, name + ".attention.dropout", shape.hidden_dropout,
            residual_of(builder, name + ".attention", shape)),
      middle_norm_(norm_if((shape.norms.input && !one_norm()) || shape.norms.sum, builder,
                           name + (shape.norms.input ? ".norm2" : ".norm1"), shape)),
      feed_forward_(make_feed_forward(builder, name + ".mlp", shape)),
      add2_(builder, name + ".mlp.dropout", shape.hidden_dropout, residual_of(builder, name + ".mlp", shape)),
      last_norm_(norm_if(shape.norms.sum, builder, name + ".norm2", shape)) {
  check(!shape.norms.sum || !(shape.norms.input || shape.norms.output || parallel()),
        "block {}: norms of sums exclude other norms, and parallel parts", name);
  check(!one_norm() || first_norm_, "block {}: its parts have no norm that they can share", name);
  if (!middle_norm_ && !one_norm()) middle_ = builder.slot();
}

// A norm's output is narrow if nothing but products of linear layers reads it.
bool TransformerBlock::narrows_first(const Run& run) const {
  return qkv_->reads_narrow(run) && (!one_norm() || feed_forward_->reads_narrow(run));
}

bool TransformerBlock::narrows_middle(const Run& run) const {
  return !last_norm_ && feed_forward_->reads_narrow(run);
}

// Tensors that only the next operation reads are taken from scratch: always the outputs of the two projections into the
// residual stream, and the outputs of norms and of the activation if backward recomputes them. If kept tensors are in
// scratch too, the caller releases it.
Tensor TransformerBlock::forward(Run& run, Tensor x, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  const auto release = [&] {
    if (run.keep != &run.scratch) run.scratch.release(mark);
  };
  Run scratch_run = run.keeping_in(run.scratch);
  Run& recomputable = selective_ ? scratch_run : run;
  const auto normalise = [&](const Norm& norm, Tensor input, bool read_in_backward, bool in_8bit) {
    if (selective_ || read_in_backward) return norm.forward_factor(recomputable, input, saved, in_8bit);
    norm.take_statistics(run, input.row_count(), saved);
    const Tensor y = run.scratch.take(run.dtype, input.shape);
    norm.apply(run, y, input, saved);
    return y;
  };
  const bool first_is_read = qkv_->reads_input() || (one_norm() && feed_forward_->reads_input());
  const Tensor first = first_norm_ ? normalise(*first_norm_, x, first_is_read, narrows_first(run)) : x;
  const Tensor qkv = qkv_->forward(run, first, saved);
  const Tensor attention = attention_.forward(run, qkv, saved);
  add1_.reserve(run, x.row_count(), x.last_dim(), saved);
  // Of parallel parts, nothing but the other part's sum reads this one.
  const Tensor sum =
      out_.forward_added(run, parallel() ? run.scratch : *run.keep, add1_, x, attention, saved);
  if (!parallel()) release();
  Tensor normed = one_norm() ? first : parallel() ? x : sum;
  if (middle_norm_)
    normed = normalise(*middle_norm_, normed, feed_forward_->reads_input(), narrows_middle(run));
  else if (middle_)
    saved[*middle_] = normed;
  add2_.reserve(run, x.row_count(), x.last_dim(), saved);
  if (!last_norm_) {
    const Tensor y = feed_forward_->forward_added(run, *recomputable.keep, add2_, sum, normed, saved);
    release();
    return y;
  }
  // The last norm reads the sum in backward too, so the sum is computed in repeats and stays on this rank.
  Run sums = run.keeping_in(*run.keep);
  sums.repeats = false;
  const Tensor last_sum =
      feed_forward_->forward_added(sums, *recomputable.keep, add2_, normed, normed, saved);
  release();
  const Tensor y = run.output().take(run.dtype, last_sum.shape);
  last_norm_->forward_to(run, y, last_sum, saved);
  return y;
}

Tensor TransformerBlock::compute_backward(Run& run, Tensor dy, Saved& saved, bool with_weights) const {
  Arena& temporary = with_weights ? run.scratch : *run.flow;
  const Arena::Mark mark = temporary.mark();
  const auto end_half = [&] {
    if (&temporary != run.flow) temporary.release(mark);
  };
  Run inner = run.flowing_in(temporary);
  inner.wants_dx = true;
  Run recompute_run = inner.keeping_in(temporary);
  const auto backward_of = [&](Run& in, const auto& layer, Tensor gradient) {
    return with_weights ? layer.backward(in, gradient, saved) : layer.backward_input(in, gradient, saved);
  };
  const auto backward_norm = [&](const Norm& norm, Tensor gradient, Tensor residual) {
    return with_weights ? norm.backward_added(run, gradient, residual, saved)
                        : norm.backward_input_added(run, gradient, residual, saved);
  };
  const auto normed = [&] {
    if (middle_) return saved[*middle_];
    return middle_norm_ ? middle_norm_->repeat(recompute_run, saved, narrows_middle(run))
                        : first_norm_->repeat(recompute_run, saved, narrows_first(run));
  };
  constexpr std::string_view kBetween = "gradient between attention and feed-forward";

  const Tensor dsum = last_norm_ ? backward_of(inner, *last_norm_, dy) : dy;
  const Tensor dnormed = feed_forward_->compute_backward(
      inner, recompute_run, backward_of(inner, add2_, dsum), normed, saved, with_weights);
  Tensor dh;  // gradient of the tensor that the feed-forward part reads: x, or the sum of x and attention
  if (one_norm()) {
    dh = dsum;
  } else if (last_norm_) {
    run.ops.add(run.stream, dnormed, dnormed, dsum);
    run.show(name_, kBetween, dnormed);
    dh = backward_of(run, *middle_norm_, dnormed);
  } else if (middle_norm_) {
    dh = backward_norm(*middle_norm_, dnormed, dsum);
    run.show(name_, kBetween, dh);
  } else {
    dh = run.flow->take(run.dtype, dnormed.shape);
    run.ops.add(run.stream, dh, dnormed, dsum);
    run.show(name_, kBetween, dh);
  }
  if (!one_norm()) end_half();  // with one norm, dnormed is read below

  const Tensor dout = backward_of(inner, add1_, parallel() ? dsum : dh);
  const Tensor dqkv = backward_of(inner, attention_, backward_of(inner, out_, dout));
  Tensor dx;
  if (!run.wants_dx && !(first_norm_ && first_norm_->trains(run))) {
    inner.wants_dx = false;
    if (first_norm_ && selective_ && qkv_->reads_input())
      qkv_->set_input(saved, first_norm_->repeat(recompute_run, saved, narrows_first(run)));
    backward_of(inner, *qkv_, dqkv);
    end_half();
    return dx;
  }
  if (first_norm_) {
    if (selective_) qkv_->set_input(saved, first_norm_->repeat(recompute_run, saved, narrows_first(run)));
    const Tensor dfirst = backward_of(inner, *qkv_, dqkv);
    if (one_norm()) run.ops.add(run.stream, dfirst, dfirst, dnormed);
    dx = backward_norm(*first_norm_, dfirst, dh);
  } else {
    dx = backward_of(run, *qkv_, dqkv);
    run.ops.add(run.stream, dx, dx, dh);
  }
  end_half();
  run.show(name_, "input gradient", dx);
  return dx;
}

Tensor TransformerBlock::backward_input(Run& run, Tensor dy, Saved& saved) const {
  return compute_backward(run, dy, saved, false);
}

Tensor TransformerBlock::backward(Run& run, Tensor dy, Saved& saved) const {
  return compute_backward(run, dy, saved, true);
}

void TransformerBlock::backward_weight(Run& run, Saved& saved) const {
  if (last_norm_) last_norm_->backward_weight(run, saved);
  add2_.backward_weight(run, saved);
  feed_forward_->backward_weight(run, saved);
  if (middle_norm_) middle_norm_->backward_weight(run, saved);
  add1_.backward_weight(run, saved);
  out_.backward_weight(run, saved);
  attention_.backward_weight(run, saved);
  qkv_->backward_weight(run, saved);
  if (first_norm_) first_norm_->backward_weight(run, saved);
}

}  // namespace trifold
