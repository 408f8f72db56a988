// Training with products in 8 bits whose factors have scales of blocks (--fp8-recipe blockwise), as the processor
// emulates it: near bf16, the same on every mesh, and with the same bits however memory is saved and a run is resumed.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// Two layers whose extents are multiples of 128 on each of two ranks.
PretrainConfig in_blocks(int64_t seq_length = 128) {
  PretrainConfig config = small_run();
  config.model.hidden_size = 128;
  config.model.num_attention_heads = 4;
  config.model.kv_channels = 64;
  config.model.ffn_hidden_size = 256;
  config.model.seq_length = config.model.max_position_embeddings.emplace(seq_length);
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 4;
  config.batch.train_iters = 4;
  config.lr.lr_decay_iters = 4;
  config.precision.bf16 = config.precision.fp8 = true;
  config.precision.fp8_recipe = Fp8Recipe::Blockwise;
  return config;
}

PretrainConfig llama_in_blocks() {
  PretrainConfig config = in_blocks();
  make_llama(config.model, 2);
  config.model.ffn_hidden_size = 256;
  return config;
}

PretrainConfig in_bf16(PretrainConfig config) {
  config.precision.fp8 = false;
  config.precision.fp8_recipe = Fp8Recipe::Tensorwise;
  return config;
}

TEST(Fp8Blocks, LearnAsBf16Does) {
  for (PretrainConfig config : {in_blocks(), llama_in_blocks()}) {
    config.batch.train_iters = config.lr.lr_decay_iters.emplace(12);
    const Curve narrow = train(config);
    const Curve wide = train(in_bf16(config));
    EXPECT_NE(narrow.losses, wide.losses);
    EXPECT_LT(narrow.losses.back(), 0.9 * narrow.losses.front());
    EXPECT_LT(relative_error(narrow.losses.back(), wide.losses.back()), 0.02);
  }
}

// A block of a scale lies on one rank, so codes differ only where the bf16 numbers that they represent do.
TEST(Fp8Blocks, TheCurveIsThatOfOneRankOnEveryMesh) {
  constexpr double kOfBf16 = 4e-3;
  for (const PretrainConfig& config : {in_blocks(), llama_in_blocks()}) {
    const Curve alone = train(config);
    EXPECT_EQ(train(on_mesh(config, 1, 1, 2)).losses, alone.losses);
    for (const bool slices : {false, true}) {
      PretrainConfig mesh = on_mesh(config, 1, 2);
      mesh.mesh.sequence_parallel = slices;
      EXPECT_LT(relative_error(train(mesh).losses, alone.losses), kOfBf16) << "slices " << slices;
    }
    EXPECT_LT(relative_error(train(on_mesh(config, 2)).losses, alone.losses), kOfBf16);
  }
  const PretrainConfig longer = in_blocks(512);
  EXPECT_LT(relative_error(train(on_mesh(longer, 1, 1, 1, 2)).losses, train(longer).losses), kOfBf16);
}

// Rounded sums are the same sums, however rows are cut; the first step's differ by their order alone.
TEST(Fp8Blocks, GradientsAreTheSameWithSlicedRowsAndTiles) {
  PretrainConfig config = in_blocks(256);
  config.batch.train_iters = 1;
  for (const bool gated : {false, true}) {
    config.model.swiglu = gated;
    PretrainConfig mesh = on_mesh(config, 1, 2);
    const Curve whole = train(mesh);
    mesh.mesh.sequence_parallel = true;
    EXPECT_LT(relative_error(train(mesh).grad_norms, whole.grad_norms), 1e-8) << "gated " << gated;
    mesh.mesh.tiled_mlp = 2;
    EXPECT_LT(relative_error(train(mesh).grad_norms, whole.grad_norms), 1e-8) << "gated " << gated;
  }
}

// Two samples in a micro-batch have the blocks of two micro-batches of one, and nearly their sums.
TEST(Fp8Blocks, BlocksDoNotMixSamples) {
  PretrainConfig config = in_blocks();
  const Curve one = train(config);
  config.batch.micro_batch_size = 2;
  EXPECT_LT(relative_error(train(config).losses, one.losses), 4e-3);
}

TEST(Fp8Blocks, RecomputationAndSplitBackwardRepeatTheBits) {
  for (PretrainConfig config : {in_blocks(), llama_in_blocks()}) {
    config.model.hidden_dropout = 0.1;
    const Curve whole = train(config);
    for (const auto granularity : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
      config.mesh.recompute_granularity = granularity;
      const Curve repeated = train(config);
      EXPECT_EQ(repeated.losses, whole.losses);
      EXPECT_EQ(repeated.grad_norms, whole.grad_norms);
    }
    config.mesh.recompute_granularity = RecomputeGranularity::None;
    const PretrainConfig two = on_mesh(config, 1, 1, 2);
    EXPECT_EQ(train(scheduled(two, "zb-h1")).losses, whole.losses);
  }
}

TEST(Fp8Blocks, OtherArrangementsOfABlockTrain) {
  std::vector<PretrainConfig> configs(3, in_blocks());
  configs[0].model.parallel_residual = ParallelResidual::OneNorm;
  configs[1].model.parallel_residual = ParallelResidual::TwoNorms;
  configs[2].mesh.tiled_mlp = 1;
  configs[2].model.squared_relu = true;
  for (const PretrainConfig& config : configs) {
    const Curve narrow = train(config);
    const Curve wide = train(in_bf16(config));
    EXPECT_NE(narrow.losses, wide.losses);
    EXPECT_LT(relative_error(narrow.losses.back(), wide.losses.back()), 0.02);
  }
}

TEST(Fp8Blocks, ResumeIsBitwiseExact) {
  const auto folder = std::filesystem::temp_directory_path() / "trifold_fp8_blocks";
  std::filesystem::remove_all(folder);
  const PretrainConfig config = llama_in_blocks();
  const Curve whole = train(config);
  train(config, 2, "", folder.string());
  const Curve second = train(config, 0, folder.string());
  EXPECT_EQ(second.losses, std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trifold::test
