// Every layer against central finite differences in f64, on one rank and cut over two, with and without
// sequence parallelism. The list of layers is compared with the sources, so that a layer without a check fails the
// test.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "models/bert_tasks.h"
#include "models/gpt.h"
#include "nn/clicks/bag_attention.h"
#include "nn/clicks/label_towers.h"
#include "nn/dense.h"
#include "nn/recompute.h"
#include "parity/gradient_cases.h"
#include "support/ranks.h"
#include "tensor_parallel/latent_projections.h"
#include "tensor_parallel/tiled_mlp.h"

namespace trifold::test {
namespace {

constexpr MeshCase kMeshes[] = {{"OneRank", 1, false},
                                {"Tp2", 2, false},
                                {"Tp2Sequence", 2, true},
                                {"Tp2Experts", 2, true, 2},
                                {"Tp2PartsOfExperts", 2, true, 1, 2}};

Placed columns(int64_t width) { return {Placed::Cut::Columns, {kRows, width}}; }
Placed packed(int64_t groups, int64_t width) { return {Placed::Cut::Columns, {kRows, groups, width}}; }

ModelConfig tiny_model(double dropout) {
  ModelConfig config;
  config.num_layers = 1;
  config.hidden_size = kWidth;
  config.num_attention_heads = 4;
  config.ffn_hidden_size = 20;
  config.seq_length = kPositions;
  config.max_position_embeddings = kPositions + 2;
  config.vocab_size = kVocab;
  config.make_vocab_size_divisible_by = 16;
  config.hidden_dropout = dropout;
  config.attention_dropout = dropout;
  return config;
}

std::unique_ptr<LabelTowers> label_towers(BlockBuilder& b, std::vector<int64_t> shared, int experts,
                                          double dropout = 0) {
  return std::make_unique<LabelTowers>(
      b, LabelTowersShape{kWidth, {"click", "like", "buy"}, std::move(shared), {5, 1}, experts, dropout});
}

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

// The output layers read a token table that another layer owns; here it stands alone.
ParamId lone_table(BlockBuilder& b) { return b.sharded("tokens", {16, kWidth}, 0, kNormal, true); }

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

ModelConfig modern_model(double dropout) {
  ModelConfig config = tiny_model(dropout);
  config.model_type = ModelType::Bert;
  config.position_embedding_type = PositionEmbedding::Rope;
  config.num_tokentypes = 0;
  config.geglu = config.pre_norm = true;
  config.disable_bias_linear = config.disable_bias_norm = true;
  return config;
}

std::unique_ptr<NormedHead> normed(BlockBuilder& b, const ModelConfig& config, bool pairs) {
  Norm norm(b, "final_norm", kWidth, norm_form(config));
  return std::make_unique<NormedHead>(std::move(norm),
                                      std::make_unique<BertHead>(b, config, lone_table(b), 16, pairs));
}

// Blocks with norms of outputs, or with parallel parts; all with a multiplier of the parts' outputs.
std::unique_ptr<TransformerBlock> joined(BlockBuilder& b, TransformerShape shape, PartNorms norms,
                                         PartOrder order = PartOrder::OneAfterAnother) {
  shape.norms = norms;
  shape.order = order;
  shape.residual_multiplier = 0.7;
  return transformer(b, shape);
}

ModelConfig with_multipliers(ModelConfig config) {
  config.embedding_multiplier = 3;
  config.logits_scaling = 0.25;
  config.final_logit_softcapping = 1.5;
  return config;
}

std::unique_ptr<TiledMlp> tiled_mlp(BlockBuilder& b, const ActivationForm& activation, bool bias) {
  return std::make_unique<TiledMlp>(b, "mlp", kWidth, 20, activation, bias, kNormal, kNormal, 4);
}

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

ModelConfig tiny_classifier(double dropout) {
  ModelConfig config = tiny_model(dropout);
  config.class_names = {"one", "two", "three"};
  return config;
}

ModelConfig tiny_llama() {
  ModelConfig config = tiny_model(0.0);
  config.position_embedding_type = PositionEmbedding::Rope;
  config.normalization = Normalization::RmsNorm;
  return config;
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

// Of one pair, whose margin is neither near 0 nor far from it.
ModelConfig with_pairs(ModelConfig config, PairLossKind loss, double label_smoothing = 0) {
  config.pair_loss = PairLossConfig{loss, 0.3, label_smoothing};
  return config;
}

std::unique_ptr<GptHead> head_of_pairs(BlockBuilder& b, const ModelConfig& config) {
  return std::make_unique<GptHead>(b, config, lone_table(b), 16, 4);
}

std::unique_ptr<GptHead> predicting_head(BlockBuilder& b, bool untied) {
  ModelConfig config = with_multipliers(tiny_llama());
  config.mtp_num_layers = 3;
  config.untie_embeddings_and_output_weights = untied;
  return std::make_unique<GptHead>(b, config, lone_table(b), 16, 4, FurtherLayers{llama_shape(2), untied});
}

// All parts of an output layer, one after the other. The vocabulary of 11 is padded to 16: the last part of 4 is
// padding.
class HeadInParts final : public Layer {
 public:
  HeadInParts(BlockBuilder& builder, ModelConfig config, int parts) {
    config.untie_embeddings_and_output_weights = true;
    for (int part = 0; part < parts; ++part)
      parts_.push_back(make_gpt_head_part(builder, config, {}, 16, {part, parts}));
  }
  Tensor forward(Run& run, Tensor x, Saved& saved) const override {
    for (const auto& part : parts_) x = part->forward(run, x, saved);
    return x;
  }
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {
    for (size_t part = parts_.size(); part-- > 0;) dy = parts_[part]->backward_input(run, dy, saved);
    return dy;
  }
  void backward_weight(Run& run, Saved& saved) const override {
    for (size_t part = parts_.size(); part-- > 0;) parts_[part]->backward_weight(run, saved);
  }

 private:
  std::vector<std::unique_ptr<Layer>> parts_;
};

// Of all layers but experts and the blocks that have some (gradient_experts.cpp).
std::vector<GradientCase> cases_without_experts() {
  const Placed none;
  const Placed rows = stream(kWidth);
  using B = BlockBuilder;
  return {
      {"Norm", [](B& b) { return std::make_unique<Norm>(b, "norm", kWidth, Normalization::LayerNorm, 1e-5); },
       rows, rows},
      {"Norm", [](B& b) { return std::make_unique<Norm>(b, "norm", kWidth, Normalization::RmsNorm, 1e-5); },
       rows, rows},
      {"Norm",
       [](B& b) {
         return std::make_unique<Norm>(b, "norm", kWidth, NormForm{Normalization::LayerNorm, 1e-5, 1});
       },
       rows, rows},
      {"Norm",
       [](B& b) {
         return std::make_unique<Norm>(b, "norm", kWidth, NormForm{Normalization::RmsNorm, 1e-5, 1});
       },
       rows, rows},
      {"Norm",
       [](B& b) {
         return std::make_unique<Norm>(b, "norm", kWidth, NormForm{Normalization::LayerNorm, 1e-5, 0, false});
       },
       rows, rows},
      {"Activation", [](B& b) { return std::make_unique<Activation>(b, "act", ActivationKind::Gelu); },
       columns(kWidth), columns(kWidth)},
      {"Activation", [](B& b) { return std::make_unique<Activation>(b, "act", ActivationKind::GeluErf); },
       columns(kWidth), columns(kWidth)},
      {"Activation", [](B& b) { return std::make_unique<Activation>(b, "act", ActivationKind::SquaredRelu); },
       columns(kWidth), columns(kWidth)},
      {"Activation", [](B& b) { return std::make_unique<Activation>(b, "act", ActivationKind::Swiglu); },
       packed(2, kWidth), columns(kWidth)},
      {"Activation", [](B& b) { return std::make_unique<Activation>(b, "act", ActivationKind::Relu); },
       columns(kWidth), columns(kWidth)},
      {"Activation", [](B& b) { return std::make_unique<Activation>(b, "act", ActivationKind::Geglu); },
       packed(2, kWidth), columns(kWidth)},
      {"Activation", [](B& b) { return std::make_unique<Activation>(b, "act", ActivationKind::GegluErf); },
       packed(2, kWidth), columns(kWidth)},
      {"Activation", [](B& b) { return std::make_unique<Activation>(b, "act", kClampedSwiglu); },
       packed(2, kWidth), columns(kWidth)},
      {"AttentionCore", [](B& b) { return attention(b, 0.0); }, packed(3, kWidth), columns(kWidth)},
      {"AttentionCore", [](B& b) { return attention(b, 0.3); }, packed(3, kWidth), columns(kWidth)},
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
      {"TransformerBlock", [](B& b) { return transformer(b, latent_shape(6)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, latent_shape(6, true)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, latent_shape(0, true)); }, rows, rows},
      {"Recompute", [](B& b) { return std::make_unique<Recompute>(b, transformer(b, latent_shape(6))); },
       rows, rows},
      {"ColumnLinear", [](B& b) { return std::make_unique<ColumnLinear>(b, "c", 1, 8, kWidth, kNormal); },
       rows, columns(8)},
      {"ColumnLinear", [](B& b) { return std::make_unique<ColumnLinear>(b, "c", 3, 4, kWidth, kNormal); },
       rows, packed(3, 4)},
      {"ColumnLinear",
       [](B& b) { return std::make_unique<ColumnLinear>(b, "c", 2, 4, kWidth, kNormal, false); }, rows,
       packed(2, 4)},
      {"RowLinear", [](B& b) { return std::make_unique<RowLinear>(b, "r", 7, kWidth, kNormal); },
       columns(kWidth), stream(7)},
      {"RowLinear", [](B& b) { return std::make_unique<RowLinear>(b, "r", 7, kWidth, kNormal, false); },
       columns(kWidth), stream(7)},
      {"VocabEmbedding",
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions}, kWidth, kNormal);
       },
       none, rows},
      {"VocabEmbedding",
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions}, kWidth, kNormal,
                                                 TokenParts{{0, 1, 2, 3}, 4});
       },
       none, rows},
      {"VocabEmbedding",  // adds the tokens of two parts, or positions alone, to what others found
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{}, kWidth, kNormal,
                                                 TokenParts{{1, 3}, 4});
       },
       rows, rows},
      {"VocabEmbedding",
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions}, kWidth, kNormal,
                                                 TokenParts{{}, 4});
       },
       rows, rows},
      {"VocabCrossEntropy",
       [](B& b) { return std::make_unique<VocabCrossEntropy>(b, "head", lone_table(b), kVocab); }, rows,
       none},
      {"VocabCrossEntropy",  // chunks of 4, 4 and 2 rows
       [](B& b) { return std::make_unique<VocabCrossEntropy>(b, "head", lone_table(b), kVocab, 4); }, rows,
       none},
      {"GptEmbedding", [](B& b) { return std::make_unique<GptEmbedding>(b, tiny_model(0.0), 16); }, none,
       rows},
      {"GptEmbedding", [](B& b) { return std::make_unique<GptEmbedding>(b, tiny_model(0.4), 16); }, none,
       rows},
      {"GptEmbedding", [](B& b) { return std::make_unique<GptEmbedding>(b, tiny_llama(), 16); }, none, rows},
      {"GptHead", [](B& b) { return std::make_unique<GptHead>(b, tiny_llama(), lone_table(b), 16); }, rows,
       none},
      {"GptHead", [](B& b) { return std::make_unique<GptHead>(b, tiny_model(0.0), lone_table(b), 16); }, rows,
       none},
      {"GptHead", [](B& b) { return predicting_head(b, false); }, rows, none},
      {"GptHead", [](B& b) { return head_of_pairs(b, with_pairs(tiny_llama(), PairLossKind::Sigmoid)); },
       rows, none},
      {"GptHead",
       [](B& b) {
         return head_of_pairs(b, with_pairs(with_multipliers(tiny_model(0.0)), PairLossKind::Sigmoid, 0.2));
       },
       rows, none},
      {"GptHead", [](B& b) { return head_of_pairs(b, with_pairs(tiny_model(0.0), PairLossKind::Ipo)); }, rows,
       none},
      {"GptHead", [](B& b) { return predicting_head(b, true); }, rows, none},
      {"PredictionModule", [](B& b) { return prediction(b, llama_shape(2), false, false); }, rows, rows},
      {"PredictionModule", [](B& b) { return prediction(b, llama_shape(1, true), false, true, 0.3); }, rows,
       rows},
      {"PredictionModule", [](B& b) { return prediction(b, latent_shape(6), true, true); }, rows, rows},
      {"NormedVocabPart", [](B& b) { return std::make_unique<HeadInParts>(b, tiny_llama(), 2); }, rows, none},
      {"VocabPart", [](B& b) { return std::make_unique<HeadInParts>(b, tiny_model(0.0), 4); }, rows, none},
      {"NormedVocabPart",
       [](B& b) {
         return std::make_unique<HeadInParts>(b, with_pairs(tiny_llama(), PairLossKind::Sigmoid, 0.1), 2);
       },
       rows, none},
      {"VocabPart",
       [](B& b) {
         return std::make_unique<HeadInParts>(
             b, with_pairs(with_multipliers(tiny_model(0.0)), PairLossKind::Ipo), 4);
       },
       rows, none},
      {"DenseLayer", [](B& b) { return std::make_unique<DenseLayer>(b, "d", kWidth, 7, DenseLayer::Form{}); },
       rows, stream(7)},
      {"Mlp",
       [](B& b) {
         return std::make_unique<Mlp>(b, "m", std::array<int64_t, 4>{kWidth, 9, 8, 3}, true, false);
       },
       rows, stream(3)},
      {"Mlp",
       [](B& b) {
         return std::make_unique<Mlp>(b, "m", std::array<int64_t, 4>{kWidth, 9, 8, 3}, true, false, 0.4);
       },
       rows, stream(3)},
      {"LabelTowers",
       [](B& b) {
         return label_towers(b, {9, 7}, 0);
       },
       rows, stream(3)},
      {"LabelTowers", [](B& b) { return label_towers(b, {}, 0); }, rows, stream(3)},
      {"LabelTowers",
       [](B& b) {
         return label_towers(b, {9, 7}, 4);
       },
       rows, stream(3)},
      {"LabelTowers", [](B& b) { return label_towers(b, {6}, 2, 0.4); }, rows, stream(3)},
      {"BagAttention",
       [](B& b) {
         return std::make_unique<BagAttention>(b, "a", kWidth / 4, 3, std::array<int64_t, 3>{5, 4, 1});
       },
       rows, stream(kWidth / 4)},
      {"BagAttention",
       [](B& b) { return std::make_unique<BagAttention>(b, "a", kWidth / 2, 1, std::array<int64_t, 1>{1}); },
       rows, stream(kWidth / 2)},
      {"CrossNetwork", [](B& b) { return std::make_unique<CrossNetwork>(b, "c", kWidth, 4, 3); }, rows, rows},
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
      {"Recompute",
       [](B& b) { return std::make_unique<Recompute>(b, transformer(b, tiled(block_shape(0.2)))); }, rows,
       rows},
      {"Recompute",
       [](B& b) { return std::make_unique<Recompute>(b, post_norm(b, tiled(block_shape(0.2)))); }, rows,
       rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::Gelu, true); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::Gelu, false); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::GeluErf, true); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::SquaredRelu, true); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::Swiglu, false); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::Relu, true); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, kClampedSwiglu, false); }, rows, rows},
      {"TransformerBlock",
       [](B& b) {
         TransformerShape shape = llama_shape(2, true);
         shape.activation = ActivationKind::Geglu;
         return transformer(b, shape);
       },
       rows, rows},
      {"AttentionCore", [](B& b) { return attention(b, 0.3, {AttentionSight::Both}); }, packed(3, kWidth),
       columns(kWidth)},
      {"TransformerBlock", [](B& b) { return joined(b, block_shape(0.2), {.input = false, .output = true}); },
       rows, rows},
      {"TransformerBlock",
       [](B& b) { return joined(b, llama_shape(2, true), {.input = false, .output = true}); }, rows, rows},
      {"TransformerBlock", [](B& b) { return joined(b, llama_shape(2), {.output = true}); }, rows, rows},
      {"TransformerBlock", [](B& b) { return joined(b, block_shape(0.2, true), {.output = true}); }, rows,
       rows},
      {"Recompute",
       [](B& b) {
         return std::make_unique<Recompute>(b, joined(b, tiled(block_shape(0.2)), {.output = true}));
       },
       rows, rows},
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
      {"Recompute",
       [](B& b) {
         return std::make_unique<Recompute>(
             b, joined(b, llama_shape(2), {.output = true}, PartOrder::ParallelWithOneNorm));
       },
       rows, rows},
      {"GptEmbedding",
       [](B& b) { return std::make_unique<GptEmbedding>(b, with_multipliers(tiny_model(0.4)), 16); }, none,
       rows},
      {"GptEmbedding",
       [](B& b) { return std::make_unique<GptEmbedding>(b, with_multipliers(tiny_llama()), 16); }, none,
       rows},
      {"GptHead",
       [](B& b) {
         return std::make_unique<GptHead>(b, with_multipliers(tiny_llama()), lone_table(b), 16, 4);
       },
       rows, none},
      {"VocabPart", [](B& b) { return std::make_unique<HeadInParts>(b, with_multipliers(tiny_llama()), 4); },
       rows, none},
      {"WholeLinear", [](B& b) { return std::make_unique<WholeLinear>(b, "w", 7, kWidth, kNormal); }, rows,
       stream(7)},
      {"VocabEmbedding",
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions, 0, 2}, kWidth, kNormal);
       },
       none, rows},
      {"VocabEmbedding",  // two rows of no position, and one type
       [](B& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, AddedTables{kPositions, 2, 1}, kWidth, kNormal);
       },
       none, rows},
      {"VocabCrossEntropy",
       [](B& b) {
         const ParamId table = lone_table(b);
         const ParamId bias = b.sharded("bias", {16}, 0, kNormal, false);
         return std::make_unique<VocabCrossEntropy>(b, "head", table, kVocab, 4, bias);
       },
       rows, none},
      {"BertEmbedding", [](B& b) { return std::make_unique<BertEmbedding>(b, tiny_model(0.4), 16); }, none,
       rows},
      {"BertHead",
       [](B& b) { return std::make_unique<BertHead>(b, tiny_model(0.0), lone_table(b), 16, false); }, rows,
       none},
      {"BertHead",
       [](B& b) { return std::make_unique<BertHead>(b, tiny_model(0.0), lone_table(b), 16, true); }, rows,
       none},
      {"BertEmbedding", [](B& b) { return std::make_unique<BertEmbedding>(b, modern_model(0.4), 16); }, none,
       rows},
      {"BertHead",
       [](B& b) { return std::make_unique<BertHead>(b, modern_model(0.0), lone_table(b), 16, false); }, rows,
       none},
      {"BertEmbedding",
       [](B& b) {
         ModelConfig config = tiny_model(0.4);
         config.embedding_size = 6;
         return std::make_unique<BertEmbedding>(b, config, 16);
       },
       none, rows},
      {"BertHead",
       [](B& b) {
         ModelConfig config = tiny_model(0.0);
         config.embedding_size = 6;
         return std::make_unique<BertHead>(b, config, b.sharded("tokens", {16, 6}, 0, kNormal, true), 16,
                                           true);
       },
       rows, none},
      {"NormedHead", [](B& b) { return normed(b, modern_model(0.0), false); }, rows, none},
      {"NormedHead", [](B& b) { return normed(b, modern_model(0.0), true); }, rows, none},
      {"WholeLinear", [](B& b) { return std::make_unique<WholeLinear>(b, "w", 7, kWidth, kNormal, false); },
       rows, stream(7)},
      {"TransformerBlock", [](B& b) { return transformer(b, modern_shape(true, 0.2)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, modern_shape(true, 0.0, true)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, modern_shape(false, 0.0)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return transformer(b, tiled(modern_shape(false, 0.2, true))); }, rows,
       rows},
      {"Recompute",
       [](B& b) { return std::make_unique<Recompute>(b, transformer(b, modern_shape(true, 0.2))); }, rows,
       rows},
      {"ClassHead", [](B& b) { return std::make_unique<ClassHead>(b, tiny_classifier(0.0)); }, rows, none},
      {"ClassHead", [](B& b) { return std::make_unique<ClassHead>(b, tiny_classifier(0.4)); }, rows, none},
      {"SpanHead", [](B& b) { return std::make_unique<SpanHead>(b, tiny_model(0.0)); }, rows, none},
      {"TransformerBlock", [](B& b) { return post_norm(b, block_shape(0.0)); }, rows, rows},
      {"TransformerBlock", [](B& b) { return post_norm(b, block_shape(0.2, true)); }, rows, rows},
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
  };
}

