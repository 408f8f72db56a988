// Layers that work on rows alone, for gradient_test.cpp.
#include <array>

#include "nn/clicks/bag_attention.h"
#include "nn/clicks/label_towers.h"
#include "nn/dense.h"
#include "nn/linear.h"
#include "parity/gradient_cases.h"
#include "tensor_parallel/tiled_mlp.h"

namespace trifold::test {
namespace {

std::unique_ptr<LabelTowers> label_towers(BlockBuilder& b, std::vector<int64_t> shared, int experts,
                                          double dropout = 0) {
  return std::make_unique<LabelTowers>(
      b, LabelTowersShape{kWidth, {"click", "like", "buy"}, std::move(shared), {5, 1}, experts, dropout});
}

std::unique_ptr<TiledMlp> tiled_mlp(BlockBuilder& b, const ActivationForm& activation, bool bias) {
  return std::make_unique<TiledMlp>(b, "mlp", kWidth, 20, activation, bias, kNormal, kNormal, 4);
}

std::vector<GradientCase> language_layer_cases() {
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
      {"WholeLinear", [](B& b) { return std::make_unique<WholeLinear>(b, "w", 7, kWidth, kNormal); }, rows,
       stream(7)},
      {"WholeLinear", [](B& b) { return std::make_unique<WholeLinear>(b, "w", 7, kWidth, kNormal, false); },
       rows, stream(7)},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::Gelu, true); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::Gelu, false); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::GeluErf, true); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::SquaredRelu, true); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::Swiglu, false); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, ActivationKind::Relu, true); }, rows, rows},
      {"TiledMlp", [](B& b) { return tiled_mlp(b, kClampedSwiglu, false); }, rows, rows},
  };
}

std::vector<GradientCase> recommender_layer_cases() {
  const Placed rows = stream(kWidth);
  using B = BlockBuilder;
  return {
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
  };
}

}  // namespace

std::vector<GradientCase> layer_gradient_cases() {
  std::vector<GradientCase> all = language_layer_cases();
  for (GradientCase& one : recommender_layer_cases()) all.push_back(std::move(one));
  return all;
}

}  // namespace trifold::test
