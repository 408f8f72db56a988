// Whole blocks without experts, for gradient_test.cpp.
#include "models/gpt.h"
#include "nn/recompute.h"
#include "parity/gradient_cases.h"

namespace trifold::test {
namespace {

// 10 rows in tiles of 4, 4 and 2.
TransformerShape tiled(TransformerShape shape) {
  shape.mlp_tiles = 3;
  return shape;
}

std::unique_ptr<TransformerBlock> post_norm(BlockBuilder& b, TransformerShape shape) {
  shape.norms = {.input = false, .sum = true};
  shape.scores.sight = AttentionSight::Both;
  return transformer(b, shape);
}

// As the first layer of ModernBERT, or a later one with a window on both sides.
TransformerShape modern_shape(bool first, double dropout, bool selective = false) {
  TransformerShape shape = block_shape(dropout, selective);
  shape.norms.attention_input = !first;
  shape.norm_bias = shape.bias = false;
  shape.activation = ActivationKind::GegluErf;
  shape.rotary_frequencies = {1.0};
  shape.scores.sight = AttentionSight::Both;
  if (!first) shape.scores.left = shape.scores.right = 1;
  return shape;
}

// Blocks with norms of outputs, or with parallel parts; all with a multiplier of the parts' outputs.
std::unique_ptr<TransformerBlock> joined(BlockBuilder& b, TransformerShape shape, PartNorms norms,
                                         PartOrder order = PartOrder::OneAfterAnother) {
  shape.norms = norms;
  shape.order = order;
  shape.residual_multiplier = 0.7;
  return transformer(b, shape);
}

// The last of two modules that predict further tokens, whose embedding is the output weight too, or not.
std::unique_ptr<PredictionModule> prediction(BlockBuilder& b, const TransformerShape& layer, bool recompute,
                                             bool tied, double dropout = 0) {
  PredictionShape shape;
  shape.layer = layer;
  shape.recompute = recompute;
  shape.norm = {Normalization::RmsNorm, 1e-5, 0};
  shape.init = kNormal;
  shape.embedding_multiplier = 1.5;
  shape.hidden_dropout = dropout;
  shape.tokens = lone_table(b);
  shape.output = tied ? shape.tokens : b.sharded("output", {16, kWidth}, 0, kNormal, true);
  shape.vocab = kVocab;
  return std::make_unique<PredictionModule>(b, "mtp.1", 2, shape);
}

std::vector<GradientCase> plain_block_cases() {
  const Placed rows = stream(kWidth);
  using B = BlockBuilder;
  return {
      {"TransformerBlock", [](B& b) { return transformer(b, latent_shape(6)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, latent_shape(6, true)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, latent_shape(0, true)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, block_shape(0.0)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, block_shape(0.2)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, block_shape(0.2, true)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, llama_shape(4)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, llama_shape(2, true)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, llama_shape(1)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, tiled(block_shape(0.2))); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, tiled(block_shape(0.0, true))); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, tiled(llama_shape(2))); }, rows, rows},
      {"TransformerBlock", [](B& b) { return post_norm(b, tiled(block_shape(0.2, true))); }, rows, rows},
      {"TransformerBlock",
       [](B& b) {
         TransformerShape shape = llama_shape(2, true);
         shape.activation = ActivationKind::Geglu;
         return transformer(b, shape);
       },
       rows, rows},
      {"TransformerBlock", [](B& b) { return joined(b, block_shape(0.2), {.input = false, .output = true}); },
       rows, rows},
      {"TransformerBlock",
       [](B& b) { return joined(b, llama_shape(2, true), {.input = false, .output = true}); }, rows, rows},
      {"TransformerBlock", [](B& b) { return joined(b, llama_shape(2), {.output = true}); }, rows, rows},
      {"TransformerBlock", [](B& b) { return joined(b, block_shape(0.2, true), {.output = true}); }, rows,
       rows},
      {"TransformerBlock", [](B& b) { return joined(b, block_shape(0.2), {}, PartOrder::Parallel); }, rows,
       rows},
      {"TransformerBlock",
       [](B& b) { return joined(b, llama_shape(2, true), {.output = true}, PartOrder::Parallel); }, rows,
       rows},
      {"TransformerBlock",
       [](B& b) { return joined(b, block_shape(0.2), {}, PartOrder::ParallelWithOneNorm); }, rows, rows},
      {"TransformerBlock",
       [](B& b) { return joined(b, tiled(llama_shape(1, true)), {}, PartOrder::ParallelWithOneNorm); }, rows,
       rows},
      {"TransformerBlock", [](B& b) { return transformer(b, modern_shape(true, 0.2)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, modern_shape(true, 0.0, true)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, modern_shape(false, 0.0)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, tiled(modern_shape(false, 0.2, true))); }, rows,
       rows},
      {"TransformerBlock", [](B& b) { return post_norm(b, block_shape(0.0)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return post_norm(b, block_shape(0.2, true)); }, rows, rows},
  };
}

std::vector<GradientCase> wrapped_block_cases() {
  const Placed rows = stream(kWidth);
  using B = BlockBuilder;
  return {
      {"Recompute", [](B& b) { return std::make_unique<Recompute>(b, transformer(b, latent_shape(6))); },
       rows, rows},
      {"Recompute",
       [](B& b) { return std::make_unique<Recompute>(b, transformer(b, tiled(block_shape(0.2)))); }, rows,
       rows},
      {"Recompute",
       [](B& b) { return std::make_unique<Recompute>(b, post_norm(b, tiled(block_shape(0.2)))); }, rows,
       rows},
      {"Recompute",
       [](B& b) {
         return std::make_unique<Recompute>(b, joined(b, tiled(block_shape(0.2)), {.output = true}));
       },
       rows, rows},
      {"Recompute",
       [](B& b) {
         return std::make_unique<Recompute>(
             b, joined(b, llama_shape(2), {.output = true}, PartOrder::ParallelWithOneNorm));
       },
       rows, rows},
      {"Recompute",
       [](B& b) { return std::make_unique<Recompute>(b, transformer(b, modern_shape(true, 0.2))); }, rows,
       rows},
      {"Recompute", [](B& b) { return std::make_unique<Recompute>(b, post_norm(b, block_shape(0.2))); }, rows,
       rows},
      {"Recompute", [](B& b) { return std::make_unique<Recompute>(b, transformer(b, block_shape(0.2))); },
       rows, rows},
      {"Recompute",
       [](B& b) {
         TransformerShape shape = llama_shape(2);
         shape.head_norm = true;  // takes more from keep than one tensor
         return std::make_unique<Recompute>(b, transformer(b, shape));
       },
       rows, rows},
      {"PredictionModule", [](B& b) { return prediction(b, llama_shape(2), false, false); }, rows, rows},
      {"PredictionModule", [](B& b) { return prediction(b, llama_shape(1, true), false, true, 0.3); }, rows,
       rows},
      {"PredictionModule", [](B& b) { return prediction(b, latent_shape(6), true, true); }, rows, rows},
  };
}

}  // namespace

std::vector<GradientCase> block_gradient_cases() {
  std::vector<GradientCase> all = plain_block_cases();
  for (GradientCase& one : wrapped_block_cases()) all.push_back(std::move(one));
  return all;
}

}  // namespace trifold::test
