#include "layout/device_workspace.h"

#include <gtest/gtest.h>

#include "config/commands/validate.h"
#include "support/plans.h"
#include "support/training.h"

namespace trifold::test {
namespace {

constexpr size_t kProducts = size_t{32} << 20;

PretrainConfig gpt2_124m() {
  PretrainConfig config = small_run();
  config.model.num_layers = 12;
  config.model.hidden_size = 768;
  config.model.num_attention_heads = 12;
  config.model.ffn_hidden_size = 3072;
  config.model.seq_length = config.model.max_position_embeddings.emplace(1024);
  config.batch.micro_batch_size = 8;
  config.mesh.device = ComputeDevice::Cuda;
  config.precision.bf16 = true;
  return config;
}

TEST(DeviceWorkspace, AttentionTakesANumberForEveryPair) {
  // 8 samples of 12 heads: 16 bits for each of 1024 x 1024 pairs, f32 for each row, two pieces of 256.
  EXPECT_EQ(device_workspace(run_spec(gpt2_124m())), 96UL * 1024 * 1024 * 2 + 96UL * 1024 * 4 + 512);
  PretrainConfig half = gpt2_124m();
  half.mesh.tensor_model_parallel_size = 2;
  EXPECT_EQ(device_workspace(run_spec(half)), 48UL * 1024 * 1024 * 2 + 48UL * 1024 * 4 + 512);
  PretrainConfig any_order = gpt2_124m();
  any_order.batch.micro_batch_size = 16;
  any_order.mesh.no_deterministic_mode = true;  // gradients of queries in f32 instead, 64 for each row
  EXPECT_EQ(device_workspace(run_spec(any_order)), 192UL * 1024 * (64 + 65) * 4 + 512);
  // Samples of a BERT have lengths, which take another piece.
  PretrainConfig bert = gpt2_124m();
  bert.model.model_type = ModelType::Bert;
  EXPECT_EQ(device_workspace(run_spec(bert)), device_workspace(run_spec(gpt2_124m())) + 256);
}

// 350M at 65 536 positions: one head of one sample at a time, 8 GiB instead of 128.
TEST(DeviceWorkspace, LongSequencesTakeTheirHeadsOneAfterTheOther) {
  PretrainConfig config = gpt2_124m();
  config.model.hidden_size = 1024;
  config.model.num_attention_heads = 16;
  config.model.seq_length = config.model.max_position_embeddings.emplace(65536);
  config.batch.micro_batch_size = 1;
  EXPECT_EQ(device_workspace(run_spec(config)), 65536UL * 65536 * 2 + 65536UL * 4 + 512);
  // Of 32 samples of 12 heads with 2048 positions, 12 at a time would be enough: three groups of 11.
  config = gpt2_124m();
  config.model.seq_length = config.model.max_position_embeddings.emplace(2048);
  config.batch.micro_batch_size = 32;
  EXPECT_EQ(device_workspace(run_spec(config)), 132UL * 2048 * 2048 * 2 + 132UL * 2048 * 4 + 512);
}

// The most that cuDNN 9.19 says its first engine takes on an H100, H200 or B200 for a deterministic backward
// (cuda.attention_engines asks it), and a sum for each row beside it. Llama 8B's heads are four groups.
TEST(DeviceWorkspace, IsEnoughForTheEnginesOfDescribedCards) {
  struct Model {
    const char* name;
    int64_t batch, seq, heads, groups, width, tensor;
    size_t engine;  // bytes, of one group
    int64_t parts = 1;
  };
  for (const Model& model : {Model{"GPT-2 1558M", 16, 1024, 25, 25, 64, 1, 838'861'056},
                             Model{"Llama 8B", 1, 8192, 32, 8, 128, 1, 1'107'296'512, 4},
                             Model{"Llama 70B on 8 tensor ranks", 1, 8192, 64, 8, 128, 8, 1'107'296'512}}) {
    PretrainConfig config = gpt2_124m();
    config.model.hidden_size = model.heads * model.width;
    config.model.ffn_hidden_size = 4 * model.heads * model.width;
    config.model.num_attention_heads = model.heads;
    config.model.group_query_attention = model.groups != model.heads;
    config.model.num_query_groups = model.groups;
    config.model.seq_length = config.model.max_position_embeddings.emplace(model.seq);
    config.batch.micro_batch_size = model.batch;
    config.mesh.tensor_model_parallel_size = model.tensor;
    const auto sums =
        static_cast<size_t>(model.batch * model.heads / model.tensor / model.parts * model.seq) *
        sizeof(float);
    EXPECT_GE(device_workspace(run_spec(config)), model.engine + sums) << model.name;
    EXPECT_LE(device_workspace(run_spec(config)), model.engine + sums + 1024) << model.name;
  }
}

// Ranks that exchange heads have all positions of some: here of 3 heads, which share a copy of a key head.
TEST(DeviceWorkspace, ContextRanksHaveSomeHeadsAndCopiesOfKeyHeads) {
  PretrainConfig config = gpt2_124m();
  config.mesh.context_parallel_size = 4;
  config.mesh.cp_comm_type = ContextExchange::AllToAll;
  EXPECT_EQ(device_workspace(run_spec(config)), 24UL * 1024 * 1024 * 2 + 24UL * 1024 * 4 + 512);
  config.model.group_query_attention = true;
  config.model.num_query_groups = 2;
  EXPECT_EQ(device_workspace(run_spec(config)), 24UL * 1024 * (1024 + 2 * 64) * 2 + 24UL * 1024 * 4 + 512);
  config.mesh.cp_comm_type = ContextExchange::AllGather;
  // One of two key heads at a time, with 6 queries: at most 128 of them see 896 keys.
  const size_t results = 8UL * 6 * 128 * 4 + 8UL * 128 * 6 * 64 * 2 + 8UL * 896 * 2 * 64 * 2;
  const size_t engine = 8UL * 6 * 128 * 896 * 2 + 8UL * 6 * 2 * 896 * 64 * 2 + 8UL * 6 * 128 * 4 + 512;
  EXPECT_EQ(device_workspace(run_spec(config)), std::max(kProducts, results + engine));
  config.model.attention_dropout = 0.1;  // plain kernels
  EXPECT_EQ(device_workspace(run_spec(config)), kProducts);
}

TEST(DeviceWorkspace, CountsTheWorkspaceOfCublasLt) {
  PretrainConfig config = gpt2_124m();
  config.precision.bf16 = false;  // attention in f32 is the plain kernels'
  EXPECT_EQ(device_workspace(run_spec(config)), kProducts);
  config.mesh.device = ComputeDevice::Cpu;
  EXPECT_EQ(device_workspace(run_spec(config)), 0UL);
}

TEST(DeviceWorkspace, NarrowFactorsStandBesideTheProduct) {
  PretrainConfig config = gpt2_124m();
  config.model.seq_length = 128;  // whose attention takes less
  config.batch.micro_batch_size = 64;
  config.precision.fp8 = true;
  // The inner layer's: gradients [8192, 3072] and activations [8192, 768], with a scale and its scratch each.
  EXPECT_EQ(device_workspace(run_spec(config)), kProducts + 8192UL * (3072 + 768) + 2 * (256 + 4096));
  // With scales of blocks the same factors are turned, with a scale and a sum for 128 rows of each column.
  config.precision.fp8_recipe = Fp8Recipe::Blockwise;
  EXPECT_EQ(device_workspace(run_spec(config)), kProducts + (8192UL + 2 * 4 * 64) * (3072 + 768));
}

// A plan counts it on every rank.
TEST(DeviceWorkspace, IsPartOfAPlansMemory) {
  PlanConfig config;
  config.run = on_mesh(small_run(), 1, 1, 2);
  config.run.pipeline.schedule = Schedule::OneFOneB;
  config.run.mesh.memory_limit = 0.03;  // GiB
  const PlanReport on_host = report_of(resolve(config));
  config.run.mesh.device = ComputeDevice::Cuda;
  EXPECT_THROW(report_of(resolve(config)), Error);
  config.run.mesh.memory_limit.reset();
  const PlanReport on_device = report_of(resolve(config));
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(on_host.memory[rank].workspace, 0UL);
    EXPECT_EQ(on_device.memory[rank].predicted_total(), on_host.memory[rank].predicted_total() + kProducts);
  }
}

}  // namespace
}  // namespace trifold::test
