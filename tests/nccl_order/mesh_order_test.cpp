// The order of NCCL's calls on meshes of up to 8 ranks with every schedule and mode: no two ranks of a communicator
// contradict each other, nothing can deadlock, and the losses are those of thread ranks on the processor.
#include <unistd.h>

#include <filesystem>

#include "fake_device/runs.h"
#include "nccl_order/over_nccl.h"
#include "parity/matrix.h"
#include "support/expert_runs.h"

namespace trifold::test {
namespace {

constexpr RecomputeGranularity kNone = RecomputeGranularity::None;
constexpr RecomputeGranularity kSelective = RecomputeGranularity::Selective;
constexpr RecomputeGranularity kFull = RecomputeGranularity::Full;
constexpr MatrixModel kTied{7, 0.2, false};
constexpr MatrixModel kUntied{7, 0.2, false, false};
constexpr MatrixModel kDeep{14, 0.0, false};

int ranks_of(const MatrixMesh& mesh) { return mesh.pp * mesh.dp * mesh.tp * mesh.cp; }

// Training and an evaluation.
void check_orders(std::vector<MatrixCase> cases) {
  Matrix matrix(ComputeDevice::Cuda);
  for (MatrixCase& c : cases) {
    SCOPED_TRACE(name_of(c));
    c.steps = 4;
    matrix.check(c);
    expect_ordered(ranks_of(c.mesh));
  }
}

TEST(MeshOrder, DataAndTensorRanksInEveryStageOfZero) {
  check_orders({
      {{1, 8, 1}, "1f1b", 1, 2, kTied, kNone, 0},
      {{1, 8, 1}, "1f1b", 1, 2, kTied, kNone, 1},
      {{1, 4, 2, true}, "1f1b", 1, 3, kTied, kNone, 2},
      {{1, 4, 2}, "1f1b", 1, 2, kTied, kSelective, 3},
      {{1, 2, 4, true}, "1f1b", 1, 2, kUntied, kFull, 3},
      {{1, 1, 8, true}, "1f1b", 1, 2, kTied, kSelective},
      {{1, 4, 2}, "interleaved", 2, 3, kTied, kNone, 1},
  });
}

TEST(MeshOrder, EverySchedule) {
  check_orders({
      {{8, 1, 1}, "gpipe", 1, 8, kTied},
      {{8, 1, 1}, "1f1b", 1, 17, kTied},
      {{8, 1, 1}, "1f1b", 1, 3, kUntied},
      {{8, 1, 1}, "interleaved", 2, 8, kDeep},
      {{8, 1, 1}, "zb-h1", 1, 8, kTied, kSelective},
      {{8, 1, 1}, "zb-h2", 1, 16, kTied},
      {{8, 1, 1}, "zb-v", 2, 8, kDeep},
      {{8, 1, 1}, "dualpipe-v", 2, 16, kDeep},
      {{4, 1, 1}, "auto", 2, 8, kTied, kFull},
      {{3, 2, 1}, "interleaved", 3, 4, kTied},
  });
}

TEST(MeshOrder, PipelinesOfDataAndTensorRanks) {
  check_orders({
      {{2, 2, 2, true}, "gpipe", 1, 4, kTied, kNone, 1},
      {{2, 2, 2, true}, "1f1b", 1, 4, kTied, kFull, 2},
      {{2, 2, 2}, "interleaved", 2, 4, kTied, kSelective, 3},
      {{2, 2, 2, true}, "zb-h1", 1, 4, kUntied, kNone, 3},
      {{2, 4, 1}, "zb-h2", 1, 4, kTied, kNone, 1},
      {{2, 2, 2, true}, "zb-v", 2, 4, kTied, kNone, 2},
      {{4, 1, 2, true}, "dualpipe-v", 2, 8, kTied, kNone, 1},
      {{4, 2, 1}, "auto", 1, 8, kTied, kNone, 3},
      {{4, 2, 1}, "1f1b", 1, 8, kTied, kNone, 3},
  });
}

TEST(MeshOrder, HeadInParts) {
  const MatrixModel parts{6, 0.0, false, true, 0, false, 0, 16};
  check_orders({
      {{4, 2, 1}, "1f1b", 1, 8, parts, kNone, 1},
      {{4, 1, 2, true}, "zb-v", 2, 8, parts},
      {{8, 1, 1}, "interleaved", 2, 8, parts},
  });
}

TEST(MeshOrder, ContextRanks) {
  constexpr ContextExchange kHeads = ContextExchange::AllToAll, kRing = ContextExchange::Ring;
  const MatrixModel llama{7, 0.2, false, false, 4};
  check_orders({
      {{1, 2, 1, false, 4}, "1f1b", 1, 2, kTied, kFull, 3},
      {{2, 1, 2, true, 2}, "interleaved", 2, 4, llama, kSelective},
      {{2, 1, 2, true, 2, kHeads}, "zb-h1", 1, 4, llama},
      {{1, 2, 1, false, 4, kHeads}, "1f1b", 1, 2, kTied, kNone, 2},
      {{2, 1, 2, true, 2, kRing}, "1f1b", 1, 4, llama, kSelective},
      {{2, 1, 1, false, 4, kRing}, "zb-v", 2, 4, kTied},
      {{1, 2, 2, true, 2, kRing}, "1f1b", 1, 2, kTied, kFull, 3},
  });
}

TEST(MeshOrder, Experts) {
  MatrixModel experts{7, 0.0, false, false, 2};
  experts.experts = 8;
  constexpr ContextExchange kGather = ContextExchange::AllGather;
  const auto over = [](int pp, int dp, int tp, bool sequence, int cp, ContextExchange exchange, int ep,
                       int etp = 1, TokenDispatcher dispatch = TokenDispatcher::AllToAll) {
    return MatrixMesh{pp, dp, tp, sequence, cp, exchange, ep, etp, dispatch};
  };
  check_orders({
      {over(1, 8, 1, false, 1, kGather, 8), "1f1b", 1, 2, experts, kSelective, 1},
      {over(1, 8, 1, false, 1, kGather, 4, 2), "1f1b", 1, 2, experts, kNone, 3},
      {over(2, 4, 1, false, 1, kGather, 4), "1f1b", 1, 4, experts, kFull, 2},
      {over(2, 2, 2, true, 1, kGather, 4), "zb-h1", 1, 4, experts, kSelective, 1},
      {over(2, 1, 2, true, 2, ContextExchange::Ring, 2, 2), "interleaved", 2, 4, experts, kSelective, 1},
      {over(4, 2, 1, false, 1, kGather, 2), "dualpipe-v", 2, 8, experts, kNone, 1},
      {over(4, 1, 2, true, 1, kGather, 1, 2), "zb-v", 2, 8, experts},
  });
}

TEST(MeshOrder, Bert) {
  const MatrixModel bert{.dropout = 0.2, .bert = true};
  check_orders({
      {{2, 2, 2, true}, "1f1b", 1, 4, bert, kNone, 1},
      {{2, 1, 1, false, 4}, "zb-h1", 1, 4, bert, kSelective},
  });
}

// Compares a run with that of thread ranks on the processor, which has the same bits.
void expect_same_run(PretrainConfig config) {
  config.batch.train_iters = 3;
  config.eval.eval_iters = 2;
  const Curve host = train_and_evaluate(config);
  const Curve device = train_and_evaluate(on_device(config));
  expect_ordered(config.mesh.ranks);
  expect_same_bits(device, host);
}

PretrainConfig eight_layers() {
  PretrainConfig config = short_run();
  config.model.num_layers = 8;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 16;
  config.zero.zero_min_unit_params = 4000;
  return config;
}

TEST(ModeOrder, AsynchronousPipelines) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    SCOPED_TRACE(schedule);
    PretrainConfig config = scheduled(on_mesh(eight_layers(), 2, 1, 4), schedule);
    config.pipeline.async_window = 3;
    config.optimizer.clip_grad = 0;
    config.model.untie_embeddings_and_output_weights = true;
    expect_same_run(config);
  }
}

