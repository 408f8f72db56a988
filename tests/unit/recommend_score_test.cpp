// The predictions of a trained recommender, against a DLRM computed in double precision from the weights of its
// checkpoint, one sample after the other.
#include "recommend/score.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "checkpoint/reader.h"
#include "config/commands/commands.h"
#include "files/file.h"
#include "recommend/recommend.h"
#include "run/ranks.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;

constexpr int kSamples = 61;  // the last global batch is short on every number of ranks
constexpr int kTables = 3;
constexpr int kRows[kTables] = {7, 5, 4};

struct Sample {
  int label;
  double dense[2];
  int ids[kTables];
};

class Silent final : public RecommendObserver {
 public:
  void on_start(const RecommendReport&) override {}
  void on_step(const StepReport&) override {}
  void on_eval(const ClickEvaluation&) override {}
  void on_target(int64_t, double, double) override {}
  void on_saved(int64_t, const std::string&) override {}
  void on_warning(const std::string&) override {}
};

class ScoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("trifold_score_" + random_id());
    fs::create_directory(folder_);
    std::mt19937 random(11);
    std::ofstream file(folder_ / "clicks.csv"), unlabeled(folder_ / "unlabeled.csv");
    file << "label,I1,I2,C1,C2,C3\n";
    unlabeled << "I1,I2,C1,C2,C3\n";
    for (int i = 0; i < kSamples; ++i) {
      Sample sample{static_cast<int>(random() % 2), {}, {}};
      std::ostringstream values;
      for (double& x : sample.dense) values << (x = static_cast<double>(random() % 30)) << ',';
      for (int t = 0; t < kTables; ++t)
        values << (sample.ids[t] = static_cast<int>(random() % static_cast<unsigned>(kRows[t])))
               << (t + 1 < kTables ? "," : "\n");
      file << sample.label << ',' << values.str();
      unlabeled << values.str();
      samples_.push_back(sample);
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  RecommendConfig config() const {
    RecommendConfig config;
    config.data.train_data = folder_ / "clicks.csv";
    config.data.table_rows = TableRows{NumberList{7, 5, 4}};
    config.model.embedding_dim = 4;
    config.model.bottom_mlp = {5, 4};
    config.model.top_mlp = {6, 1};
    config.training.global_batch_size = 16;
    config.training.train_iters = 30;
    config.lr.lr = 0.3;
    config.mesh.threads_per_rank = 1;
    config.checkpoint.save = folder_ / "run";
    return config;
  }

  static void train(const RecommendConfig& config) {
    const RecommendJob job = prepare(resolve(config));
    Silent observer;
    const std::atomic<int> signal{0};
    run_on_ranks(job.config.mesh, [&](Communicator& world) { recommend(world, job, observer, signal); });
  }

  std::string text_of(const std::string& data, int ranks, const std::string& placement, ScoreFormat format,
                      int64_t batch = 16) const {
    ScoreConfig config;
    config.run.load = folder_ / "run";
    config.run.data = folder_ / data;
    config.run.global_batch_size = batch;
    config.run.placement.placement = TablePlacements::parse(placement);
    config.run.mesh.ranks = ranks;
    config.run.mesh.threads_per_rank = 1;
    config.output = "-";
    config.output_format = format;
    const ScoreJob job = prepare(resolve(config));
    std::string text;
    const std::atomic<int> signal{0};
    run_on_ranks(config.run.mesh, [&](Communicator& world) {
      EXPECT_TRUE(score(world, job, signal, [&](std::string_view piece) { text += piece; }).has_value());
    });
    return text;
  }

  // Of "sample,label,probability" lines, checked to be in order and with the labels of the file.
  std::vector<double> probabilities_of(const std::string& text) const {
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line, "sample,label,probability");
    std::vector<double> result;
    while (std::getline(lines, line)) {
      int sample = 0, label = 0;
      double probability = 0;
      EXPECT_EQ(std::sscanf(line.c_str(), "%d,%d,%lf", &sample, &label, &probability), 3) << line;
      EXPECT_EQ(sample, std::ssize(result));
      EXPECT_EQ(label, samples_[result.size()].label);
      result.push_back(probability);
    }
    return result;
  }

  fs::path folder_;
  std::vector<Sample> samples_;
};

