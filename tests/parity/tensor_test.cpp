// The same curve however rows, heads and vocabulary are sharded over the tensor axis, and the same bits with any
// recomputation.
#include <gtest/gtest.h>

#include <limits>

#include "support/compare.h"
#include "support/training.h"
#include "train/evaluation.h"

namespace trifold::test {
namespace {

PretrainConfig short_run(double dropout, bool f64) {
  PretrainConfig config = small_run();
  config.model.hidden_dropout = config.model.attention_dropout = dropout;
  config.precision.f64 = f64;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(8);
  return config;
}

struct TensorCase {
  int tp, dp;
  bool sequence_parallel;
};

class TensorMesh : public ::testing::TestWithParam<TensorCase> {};

void expect_curve_of_one_rank(PretrainConfig config, const TensorCase& c,
                              RecomputeGranularity recompute = RecomputeGranularity::None) {
  const Curve one = train(config);
  config = on_mesh(config, c.dp, c.tp);
  config.mesh.sequence_parallel = c.sequence_parallel;
  config.mesh.recompute_granularity = recompute;
  const Curve mesh = train(config);
  const double tolerance = config.precision.f64 ? 1e-11 : 2e-5;
  ASSERT_EQ(mesh.losses.size(), 8U);
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_LT(relative_error(mesh.losses[i], one.losses[i]), tolerance) << "loss of step " << i + 1;
    EXPECT_LT(relative_error(mesh.grad_norms[i], one.grad_norms[i]), 20 * tolerance)
        << "norm of step " << i + 1;
  }
}

TEST_P(TensorMesh, GivesTheCurveOfOneRank) {
  for (const double dropout : {0.0, 0.2})
    for (const bool f64 : {false, true}) expect_curve_of_one_rank(short_run(dropout, f64), GetParam());
}

TEST_P(TensorMesh, GivesTheCurveOfOneRankWithSquaredRelu) {
  for (const bool f64 : {false, true}) {
    PretrainConfig config = short_run(0.2, f64);
    config.model.squared_relu = true;
    expect_curve_of_one_rank(config, GetParam(), RecomputeGranularity::Full);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, TensorMesh,
                         ::testing::Values(TensorCase{2, 1, false}, TensorCase{2, 1, true},
                                           TensorCase{4, 1, false}, TensorCase{4, 1, true},
                                           TensorCase{2, 2, true}),
                         [](const auto& test) {
                           const TensorCase& c = test.param;
                           return "tp" + std::to_string(c.tp) + "dp" + std::to_string(c.dp) +
                                  (c.sequence_parallel ? "sequence" : "");
                         });

// The last of an evaluation's batches is cut like the others, over tensor and context ranks, though a single
// sample could not be.
TEST(TensorMesh, EvaluatesSamplesThatDoNotFillTheLastBatch) {
  PretrainConfig config = short_run(0.0, true);
  config.model.seq_length = config.model.max_position_embeddings.emplace(12);
  config.model.num_attention_heads = 8;
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  const auto loss_on = [&](const MeshConfig& mesh, int64_t micro_batch) {
    LossSums all;
    run_on_ranks(mesh, [&](Communicator& world) {
      Replica replica(world, mesh, config.model, DType::F64, 1);
      const std::optional<LossSums> sums = evaluate_model(replica, *data, micro_batch, 5);
      if (world.rank() == 0) all = sums.value();
    });
    return all;
  };
  const LossSums one = loss_on(config.mesh, 1);
  EXPECT_EQ(one.weight, 5 * 12);
  for (const auto& [tp, cp] : {std::pair{8, 1}, {4, 2}}) {
    MeshConfig mesh = on_mesh(config, 1, tp, 1, cp).mesh;
    mesh.sequence_parallel = true;
    const LossSums cut = loss_on(mesh, 2);
    EXPECT_EQ(cut.weight, one.weight) << "tp " << tp;
    EXPECT_LT(relative_error(cut.loss, one.loss), 1e-12) << "tp " << tp;
  }
}

// Padding that fills whole ranks is masked out of the loss like any other.
TEST(TensorMesh, RanksWithoutRealTokensChangeNothing) {
  PretrainConfig config = short_run(0.0, true);
  config.model.vocab_size = 30;  // rows 30 to 63 are padding: ranks 2 and 3 have no token at all
  const Curve one = train(config);
  config.mesh.sequence_parallel = true;
  const Curve four = train(on_mesh(config, 1, 4));
  EXPECT_LT(relative_error(four.losses, one.losses), 1e-11);
}

TEST(TensorMesh, RefusesRowsThatCannotBeCut) {
  PretrainConfig config = short_run(0.0, false);
  config.model.seq_length = 15;
  config.batch.micro_batch_size = 1;
  config.mesh.sequence_parallel = true;
  try {
    train(on_mesh(config, 1, 2));
    FAIL() << "15 rows were cut over 2 ranks";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("multiple of 2"), std::string::npos) << error.what();
  }
}

// ---- recomputation ----

PretrainConfig layers(PretrainConfig config, int64_t count, RecomputeGranularity granularity) {
  config.model.num_layers = count;
  config.mesh.recompute_granularity = granularity;
  return config;
}

size_t activations(const PretrainConfig& config) {
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  size_t bytes = 0;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    const Trainer trainer(world, config, data, nullptr);
    if (world.rank() == 0) bytes = trainer.memory().predicted_activations;
  });
  return bytes;
}

