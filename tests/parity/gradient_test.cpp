// Every layer against central finite differences in f64. The list of layers is compared with the sources, so
// that a layer nobody checks fails the test.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "models/gpt.h"
#include "models/transformer.h"
#include "support/compare.h"
#include "support/layer_bench.h"

namespace trifold::test {
namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-6;
constexpr int64_t kSamples = 2;
constexpr int64_t kPositions = 5;
constexpr int64_t kRows = kSamples * kPositions;
constexpr int64_t kWidth = 12;
constexpr int64_t kVocab = 11;
const Init kNormal{Init::Kind::Normal, 0.5};

struct Case {
  std::string layer;  // class name
  LayerBench::Make make;
  Shape input;   // empty (rank 0): the layer reads the batch
  Shape output;  // empty: the layer computes the loss itself
};

ModelConfig tiny_model(double dropout) {
  ModelConfig config;
  config.num_layers = 1;
  config.hidden_size = kWidth;
  config.num_attention_heads = 3;
  config.ffn_hidden_size = 20;
  config.seq_length = kPositions;
  config.max_position_embeddings = kPositions + 2;
  config.vocab_size = kVocab;
  config.make_vocab_size_divisible_by = 16;
  config.hidden_dropout = dropout;
  config.attention_dropout = dropout;
  return config;
}

LayerBench::Make transformer(double dropout) {
  return [dropout](BlockBuilder& b) {
    TransformerShape shape;
    shape.width = kWidth;
    shape.heads = 3;
    shape.ffn = 20;
    shape.hidden_dropout = shape.attention_dropout = dropout;
    return std::make_unique<TransformerBlock>(b, "block", shape);
  };
}

// The output layers read a token table that another layer owns; here it stands alone.
ParamId lone_table(BlockBuilder& b) { return b.sharded("tokens", {16, kWidth}, 0, kNormal, true); }

std::vector<Case> cases() {
  const Shape rows{kRows, kWidth};
  return {
      {"LayerNorm", [](BlockBuilder& b) { return std::make_unique<LayerNorm>(b, "norm", kWidth, 1e-5); },
       rows, rows},
      {"Gelu", [](BlockBuilder& b) { return std::make_unique<Gelu>(b); }, rows, rows},
      {"AttentionCore",
       [](BlockBuilder& b) { return std::make_unique<AttentionCore>(b, "a", 3, 4, 0.0); },
       {kRows, 3 * kWidth},
       rows},
      {"AttentionCore",
       [](BlockBuilder& b) { return std::make_unique<AttentionCore>(b, "a", 3, 4, 0.3); },
       {kRows, 3 * kWidth},
       rows},
      {"ColumnLinear",
       [](BlockBuilder& b) { return std::make_unique<ColumnLinear>(b, "c", 1, 7, kWidth, kNormal); },
       rows,
       {kRows, 7}},
      {"ColumnLinear",
       [](BlockBuilder& b) { return std::make_unique<ColumnLinear>(b, "c", 3, 4, kWidth, kNormal); },
       rows,
       {kRows, 12}},
      {"RowLinear",
       [](BlockBuilder& b) { return std::make_unique<RowLinear>(b, "r", 7, kWidth, kNormal); },
       rows,
       {kRows, 7}},
      {"VocabEmbedding",
       [](BlockBuilder& b) {
         return std::make_unique<VocabEmbedding>(b, "e", 16, kPositions, kWidth, kNormal);
       },
       {},
       rows},
      {"VocabCrossEntropy",
       [](BlockBuilder& b) { return std::make_unique<VocabCrossEntropy>(b, lone_table(b), kVocab); },
       rows,
       {}},
      {"GptEmbedding",
       [](BlockBuilder& b) { return std::make_unique<GptEmbedding>(b, tiny_model(0.0), 16); },
       {},
       rows},
      {"GptEmbedding",
       [](BlockBuilder& b) { return std::make_unique<GptEmbedding>(b, tiny_model(0.4), 16); },
       {},
       rows},
      {"GptHead",
       [](BlockBuilder& b) { return std::make_unique<GptHead>(b, tiny_model(0.0), lone_table(b)); },
       rows,
       {}},
      {"TransformerBlock", transformer(0.0), rows, rows},
      {"TransformerBlock", transformer(0.2), rows, rows},
  };
}

// The scalar whose gradient is checked: the layer's own loss, or the sum of its outputs with fixed random
// weights.
class Objective {
 public:
  explicit Objective(const Case& c)
      : case_(c),
        bench_(c.make, kSamples, kPositions, kVocab),
        x_(c.input.rank() == 0 ? std::vector<double>{} : LayerBench::random(c.input.elements(), "x")),
        dy_(c.output.rank() == 0 ? std::vector<double>{} : LayerBench::random(c.output.elements(), "dy")) {}