std::vector<GradientCase> cases() {
  std::vector<GradientCase> all = cases_without_experts();
  for (GradientCase& with_experts : expert_gradient_cases()) all.push_back(std::move(with_experts));
  return all;
}

class EveryLayer : public ::testing::TestWithParam<std::tuple<size_t, MeshCase>> {};

TEST_P(EveryLayer, AgreesWithFiniteDifferences) {
  const GradientCase c = cases()[std::get<0>(GetParam())];
  const MeshCase& mesh = std::get<1>(GetParam());
  if (c.experts ? mesh.tp > 1 && !mesh.sequence_parallel : mesh.sharing * mesh.parts > 1) return;
  run_ranks(mesh.tp, [&](Communicator& world) { GradientCheck(c, mesh, world).run(); });
}

INSTANTIATE_TEST_SUITE_P(Gradients, EveryLayer,
                         ::testing::Combine(::testing::Range(size_t{0}, cases().size()),
                                            ::testing::ValuesIn(kMeshes)),
                         [](const auto& test) {
                           const size_t index = std::get<0>(test.param);
                           return cases()[index].layer + std::to_string(index) + std::get<1>(test.param).name;
                         });

TEST(Gradients, NoLayerIsForgotten) {
  std::set<std::string> checked;
  for (const GradientCase& c : cases()) checked.insert(c.layer);
  const std::regex declaration(R"(class (\w+)( final)? : public (Layer|HeadProjections)\b)");
  const std::set<std::string> interfaces{"HeadProjections"};
  checked.insert("GraphBlock");  // unit/graph_lower_test.cpp compares all its operations with PyTorch
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TRIFOLD_SOURCE)) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it, ++found)
      EXPECT_TRUE(checked.contains((*it)[1]) || interfaces.contains((*it)[1]))
          << (*it)[1] << " in " << entry.path() << " is not checked here";
  }
  EXPECT_GE(found, 10);
}

}  // namespace
}  // namespace trifold::test
