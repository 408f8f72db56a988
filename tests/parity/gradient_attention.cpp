// Attention and its projections, for gradient_test.cpp.
#include "parity/gradient_cases.h"
#include "tensor_parallel/latent_projections.h"

namespace trifold::test {
namespace {

std::unique_ptr<AttentionCore> attention(BlockBuilder& b, double dropout,
                                         const AttentionScores& scores = {}) {
  return std::make_unique<AttentionCore>(b, "a", AttentionHeads(b.mesh(), "a", 4, 4, 3), dropout, scores);
}

// The projections and the attention that reads them: which columns of the packed matrix a rank has is between
// the two.
template <class Projections>
class Projected : public Layer {
 public:
  template <class ProjectionsShape>
  Projected(BlockBuilder& b, const AttentionHeads& heads, const ProjectionsShape& shape)
      : heads_(heads), projections_(b, "a", heads_, shape), core_(b, "a", heads_, 0) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override {
    return core_.forward(run, projections_.forward(run, x, saved), saved);
  }
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {
    return projections_.backward_input(run, core_.backward_input(run, dy, saved), saved);
  }
  void backward_weight(Run& run, Saved& saved) const override { projections_.backward_weight(run, saved); }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override {
    return projections_.backward(run, core_.backward(run, dy, saved), saved);
  }

 private:
  AttentionHeads heads_;
  Projections projections_;
  AttentionCore core_;
};

GradientCase query_key_value(int64_t kv_heads, bool bias, bool rotary, std::optional<Normalization> norm,
                             bool heads_as_one = false, bool after_rope = false) {
  QueryKeyValueShape shape{kWidth, kNormal, bias, {}, norm};
  if (rotary) shape.rotary_frequencies = {1.0, 0.1};
  shape.heads_as_one = heads_as_one;
  shape.norm_after_rope = after_rope;
  return {"QueryKeyValue",
          [=](BlockBuilder& b) {
            return std::make_unique<Projected<QueryKeyValue>>(
                b, AttentionHeads(b.mesh(), "a", 4, kv_heads, 4), shape);
          },
          stream(kWidth), columns(16)};
}

// The rotated part of each head, half of it, has a factor, and norms have no biases.
GradientCase scaled_query_key_value(int64_t kv_heads) {
  QueryKeyValueShape shape{kWidth, kNormal, true, {}, Normalization::LayerNorm};
  shape.rotary_frequencies = {0.7};
  shape.rotary_scale = 1.25;
  shape.norm_bias = false;
  return {"QueryKeyValue",
          [=](BlockBuilder& b) {
            return std::make_unique<Projected<QueryKeyValue>>(
                b, AttentionHeads(b.mesh(), "a", 4, kv_heads, 4), shape);
          },
          stream(kWidth), columns(16)};
}

GradientCase latent(int64_t query_rank, int64_t value, int64_t width, std::optional<Normalization> norm) {
  const LatentProjectionsShape shape{kWidth, query_rank, 5, 3, value, kNormal, {1.0, 0.3}, 1.25, norm, 1e-6};
  return {"LatentProjections",
          [=](BlockBuilder& b) {  // the output has as many numbers as the values
            return std::make_unique<Projected<LatentProjections>>(
                b, AttentionHeads(b.mesh(), "a", 4, 4, width, shape.value), shape);
          },
          stream(kWidth), columns(4 * value)};
}

}  // namespace

std::vector<GradientCase> attention_gradient_cases() {
  using B = BlockBuilder;
  return {
      {"AttentionCore", [](B& b) { return attention(b, 0.0); }, packed(3, kWidth), columns(kWidth)},
      {"AttentionCore", [](B& b) { return attention(b, 0.3); }, packed(3, kWidth), columns(kWidth)},
      {"AttentionCore", [](B& b) { return attention(b, 0.3, {AttentionSight::Both}); }, packed(3, kWidth),
       columns(kWidth)},
      {"AttentionCoreWithSinks",
       [](B& b) { return attention(b, 0.3, {.left = 2, .soft_cap = 1.5, .sinks = true}); }, packed(3, kWidth),
       columns(kWidth)},
      scaled_query_key_value(4),
      scaled_query_key_value(2),
      query_key_value(4, true, false, {}),
      query_key_value(4, false, true, {}),
      query_key_value(4, true, true, Normalization::LayerNorm),
      query_key_value(2, true, false, {}),
      query_key_value(2, false, true, Normalization::RmsNorm),
      query_key_value(1, true, true, {}),  // on two ranks, both hold the one key head
      query_key_value(1, false, true, Normalization::RmsNorm),
      query_key_value(4, false, true, Normalization::RmsNorm, true),
      query_key_value(2, true, true, Normalization::RmsNorm, true),
      query_key_value(1, false, true, Normalization::RmsNorm, true),
      query_key_value(2, false, true, Normalization::RmsNorm, false, true),
      query_key_value(4, true, true, Normalization::RmsNorm, false, true),
      latent(6, 4, 7, Normalization::RmsNorm),
      latent(0, 7, 7, Normalization::RmsNorm),
      latent(6, 9, 9, Normalization::LayerNorm),  // values are longer than keys
      latent(0, 2, 11, {}),                       // both are shorter than heads
  };
}

}  // namespace trifold::test