// f32 numbers that a layer keeps of one row, on one rank. Per row of width C: the two norms' outputs (2C) and
// statistics (4), q, k, v (3C), the attention's output (C) and log-sums (one a head), the up projection and
// its GELU (4C each), and the two sums on the residual stream (2C).
size_t numbers_per_row(RecomputeGranularity granularity, size_t width, size_t heads) {
  switch (granularity) {
    case RecomputeGranularity::None:
      return 16 * width + 4 + heads;
    case RecomputeGranularity::Selective:
      return 10 * width + heads;
    case RecomputeGranularity::Full:
      return width;
  }
  return 0;
}

class Recomputation : public ::testing::TestWithParam<bool> {
 protected:
  static PretrainConfig base() {
    PretrainConfig config = short_run(0.2, false);
    if (GetParam()) config = on_mesh(config, 1, 2);
    config.mesh.sequence_parallel = GetParam();
    return config;
  }
};

constexpr RecomputeGranularity kGranularities[] = {
    RecomputeGranularity::None, RecomputeGranularity::Selective, RecomputeGranularity::Full};

TEST_P(Recomputation, GivesTheSameBits) {
  const Curve none = train(base());
  for (const RecomputeGranularity granularity : kGranularities) {
    const Curve other = train(layers(base(), 2, granularity));
    EXPECT_EQ(other.losses, none.losses);
    EXPECT_EQ(other.grad_norms, none.grad_norms);
  }
}

// A layer more costs exactly what it keeps; sequence parallelism cuts all of it.
TEST_P(Recomputation, KeepsTheDocumentedTensors) {
  PretrainConfig config = base();
  config.batch.micro_batch_size = 4;  // rows enough for every tensor to fill whole cache lines
  const auto rows = static_cast<size_t>(config.batch.micro_batch_size * config.model.seq_length);
  const auto ranks = static_cast<size_t>(config.mesh.tensor_model_parallel_size);
  size_t before = std::numeric_limits<size_t>::max();
  for (const RecomputeGranularity granularity : kGranularities) {
    const size_t few = activations(layers(config, 8, granularity));
    const size_t more = activations(layers(config, 10, granularity));
    EXPECT_EQ((more - few) / 2, 4 * rows * numbers_per_row(granularity, 32, 4) / ranks);
    EXPECT_LT(few, before);
    before = few;
  }
}

// Row slices travel between stages, and what is computed again serves an I and a much later W as well.
TEST(TensorMesh, StagesAndRecomputationChangeNoBitOfIt) {
  PretrainConfig config = on_mesh(short_run(0.2, false), 1, 2);
  config.model.num_layers = 4;
  config.batch.train_iters = 3;
  config.mesh.sequence_parallel = true;
  const Curve one = train(config);
  config = on_mesh(config, 1, 2, 2);
  for (const std::string schedule : {"1f1b", "zb-h1", "zb-v"}) {
    for (const RecomputeGranularity granularity : kGranularities) {
      const int chunks = schedule == "zb-v" ? 2 : 1;
      const Curve cut = train(layers(scheduled(config, schedule, chunks), 4, granularity));
      EXPECT_EQ(cut.losses, one.losses) << schedule << " " << static_cast<int>(granularity);
      EXPECT_EQ(cut.grad_norms, one.grad_norms) << schedule << " " << static_cast<int>(granularity);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, Recomputation, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "tp2sequence" : "OneRank"; });

}  // namespace
}  // namespace trifold::test