TEST(ModeOrder, SixteenBitsAndGroupsThatShard) {
  PretrainConfig config = on_mesh(eight_layers(), 8);
  config.precision.bf16 = true;
  config.zero.zero_stage = 2;
  config.zero.zero_group_size = GroupSize::parse("4");
  expect_same_run(config);
  config.zero.zero_stage = 3;
  config.zero.zero_group_size.reset();
  config.zero.zero_reduce = ReducePolicy::Each;
  expect_same_run(config);
}

TEST(ModeOrder, StateAndActivationsOnTheHost) {
  PretrainConfig config = scheduled(on_mesh(eight_layers(), 2, 1, 4), "1f1b");
  config.zero.zero_stage = 1;
  const Curve kept = train_and_evaluate(config);
  config.zero.offload.to = Offload::To::Host;
  config.mesh.cpu_offloading_num_layers = 1;
  expect_same_bits(train_and_evaluate(on_device(config)), kept);
  expect_ordered(8);
}

TEST(ModeOrder, WholeMatricesOfMuon) {
  PretrainConfig config = on_mesh(eight_layers(), 4, 1, 2);
  config.optimizer.optimizer = OptimizerKind::Muon;
  config.zero.zero_stage = 1;
  expect_same_run(config);
}

TEST(ModeOrder, HalvesOfPairsThatExchangeExperts) {
  PretrainConfig base = run_with_experts(8, false);
  base.model.num_layers = 4;
  base.model.moe_shared_expert_intermediate_size = 16;
  base.batch.global_batch_size = 10;
  const ExpertMesh mesh{.dp = 2, .tp = 2, .pp = 2, .ep = 4, .schedule = "dualpipe-v", .chunks = 2};
  PretrainConfig config = mesh.of(base);
  config.mesh.overlap_moe_expert_parallel_comm = true;
  expect_same_run(config);
}

// Blocks that are captured, on ranks that exchange nothing inside a block.
TEST(ModeOrder, CapturedBlocks) {
  PretrainConfig config = scheduled(on_mesh(eight_layers(), 2, 1, 4), "interleaved", 2);
  const Curve host = train_and_evaluate(config);
  config.mesh.enable_cuda_graph = true;
  expect_same_bits(train_and_evaluate(on_device(config)), host);
  expect_ordered(8);
}

// What was saved over NCCL is read on other ranks.
TEST(ModeOrder, CheckpointsAreSavedAndRead) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("nccl_order_{}", getpid());
  std::filesystem::create_directories(folder);
  PretrainConfig config = scheduled(on_mesh(eight_layers(), 2, 2, 2), "zb-h1");
  config.zero.zero_stage = 3;
  const Curve whole = train(config);
  config = on_device(config);
  const int64_t half = config.batch.train_iters / 2;
  train(config, half, "", folder.string());
  expect_ordered(8);
  const Curve rest = train(config, 0, folder.string());
  expect_ordered(8);
  ASSERT_EQ(rest.losses.size() + static_cast<size_t>(half), whole.losses.size());
  EXPECT_TRUE(std::equal(rest.losses.begin(), rest.losses.end(), whole.losses.begin() + half));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trifold::test
