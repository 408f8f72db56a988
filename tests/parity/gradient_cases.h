// Shapes of the blocks that are compared with finite differences, and the cases of which there is a file of their own.
#pragma once

#include <memory>
#include <vector>

#include "models/transformer.h"
#include "parity/gradient_check.h"

namespace trifold::test {

inline const Init kNormal{Init::Kind::Normal, 0.5};

// The activation of gpt-oss, with a limit that some elements reach.
inline const ActivationForm kClampedSwiglu = ActivationForm::clamped_swiglu(1.702, 1.25, 1);

inline Placed stream(int64_t width) { return {Placed::Cut::Stream, {kRows, width}}; }
inline Placed columns(int64_t width) { return {Placed::Cut::Columns, {kRows, width}}; }
inline Placed packed(int64_t groups, int64_t width) { return {Placed::Cut::Columns, {kRows, groups, width}}; }

inline TransformerShape block_shape(double dropout, bool selective = false) {
  TransformerShape shape;
  shape.width = kWidth;
  shape.heads = shape.kv_heads = 4;
  shape.head_dim = kWidth / 4;
  shape.ffn = 20;
  shape.hidden_dropout = shape.attention_dropout = dropout;
  shape.recompute_selective = selective;
  return shape;
}

// As Llama has it, with heads wider than they would have to be; 1 to 4 key heads.
inline TransformerShape llama_shape(int64_t kv_heads, bool selective = false) {
  TransformerShape shape = block_shape(0.0, selective);
  shape.kv_heads = kv_heads;
  shape.head_dim = 6;
  shape.norm = Normalization::RmsNorm;
  shape.activation = ActivationKind::Swiglu;
  shape.bias = false;
  shape.rotary_frequencies = {1.0, 0.3};  // two numbers of a head are not turned
  return shape;
}

// The output layers read a token table that another layer owns; here it stands alone.
inline ParamId lone_table(BlockBuilder& b) { return b.sharded("tokens", {16, kWidth}, 0, kNormal, true); }

inline std::unique_ptr<TransformerBlock> transformer(BlockBuilder& b, const TransformerShape& shape) {
  return std::make_unique<TransformerBlock>(b, "block", shape);
}

// As DeepSeek-V3 has it: values are shorter than keys.
inline TransformerShape latent_shape(int64_t query_rank, bool selective = false) {
  TransformerShape shape = llama_shape(4, selective);
  shape.head_dim = 7;
  shape.latent = {query_rank, 5, 3, 4, 0.75};
  shape.head_norm = true;
  shape.attention_dropout = 0.2;
  return shape;
}

// Layers of rows; attention and its projections; blocks without experts; embeddings and heads; experts and the blocks
// that have some. Each list has a file of its own.
std::vector<GradientCase> layer_gradient_cases();
std::vector<GradientCase> attention_gradient_cases();
std::vector<GradientCase> block_gradient_cases();
std::vector<GradientCase> end_gradient_cases();
std::vector<GradientCase> expert_gradient_cases();

}  // namespace trifold::test
