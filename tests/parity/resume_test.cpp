// Stop anywhere and resume: the same losses bit by bit; on another mesh, the same within rounding.
#include <gtest/gtest.h>

#include "parity/whole.h"
#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

class Resume : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / ("trifold_resume_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

void expect_second_half_bitwise(const Curve& whole, const Curve& second) {
  ASSERT_EQ(second.losses.size(), 10U);
  const auto half = [](const std::vector<double>& v) { return std::span<const double>(v).subspan(10); };
  EXPECT_EQ(first_difference(half(whole.losses), std::span<const double>(second.losses)), kSame);
  EXPECT_EQ(first_difference(half(whole.grad_norms), std::span<const double>(second.grad_norms)), kSame);
}

// The scale falls with every further overflow then.
TEST_F(Resume, AfterMoreOverflowsThanTheHysteresis) {
  PretrainConfig config = small_run();
  config.precision.f64 = false;
  config.precision.fp16 = true;
  config.precision.initial_loss_scale = 1e12;
  const Curve whole = train(config);
  train(config, 4, "", folder_.string());
  const Curve second = train(config, 0, folder_.string());
  ASSERT_GT(whole.losses.size(), second.losses.size());
  EXPECT_EQ(second.losses.back(), whole.losses.back());
}

TEST_F(Resume, IsBitwiseExact) {
  for (int dp : {1, 2}) {
    PretrainConfig config = on_mesh(small_run(), dp);
    config.model.hidden_dropout = config.model.attention_dropout = 0.1;
    const std::string save = (folder_ / std::to_string(dp)).string();
    const Curve whole = train(config);
    train(config, 10, "", save);
    expect_second_half_bitwise(whole, train(config, 0, save));
  }
}

TEST_F(Resume, IsBitwiseExactWithTheMomentumOfLars) {
  PretrainConfig config = on_mesh(small_run(), 2);
  config.optimizer.optimizer = OptimizerKind::Lars;
  config.lr.lr = config.lr.min_lr = 30;  // times an eta of 0.001
  config.zero.zero_stage = 1;
  const Curve whole = train(config);
  EXPECT_LT(whole.losses.back(), whole.losses.front());
  train(config, 10, "", folder_.string());
  expect_second_half_bitwise(whole, train(config, 0, folder_.string()));
}

TEST_F(Resume, OnAnotherMeshAgreesWithinRounding) {
  PretrainConfig config = small_run();
  config.precision.f64 = true;
  const Curve whole = train(config);
  train(on_mesh(config, 2), 10, "", folder_.string());
  for (const auto& mesh : {on_mesh(config, 1), on_mesh(config, 4)}) {
    const Curve second = train(mesh, 0, folder_.string());
    ASSERT_EQ(second.losses.size(), 10U);
    for (size_t i = 0; i < 10; ++i) EXPECT_LT(relative_error(second.losses[i], whole.losses[i + 10]), 1e-11);
  }
}

// The weights of a model with rope know no length: stretched angles take them to longer sequences.
TEST_F(Resume, GoesOnWithLongerSequencesAndStretchedAngles) {
  PretrainConfig config = small_run();
  make_llama(config.model, 2);
  const double trained = train(config, 0, "", folder_.string()).losses.back();
  config.model.seq_length = config.model.max_position_embeddings.emplace(32);
  config.model.rope_type = RopeType::Yarn;
  config.model.rotary_scaling_factor = 2;
  config.model.original_max_position_embeddings = 16;
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer longer(world, config, *data, nullptr);
    longer.load(folder_.string(), LoadPart::Weights);
    EXPECT_NEAR(longer.step().loss, trained, 0.2 * trained);
    Trainer same_run(world, config, *data, nullptr);
    EXPECT_THROW(same_run.load(folder_.string()), Error) << "it is another model";
  });
}

// ---- meshes with pipelines ----

// 7 layers with a tied head and dropout; heads, rows and vocabulary can be cut in 2.
PretrainConfig deep_run(bool f64) {
  PretrainConfig config = small_run();
  config.model.num_layers = 7;
  config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  config.batch.micro_batch_size = 1;
  config.precision.f64 = f64;
  return config;
}

std::vector<PretrainConfig> pipelines(const PretrainConfig& base, int dp, int tp) {
  PretrainConfig cut = base;
  cut.mesh.sequence_parallel = tp > 1;
  return {on_mesh(cut, dp, tp, 1),
          scheduled(on_mesh(cut, dp, tp, 2), "1f1b"),
          scheduled(on_mesh(cut, dp, tp, 4), "zb-h1"),
          scheduled(on_mesh(cut, dp, tp, 2), "zb-v", 2),
          scheduled(on_mesh(cut, dp, tp, 3), "interleaved", 3),
          scheduled(on_mesh(cut, dp, tp, 3), "auto")};
}