  double value() {
    double loss = 0;
    const std::vector<double> y = bench_.forward(x_, case_.input, &loss);
    for (size_t i = 0; i < y.size(); ++i) loss += y[i] * dy_[i];
    return loss;
  }

  std::vector<double> input_gradient(bool split) {
    value();
    return bench_.backward(dy_, case_.output, split);
  }

  double difference(double& at) {
    const double middle = at;
    at = middle + kStep;
    const double above = value();
    at = middle - kStep;
    const double below = value();
    at = middle;
    return (above - below) / (2 * kStep);
  }

  LayerBench& bench() { return bench_; }
  std::vector<double>& x() { return x_; }

 private:
  const Case& case_;
  LayerBench bench_;
  std::vector<double> x_, dy_;
};

class EveryLayer : public ::testing::TestWithParam<size_t> {};

TEST_P(EveryLayer, AgreesWithFiniteDifferences) {
  const Case c = cases()[GetParam()];
  Objective objective(c);
  for (bool split : {false, true}) {
    const std::vector<double> dx = objective.input_gradient(split);
    std::vector<std::vector<double>> dw;
    const ParamList& params = objective.bench().params();
    for (int i = 0; i < params.size(); ++i) {
      const Tensor g = objective.bench().grad({i});
      dw.emplace_back(g.as<double>(), g.as<double>() + g.elements());
    }
    // A tied use reads another parameter's values: its gradient is that parameter's.
    for (int i = 0; i < params.size(); ++i)
      if (params[{i}].tied_to)
        for (size_t e = 0; e < dw[static_cast<size_t>(i)].size(); ++e)
          dw[static_cast<size_t>(params[{i}].tied_to->index)][e] += dw[static_cast<size_t>(i)][e];

    std::vector<double> expected;
    for (double& x : objective.x()) expected.push_back(objective.difference(x));
    EXPECT_LT(relative_error(dx, expected), kTolerance) << c.layer << " dx";
    for (int i = 0; i < params.size(); ++i) {
      if (params[{i}].tied_to) continue;
      expected.clear();
      const Tensor w = objective.bench().weight({i});
      for (int64_t e = 0; e < w.elements(); ++e) expected.push_back(objective.difference(w.as<double>()[e]));
      EXPECT_LT(relative_error(dw[static_cast<size_t>(i)], expected), kTolerance)
          << c.layer << " " << params[{i}].shard.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gradients, EveryLayer, ::testing::Range(size_t{0}, cases().size()),
                         [](const auto& test) {
                           return cases()[test.param].layer + std::to_string(test.param);
                         });

TEST(Gradients, NoLayerIsForgotten) {
  std::set<std::string> checked;
  for (const Case& c : cases()) checked.insert(c.layer);
  const std::regex declaration(R"(class (\w+)( final)? : public Layer\b)");
  int found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TRIFOLD_SOURCE)) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path());
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    for (std::sregex_iterator it(text.begin(), text.end(), declaration), end; it != end; ++it, ++found)
      EXPECT_TRUE(checked.contains((*it)[1])) << (*it)[1] << " in " << entry.path() << " is not checked here";
  }
  EXPECT_GE(found, 9);
}

}  // namespace
}  // namespace trifold::test