// Weights as plain rows.
class Weights {
 public:
  explicit Weights(const fs::path& run) : reader_(run) {}

  std::vector<double> of(const std::string& name) {
    const TensorInfo* stored = reader_.find("param/" + name);
    if (stored == nullptr) ADD_FAILURE() << name;
    std::vector<float> values(static_cast<size_t>(stored->global.elements()));
    ShardSpec spec;
    spec.name = stored->name;
    spec.global = stored->global;
    Shape origin = stored->global;
    for (int d = 0; d < origin.rank(); ++d) origin[d] = 0;
    spec.local = {origin, stored->global};
    const NamedTensor box{spec, {values.data(), DType::F32, stored->global}};
    reader_.load({&box, 1});
    return {values.begin(), values.end()};
  }

 private:
  CheckpointReader reader_;
};

std::vector<double> linear(Weights& weights, const std::string& name, const std::vector<double>& x,
                           bool relu) {
  const std::vector<double> w = weights.of(name + ".weight"), b = weights.of(name + ".bias");
  std::vector<double> y = b;
  for (size_t o = 0; o < b.size(); ++o) {
    for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    if (relu) y[o] = std::max(0.0, y[o]);
  }
  return y;
}

// ln(max(x, 0) + 1) of the numbers; bottom MLP with ReLU after both layers; products of each pair of vectors,
// (1,0), (2,0), (2,1) ..., behind the bottom's vector; top MLP with ReLU after its first layer; sigmoid.
double probability(Weights& weights, const Sample& sample) {
  std::vector<double> x{std::log1p(sample.dense[0]), std::log1p(sample.dense[1])};
  x = linear(weights, "bottom.1", linear(weights, "bottom.0", x, true), true);
  std::vector<std::vector<double>> vectors{x};
  for (int t = 0; t < kTables; ++t) {
    const std::vector<double> table = weights.of("embedding.C" + std::to_string(t + 1) + ".weight");
    const auto row = table.begin() + sample.ids[t] * 4;
    vectors.emplace_back(row, row + 4);
  }
  for (size_t i = 1; i < vectors.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      double product = 0;
      for (size_t d = 0; d < 4; ++d) product += vectors[i][d] * vectors[k][d];
      x.push_back(product);
    }
  const double logit = linear(weights, "top.1", linear(weights, "top.0", x, true), false)[0];
  return 1 / (1 + std::exp(-logit));
}

TEST_F(ScoreTest, EqualsTheModelInDoublePrecisionOnEveryMesh) {
  train(config());
  Weights weights(folder_ / "run");
  std::vector<double> expected;
  for (const Sample& sample : samples_) expected.push_back(probability(weights, sample));
  double least = 1, most = 0;
  for (const double p : expected) {
    least = std::min(least, p);
    most = std::max(most, p);
  }
  EXPECT_GT(most - least, 0.1) << "the model tells no samples apart: nothing would be compared";
  for (const int ranks : {1, 2, 3, 4})
    for (const char* placement : {"auto", "row", "column", "table", "replicated", "row,column,table"}) {
      const std::vector<double> scores =
          probabilities_of(text_of("clicks.csv", ranks, placement, ScoreFormat::Csv));
      ASSERT_EQ(scores.size(), expected.size());
      for (size_t i = 0; i < scores.size(); ++i)
        EXPECT_NEAR(scores[i], expected[i], 1e-6) << ranks << " ranks, " << placement << ", sample " << i;
    }
}