// Saved on any of them, continued on any other: the bits of the run that was not stopped.
TEST_F(Resume, OnAnotherPipelineIsBitwiseExact) {
  // Each of these ranks continues with another distance between the pipelines, or, in whole, with all of them.
  size_t distance = 0;
  for (const auto& [dp, tp] : {std::pair(1, 1), {2, 1}, {1, 2}}) {
    const std::vector<PretrainConfig> meshes = pipelines(deep_run(false), dp, tp);
    const Curve whole = train(meshes[0]);
    for (size_t from = 0; from < meshes.size(); ++from) {
      const std::string save = (folder_ / fmt::format("{}_{}_{}", dp, tp, from)).string();
      train(meshes[from], 10, "", save);
      for (const size_t to : {from, (from + 1) % meshes.size(), (from + 3) % meshes.size()}) {
        if (!kWhole && to != (from + distance) % meshes.size()) continue;
        SCOPED_TRACE(fmt::format("dp {} tp {}, from mesh {} to {}", dp, tp, from, to));
        expect_second_half_bitwise(whole, train(meshes[to], 0, save));
      }
    }
    distance = distance == 0 ? 1 : 3;
  }
}

TEST_F(Resume, FromAnyMeshOnAnyOtherAgreesWithinRounding) {
  const PretrainConfig base = deep_run(true);
  const Curve whole = train(base);
  PretrainConfig wide = on_mesh(base, 2, 2, 2);
  wide.mesh.sequence_parallel = true;
  const std::vector<PretrainConfig> meshes{base, wide, on_mesh(base, 2, 1, 4), on_mesh(base, 1, 4, 2)};
  for (size_t from = 0; from < meshes.size(); ++from) {
    const std::string save = (folder_ / std::to_string(from)).string();
    train(meshes[from], 10, "", save);
    const Curve second = train(meshes[(from + 1) % meshes.size()], 0, save);
    ASSERT_EQ(second.losses.size(), 10U);
    for (size_t i = 0; i < 10; ++i) EXPECT_LT(relative_error(second.losses[i], whole.losses[i + 10]), 1e-11);
  }
}

// The last stage's copy of the tied weight is that of the first stage as soon as it is loaded.
TEST_F(Resume, LoadsBothCopiesOfTiedWeights) {
  const PretrainConfig base = deep_run(false);
  train(base, 3, "", folder_.string());
  PretrainConfig cut = on_mesh(base, 1, 2, 4);
  cut.seed = base.seed + 1;
  const SyntheticTokens data(base.model.seq_length, 7, 11);
  std::vector<std::vector<float>> copies(8);
  run_on_ranks(cut.mesh, [&](Communicator& world) {
    Trainer trainer(world, cut, data, &data);
    trainer.load(folder_.string());
    const Replica& replica = trainer.replica();
    const ParamList& params = replica.layout().params();
    for (int i = 0; i < params.size(); ++i) {
      if (!params[{i}].tied_to) continue;
      for (const ParamId id : {ParamId{i}, *params[{i}].tied_to}) {
        if (!params.stored(id)) continue;
        const Tensor weight = replica.weights().weight(id);
        copies[static_cast<size_t>(world.rank())].assign(weight.as<float>(),
                                                         weight.as<float>() + weight.elements());
      }
    }
  });
  for (size_t tp : {0U, 1U}) {
    EXPECT_EQ(copies[tp].size(), 32U * 32U) << "rank " << tp;
    EXPECT_EQ(copies[tp], copies[6 + tp]);
    EXPECT_TRUE(copies[2 + tp].empty() && copies[4 + tp].empty());
  }
  EXPECT_NE(copies[0], copies[1]);
}

// There the pipeline is empty and has one version of the weights.
TEST_F(Resume, OfAnAsynchronousRunIsExactAtTheEndsOfWindows) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    PretrainConfig config = scheduled(on_mesh(deep_run(false), 2, 1, 4), schedule);
    config.optimizer.clip_grad = 0;
    config.pipeline.async_window = 5;
    const std::string save = (folder_ / schedule).string();
    const Curve whole = train(config);
    train(config, 10, "", save);
    expect_second_half_bitwise(whole, train(config, 0, save));
  }
}

TEST_F(Resume, RefusesAnotherModelFieldByField) {
  PretrainConfig config = small_run();
  train(config, 1, "", folder_.string());
  config.model.num_layers = 3;
  config.model.ffn_hidden_size = 64;
  try {
    train(config, 2, folder_.string());
    FAIL() << "a checkpoint of another model was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    const std::string text = error.what();
    EXPECT_NE(text.find("num_layers"), std::string::npos) << text;
    EXPECT_NE(text.find("ffn_hidden_size"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trifold::test
