// The same curve on every mesh.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

struct MeshCase {
  int dp, tp, micro, threads;
};

class EveryMesh : public ::testing::TestWithParam<MeshCase> {};

PretrainConfig with(const PretrainConfig& base, const MeshCase& c) {
  PretrainConfig config = on_mesh(base, c.dp, c.tp);
  config.batch.micro_batch_size = c.micro;
  config.mesh.threads_per_rank = c.threads;
  return config;
}

TEST_P(EveryMesh, GivesTheCurveOfOneRank) {
  for (double dropout : {0.0, 0.2}) {
    for (bool f64 : {false, true}) {
      PretrainConfig base = small_run();
      base.model.hidden_dropout = base.model.attention_dropout = dropout;
      base.precision.f64 = f64;
      const Curve one = train(base);
      const Curve mesh = train(with(base, GetParam()));
      const double tolerance = f64 ? 1e-11 : 1e-5;
      ASSERT_EQ(one.losses.size(), 20U);
      for (size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_LT(relative_error(mesh.losses[i], one.losses[i]), tolerance) << "loss of step " << i + 1;
        EXPECT_LT(relative_error(mesh.grad_norms[i], one.grad_norms[i]), 20 * tolerance)
            << "norm of step " << i + 1;
      }
      EXPECT_LT(one.losses.back(), 0.75 * one.losses.front()) << "nothing was learnt";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, EveryMesh,
                         ::testing::Values(MeshCase{2, 1, 2, 1}, MeshCase{4, 1, 2, 1}, MeshCase{8, 1, 1, 1},
                                           MeshCase{1, 2, 2, 1}, MeshCase{2, 2, 4, 1}, MeshCase{1, 4, 8, 1},
                                           MeshCase{1, 1, 8, 2}, MeshCase{2, 1, 1, 2}),
                         [](const auto& test) {
                           const MeshCase& c = test.param;
                           return "dp" + std::to_string(c.dp) + "tp" + std::to_string(c.tp) + "micro" +
                                  std::to_string(c.micro) + "threads" + std::to_string(c.threads);
                         });

// Threads of a rank split work, never sums.
TEST(Threads, DoNotChangeABit) {
  PretrainConfig config = small_run();
  const Curve one = train(config);
  config.mesh.threads_per_rank = 3;
  const Curve three = train(config);
  EXPECT_EQ(first_difference(std::span<const double>(one.losses), std::span<const double>(three.losses)),
            kSame);
}

// A mask of the loss: the mean is over the tokens that count, wherever they are on the mesh.
class MaskedTokens final : public DataSource {
 public:
  int64_t seq_length() const override { return tokens_.seq_length(); }
  int64_t samples() const override { return tokens_.samples(); }
  void read(Batch& batch, int64_t first) const override {
    tokens_.read(batch, first);
    for (int64_t b = 0; b < batch.samples(); ++b)
      for (int64_t t = 0; t < seq_length(); ++t)
        batch.loss_weight.as<float>()[b * seq_length() + t] = t < (first + b) % 9 ? 1.0F : 0.0F;
  }

 private:
  SyntheticTokens tokens_{16, 7, 11};
};

// Losses of five steps and the validation loss after them.
std::vector<double> masked_losses(const PretrainConfig& config) {
  const MaskedTokens data;
  std::vector<double> losses;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, &data);
    while (trainer.steps_done() < config.batch.train_iters)
      for (const StepReport& step : trainer.advance())
        if (world.rank() == 0) losses.push_back(step.loss);
    const double valid = trainer.evaluate().loss;
    if (world.rank() == 0) losses.push_back(valid);
  });
  return losses;
}

PretrainConfig masked_run() {
  PretrainConfig config = small_run();
  config.precision.f64 = true;
  config.batch.micro_batch_size = 1;  // one sample in nine has no token that counts
  config.batch.train_iters = 5;
  config.eval.eval_iters = 2;
  return config;
}

TEST(LossMask, IsNormalisedByTheTokensOfTheGlobalBatch) {
  const std::vector<double> one = masked_losses(masked_run());
  ASSERT_EQ(one.size(), 6U);
  for (const auto& config : {on_mesh(masked_run(), 4), scheduled(on_mesh(masked_run(), 2, 2, 2), "zb-h1"),
                             scheduled(on_mesh(masked_run(), 1, 1, 2), "zb-v", 2)}) {
    const std::vector<double> mesh = masked_losses(config);
    ASSERT_EQ(mesh.size(), 6U);
    for (size_t i = 0; i < 6; ++i) EXPECT_LT(relative_error(mesh[i], one[i]), 1e-11) << i;
  }
}

// The stages of an asynchronous pipeline count the tokens each for itself.
TEST(LossMask, IsNormalisedInsideAWindowToo) {
  PretrainConfig config = scheduled(masked_run(), "pipedream-2bw");
  config.optimizer.clip_grad = 0;
  config.pipeline.async_window = 5;
  const std::vector<double> two = masked_losses(on_mesh(config, 1, 1, 2));
  const std::vector<double> eight = masked_losses(on_mesh(config, 2, 2, 2));
  ASSERT_EQ(two.size(), 6U);
  for (size_t i = 0; i < 6; ++i) EXPECT_LT(relative_error(eight[i], two[i]), 1e-11) << i;
}

}  // namespace
}  // namespace trifold::test