TEST_F(ScoreTest, TakesTextWithoutLabels) {
  train(config());
  const std::string labeled = text_of("clicks.csv", 1, "auto", ScoreFormat::Csv);
  const std::string text = text_of("unlabeled.csv", 2, "auto", ScoreFormat::Csv, 1000);
  EXPECT_EQ(text.substr(0, text.find('\n')), "sample,probability");
  const std::vector<double> expected = probabilities_of(labeled);
  std::istringstream lines(text.substr(text.find('\n') + 1));
  std::string line;
  size_t i = 0;
  for (; std::getline(lines, line); ++i)
    EXPECT_NEAR(std::stod(line.substr(line.find(',') + 1)), expected.at(i), 1e-6);
  EXPECT_EQ(i, expected.size());
  const std::string json = text_of("unlabeled.csv", 1, "auto", ScoreFormat::Jsonl);
  EXPECT_EQ(json.rfind("{\"sample\":0,\"probability\":0.", 0), 0U) << json.substr(0, 60);
}

// DeepFM: ln(max(x, 0) + 1) of the numbers, bottom MLP; vectors of 4 and a weight behind each; top MLP over the
// vectors side by side. What is added to its logit is computed as the papers write it: the weights and a linear
// function of the numbers, and half of the square of the vectors' sum minus the sum of their squares.
double deepfm_probability(Weights& weights, const Sample& sample) {
  const std::vector<double> numbers{std::log1p(sample.dense[0]), std::log1p(sample.dense[1])};
  const std::vector<double> linear_weights = weights.of("wide.weight");
  double logit = linear_weights[0] * numbers[0] + linear_weights[1] * numbers[1];
  std::vector<double> x = linear(weights, "bottom.1", linear(weights, "bottom.0", numbers, true), true);
  for (int t = 0; t < kTables; ++t) {
    const std::vector<double> table = weights.of("embedding.C" + std::to_string(t + 1) + ".weight");
    const auto row = table.begin() + sample.ids[t] * 5;
    x.insert(x.end(), row, row + 4);
    logit += row[4];
  }
  for (size_t d = 0; d < 4; ++d) {
    double sum = 0, squares = 0;
    for (size_t v = 0; v <= kTables; ++v) {
      sum += x[4 * v + d];
      squares += x[4 * v + d] * x[4 * v + d];
    }
    logit += (sum * sum - squares) / 2;
  }
  logit += linear(weights, "top.1", linear(weights, "top.0", x, true), false)[0];
  return 1 / (1 + std::exp(-logit));
}

TEST_F(ScoreTest, DeepFmEqualsThePapersFormulasOnEveryPlacement) {
  RecommendConfig asked = config();
  asked.model.interaction = InteractionKind::Fm;
  asked.model.wide = true;
  asked.lr.lr = 0.1;
  train(asked);
  Weights weights(folder_ / "run");
  std::vector<double> expected;
  for (const Sample& sample : samples_) expected.push_back(deepfm_probability(weights, sample));
  const auto [least, most] = std::minmax_element(expected.begin(), expected.end());
  EXPECT_GT(*most - *least, 0.1) << "the model tells no samples apart: nothing would be compared";
  for (const int ranks : {1, 3})
    for (const char* placement : {"auto", "row", "column", "replicated"}) {
      const std::vector<double> scores =
          probabilities_of(text_of("clicks.csv", ranks, placement, ScoreFormat::Csv));
      ASSERT_EQ(scores.size(), expected.size());
      for (size_t i = 0; i < scores.size(); ++i)
        EXPECT_NEAR(scores[i], expected[i], 1e-6) << ranks << " ranks, " << placement << ", sample " << i;
    }
}

// Precision and model are read from the checkpoint.
TEST_F(ScoreTest, FollowsTheOptionsOfTheCheckpoint) {
  RecommendConfig wide = config();
  wide.precision.f64 = true;
  wide.model.interaction = InteractionKind::Cross;
  wide.model.cross_layers = 2;
  wide.model.cross_rank = 3;
  train(wide);
  const std::vector<double> one = probabilities_of(text_of("clicks.csv", 1, "auto", ScoreFormat::Csv));
  const std::vector<double> three = probabilities_of(text_of("clicks.csv", 3, "row", ScoreFormat::Csv, 7));
  ASSERT_EQ(one.size(), three.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], three[i], 1e-13);
}

}  // namespace
}  // namespace trifold
