// An MLP that rows pass in tiles: the curve of all rows at once, the same bits whatever is recomputed, in every
// schedule, and the memory that a plan says.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/planned_memory.h"
#include "support/run_mesh.h"
#include "support/training.h"

namespace trifold::test {
namespace {

enum class TiledModel { Gpt, Llama, Bert };
constexpr const char* kTiledNames[] = {"Gpt", "Llama", "Bert"};

PretrainConfig tiled_run(TiledModel model, bool f64, int64_t tiles) {
  PretrainConfig config = small_run();
  if (model == TiledModel::Llama) make_llama(config.model, 2);
  if (model == TiledModel::Bert) config.model.model_type = ModelType::Bert;
  config.model.num_layers = 4;
  config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  config.precision.f64 = f64;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(6);
  config.eval.eval_iters = 2;
  config.mesh.tiled_mlp = tiles;
  return config;
}

constexpr RunMesh kTiledMeshes[] = {
    {},
    {.tp = 2},
    {.tp = 2, .sequence_parallel = true},
    {.dp = 2, .cp = 2},
    {.pp = 2, .schedule = "zb-h1"},
    {.tp = 2, .pp = 2, .sequence_parallel = true, .schedule = "zb-v", .chunks = 2},
    {.tp = 2, .cp = 2, .sequence_parallel = true}};
constexpr RecomputeGranularity kTiledRecompute[] = {
    RecomputeGranularity::None, RecomputeGranularity::Selective, RecomputeGranularity::Full};

class TiledRuns : public ::testing::TestWithParam<TiledModel> {};

// Of a weight's gradient only the order of the sum over rows differs. 32 rows are no multiple of 5 tiles.
TEST_P(TiledRuns, GiveTheCurveOfAllRowsAtOnce) {
  for (const bool f64 : {true, false}) {
    const Curve whole = train_and_evaluate(tiled_run(GetParam(), f64, 1));
    const double tolerance = f64 ? 1e-11 : 2e-5;
    for (const RunMesh& mesh : kTiledMeshes) {
      const Curve cut = train_and_evaluate(mesh.of(tiled_run(GetParam(), f64, 5)));
      SCOPED_TRACE(fmt::format("dp {} tp {} pp {} cp {} {}", mesh.dp, mesh.tp, mesh.pp, mesh.cp, f64));
      EXPECT_LT(relative_error(cut.losses, whole.losses), tolerance);
      EXPECT_LT(relative_error(cut.grad_norms, whole.grad_norms), 20 * tolerance);
      EXPECT_LT(relative_error(*cut.valid_loss, *whole.valid_loss), tolerance);
    }
  }
}

TEST_P(TiledRuns, RecomputationAndSchedulesChangeNoBit) {
  for (const bool tensor : {false, true}) {
    RunMesh flat{.tp = tensor ? 2 : 1, .sequence_parallel = tensor};
    const Curve once = train_and_evaluate(flat.of(tiled_run(GetParam(), false, 3)));
    for (const char* schedule : {"1f1b", "zb-h1", "zb-v"})
      for (const RecomputeGranularity recompute : kTiledRecompute) {
        RunMesh cut = flat;
        cut.pp = 2;
        cut.schedule = schedule;
        cut.chunks = cut.schedule == std::string("zb-v") ? 2 : 1;
        PretrainConfig config = cut.of(tiled_run(GetParam(), false, 3));
        config.mesh.recompute_granularity = recompute;
        config.zero.zero_stage = 2;
        const Curve curve = train_and_evaluate(config);
        SCOPED_TRACE(fmt::format("{} {} {}", tensor, schedule, static_cast<int>(recompute)));
        EXPECT_EQ(curve.losses, once.losses);
        EXPECT_EQ(curve.grad_norms, once.grad_norms);
        EXPECT_EQ(curve.valid_loss, once.valid_loss);
      }
  }
}

TEST_P(TiledRuns, HoldWhatAPlanSays) {
  for (const RunMesh& mesh : kTiledMeshes)
    for (const RecomputeGranularity recompute : kTiledRecompute) {
      PretrainConfig config = mesh.of(tiled_run(GetParam(), false, 3));
      config.mesh.recompute_granularity = recompute;
      compare_with_plan(config, [](Trainer& trainer, const MemoryReport& planned) {
        if (trainer.replica().mesh().coord(Axis::Cp) == 0)
          EXPECT_EQ(trainer.memory().predicted_activations, planned.predicted_activations);
        else  // the pooled tokens of BERT are on the first context rank
          EXPECT_LE(trainer.memory().predicted_activations, planned.predicted_activations);
      });
    }
}

INSTANTIATE_TEST_SUITE_P(Models, TiledRuns,
                         ::testing::Values(TiledModel::Gpt, TiledModel::Llama, TiledModel::Bert),
                         [](const auto& test) {
                           return std::string(kTiledNames[static_cast<size_t>(test.param)]);
                         });

TEST(TiledMlp, GoesWithLatentAttention) {
  const auto run = [](int64_t tiles) {
    PretrainConfig config = tiled_run(TiledModel::Gpt, true, tiles);
    make_latent(config.model, 20);
    config.mesh.recompute_granularity = RecomputeGranularity::Full;
    return config;
  };
  const Curve whole = train(run(1));
  for (const RunMesh& mesh :
       {RunMesh{.tp = 2, .sequence_parallel = true, .recompute = RecomputeGranularity::Full},
        {.pp = 2, .cp = 2, .schedule = "zb-h1", .recompute = RecomputeGranularity::Full}}) {
    const PretrainConfig config = mesh.of(run(5));
    EXPECT_LT(relative_error(train(config).losses, whole.losses), 1e-11) << "tp " << mesh.tp;
    compare_with_plan(config, expect_planned_memory);
  }
}

size_t tiled_activations(int64_t layers, int64_t tiles, RecomputeGranularity recompute) {
  PretrainConfig config = tiled_run(TiledModel::Gpt, false, tiles);
  config.model.num_layers = layers;
  config.batch.micro_batch_size = 4;
  config.mesh.recompute_granularity = recompute;
  return plan_of(config).memory[0].predicted_activations;
}

// Per row of width C a layer keeps neither the up projection nor its GELU (4C each, or if GELU is recomputed, 4C), but
// the MLP's input in either case. In scratch, each halving of the tiles halves what exists of them: 4C of the
// projection, of its GELU and of their gradient.
TEST(TiledMlp, KeepsNoInnerActivations) {
  constexpr size_t kRows = 64, kWidth = 32, kHeads = 4;
  const auto kept = [](RecomputeGranularity recompute) {
    return (tiled_activations(10, 4, recompute) - tiled_activations(8, 4, recompute)) / 2;
  };
  EXPECT_EQ(kept(RecomputeGranularity::None), 4 * kRows * (8 * kWidth + 4 + kHeads));
  EXPECT_EQ(kept(RecomputeGranularity::Selective), 4 * kRows * (6 * kWidth + kHeads));
  EXPECT_EQ(kept(RecomputeGranularity::Full), 4 * kRows * kWidth);
}

}  // namespace
}  // namespace trifold::test
