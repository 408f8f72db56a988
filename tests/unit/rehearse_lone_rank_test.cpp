#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "mesh/mesh_sizes.h"
#include "plan/memory_fit.h"
#include "plan/resolve.h"
#include "rehearse/lone_trainer.h"
#include "rehearse/rehearse.h"
#include "rehearse/rehearsed_step.h"
#include "support/files.h"
#include "support/planned_runs.h"
#include "support/training.h"

namespace trifold::test {
namespace {

PretrainJob job_of(PretrainConfig config) {
  PretrainJob job;
  job.train = few_tokens(config.model);
  job.config = std::move(config);
  return job;
}

// 1536 ranks, in the shape of GPT-3 on as many.
PretrainConfig many_ranks() {
  PretrainConfig config = scheduled(on_mesh(small_run(), 12, 8, 16), "1f1b");
  config.model.num_layers = 16;
  config.model.num_attention_heads = 8;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 1536;
  config.zero.zero_stage = 1;
  return config;
}

const MeasuredAction* find(const RehearsedRank& rank, ActionKind kind) {
  for (const MeasuredAction& action : rank.actions)
    if (action.kind == kind) return &action;
  return nullptr;
}

TEST(LoneRank, RunsAsOneOfManyRanks) {
  const PretrainJob job = job_of(many_ranks());
  for (const int rank : {0, 8 * 12 * 7 + 5, 1535}) {
    SCOPED_TRACE(rank);
    const RehearsedRank done = rehearse_rank(job, rank, {.steps = 2, .micro_batches = 3});
    EXPECT_EQ(done.failure, "");
    EXPECT_EQ(done.pipeline_rank, rank / (8 * 12));
    EXPECT_EQ(done.micro_batches, 3);
    EXPECT_EQ(done.steps, 2);
    EXPECT_EQ(done.held.predicted_total(), done.planned.predicted_total());
    EXPECT_GT(done.step_seconds, 0);
    ASSERT_NE(find(done, ActionKind::F), nullptr);
    EXPECT_EQ(find(done, ActionKind::F)->count, 3);
    EXPECT_GT(find(done, ActionKind::B)->median_seconds, 0);
    ASSERT_NE(find(done, ActionKind::Step), nullptr);
    EXPECT_GT(find(done, ActionKind::Step)->median_seconds, 0);
  }
}

// The step of the whole mesh cannot take less than the computation of the stage that was measured, also if that ran in
// parts: with ZeRO 3, and in the only backward of a step that was cut to one micro-batch.
TEST(LoneRank, TheWholeStepTakesAllBlocksOfAStage) {
  for (const bool cut : {false, true}) {
    SCOPED_TRACE(cut);
    PretrainConfig config = scheduled(on_mesh(small_run(), 2, 1, 2), "1f1b");
    config.model.num_layers = 8;
    config.batch.micro_batch_size = 1;
    config.batch.global_batch_size = 16;
    config.zero.zero_stage = cut ? 1 : 3;
    RehearseOptions options{.steps = 3};
    if (cut) options.micro_batches = 1;
    const RehearsedRank done = rehearse_rank(job_of(config), 0, options);
    ASSERT_EQ(done.failure, "");
    const PlannedRun planned(run_spec(config));
    const PlanReport report = make_plan_report(planned, planned_machine(plan_config(config)));
    const MeasuredAction &forward = *find(done, ActionKind::F), &backward = *find(done, ActionKind::B);
    EXPECT_EQ(forward.of_block, !cut);
    EXPECT_TRUE(backward.of_block);
    EXPECT_EQ(backward.count, done.micro_batches * 5);  // 4 layers and the embedding
    const double each = (forward.count * forward.median_seconds + backward.count * backward.median_seconds) /
                        static_cast<double>(done.micro_batches);
    const auto step = simulate_rehearsed(planned, report, std::vector{done}, false);
    ASSERT_TRUE(step);
    EXPECT_GE(step->seconds, 0.999 * report.micros * each);
  }
}

TEST(LoneRank, ReportsTheCallsOfAStep) {
  RehearseOptions options{.steps = 1, .micro_batches = 3};
  options.machine.emplace();
  options.machine->message_latency = 1e-5;
  const RehearsedRank done = rehearse_rank(job_of(many_ranks()), 8 * 12 * 7, options);
  ASSERT_EQ(done.failure, "");
  int64_t messages = 0, sums = 0;
  for (const MeasuredCall& call : done.calls) {
    if (call.kind == "exchange" && call.group == "pp") messages += call.count;
    if (call.kind == "reduce_scatter" && call.group == "cp.dp") sums += call.count;
    EXPECT_GT(call.planned_seconds, 0) << call.group << " " << call.kind;
    if (call.group == "tp") {
      EXPECT_EQ(call.ranks, 8);
    }
  }
  // Three micro-batches arrive and leave in each direction, some of them exchanged together.
  EXPECT_GE(messages, 8);
  EXPECT_LE(messages, 12);
  EXPECT_GT(sums, 0);
}

TEST(LoneRank, WaitsAsPlanned) {
  RehearseOptions options{.steps = 1, .micro_batches = 1};
  options.machine.emplace();
  options.machine->message_latency = 1e-3;
  const PretrainJob job = job_of(many_ranks());
  const RehearsedRank free = rehearse_rank(job, 0, options);
  options.waits = true;
  const RehearsedRank waiting = rehearse_rank(job, 0, options);
  ASSERT_EQ(waiting.failure, "");
  // The all-reduces of the forward of a layer, each of 14 latencies.
  EXPECT_GT(find(waiting, ActionKind::F)->median_seconds, find(free, ActionKind::F)->median_seconds + 0.02);
}

TEST(LoneRank, DrawsRowsOfExpertsByTheLoad) {
  PretrainConfig config = on_mesh(small_run(), 8);
  config.model.num_experts = 16;
  config.model.moe_ffn_hidden_size = 24;
  config.model.disable_bias_linear = true;
  config.mesh.expert_model_parallel_size = 8;
  const RunSpec run = run_spec(config);
  for (const double load : {1.0, 2.0}) {
    const AbsentTrainers peers(run, coords_of(3, mesh_sizes(config.mesh)), std::nullopt, load);
    const Tensor mine{nullptr, DType::I32, {17}};
    const Tensor all = peers.gathered(kExpertShareAxes.bits(), 8, mine);
    ASSERT_EQ(all.elements(), 8 * 17);
    const auto* begins = all.as<int32_t>();
    const int rows = static_cast<int>(config.batch.micro_batch_size * config.model.seq_length) * 2;
    EXPECT_EQ(begins[0], 0);
    EXPECT_EQ(begins[16], rows);
    EXPECT_EQ(begins[8] - begins[6], static_cast<int>(load * rows / 8));
    EXPECT_TRUE(std::is_sorted(begins, begins + 17));
    EXPECT_EQ(peers.gathered(AxisSet{Axis::Tp}.bits(), 8, mine).rank(), 0);
  }
}

TEST(LoneRank, LoadsItsPartOfACheckpoint) {
  const TempDir folder;
  PretrainConfig config = scheduled(on_mesh(small_run(), 2, 2, 2), "1f1b");
  config.zero.zero_stage = 1;
  train(config, 2, "", folder.path().string());
  PretrainJob job = job_of(config);
  job.start.from = folder.path().string();
  const RehearsedRank done = rehearse_rank(job, 5, {.steps = 1});
  EXPECT_EQ(done.failure, "");
  ASSERT_FALSE(done.loaded.empty());
  EXPECT_NE(done.loaded[0].find("the weights and of the optimizer's state"), std::string::npos);

  LoneTrainer alone(config, PlannedRuns(run_spec_here(config)), *job.train, &job.start, 5, {});
  alone.load();
  EXPECT_EQ(alone.trainer().steps_done(), 2);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *job.train, nullptr);
    trainer.load(folder.path().string());
    if (world.rank() != 5) return;
    const std::vector<NamedTensor> real = trainer.held_tensors(), mine = alone.trainer().held_tensors();
    ASSERT_EQ(mine.size(), real.size());
    for (size_t i = 0; i < real.size(); ++i) {
      EXPECT_EQ(mine[i].spec.name, real[i].spec.name);
      EXPECT_EQ(std::memcmp(mine[i].data.data, real[i].data.data, real[i].data.bytes()), 0)
          << real[i].spec.name;
    }
  });
}

TEST(LoneRank, ResumesWithAnotherBatch) {
  const TempDir folder;
  const PretrainConfig config = on_mesh(small_run(), 2);
  train(config, 2, "", folder.path().string());
  PretrainJob job = job_of(config);
  job.start.from = folder.path().string();
  const RehearsedRank cut = rehearse_rank(job, 1, {.steps = 1, .micro_batches = 1});
  EXPECT_EQ(cut.failure, "");
  EXPECT_GT(cut.steps, 0);
  job.config.batch.global_batch_size = *config.batch.global_batch_size * 2;
  EXPECT_NE(rehearse_rank(job, 1, {.steps = 1}).failure.find("another global batch size"), std::string::npos);
}

// The loss is a sum over one rank, whose part of the vocabulary is all padding.
TEST(LoneRank, HasALossWithTensorRanksAlone) {
  PretrainConfig config = on_mesh(small_run(), 1, 8);
  config.model.num_attention_heads = 8;
  for (const int rank : {0, 7}) {
    const RehearsedRank done = rehearse_rank(job_of(config), rank, {.steps = 1});
    EXPECT_EQ(done.failure, "");
    EXPECT_GT(done.step_seconds, 0);
  }
}

TEST(LoneRank, LeavesALossOfAWholeVocabularyAsItIs) {
  const double lost = -std::numeric_limits<double>::infinity();
  const AxisSet group = kDataAxes | AxisSet{Axis::Pp};
  for (const int tensor : {1, 2}) {
    PretrainConfig config = on_mesh(small_run(), 1, tensor);
    const AbsentTrainers peers(run_spec(config), coords_of(0, mesh_sizes(config.mesh)), std::nullopt, 1);
    std::vector<double> sums(kLossNumbers, 8.0);
    sums[0] = lost;
    ASSERT_TRUE(peers.sum(group.bits(), 1, {sums.data(), DType::F64, {kLossNumbers}}));
    EXPECT_EQ(std::isfinite(sums[0]), tensor > 1);
  }
}

TEST(LoneRank, MeasuresWholeWindowsOfAsynchronousSchedules) {
  PretrainConfig config = scheduled(on_mesh(small_run(), 1, 1, 4), "pipedream-2bw");
  config.model.num_layers = 4;
  config.optimizer.clip_grad = 0;
  config.batch.train_iters = 8;
  // Of short windows the first is not measured and does not count: of 3 steps asked for, two windows of 2 remain.
  for (const auto& [window, steps] : {std::pair{2, 4}, {4, 4}, {8, 8}}) {
    SCOPED_TRACE(window);
    config.pipeline.async_window = window;
    const RehearsedRank done = rehearse_rank(job_of(config), 0, {.steps = 3});
    ASSERT_EQ(done.failure, "");
    EXPECT_EQ(done.steps, steps);
    EXPECT_FALSE(done.actions.empty());
    EXPECT_GT(done.step_seconds, 0);
  }
}

TEST(LoneRank, RunsQuantizedWeights) {
  PretrainConfig config = on_mesh(small_run(), 4);
  config.model.adapters.lora_rank = 4;
  config.model.adapters.quantize_base = BaseWeights::Int8;
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    config.zero.zero_stage = stage;
    const RehearsedRank done = rehearse_rank(job_of(config), 1, {.steps = 1});
    EXPECT_EQ(done.failure, "");
    EXPECT_GT(done.step_seconds, 0);
  }
}

TEST(LoneRank, KnowsAnnouncedRowsByTheirOrder) {
  PretrainConfig config = on_mesh(small_run(), 8);
  config.model.num_experts = 16;
  config.model.moe_ffn_hidden_size = 24;
  config.model.disable_bias_linear = true;
  config.mesh.expert_model_parallel_size = 8;
  const AbsentTrainers peers(run_spec(config), coords_of(3, mesh_sizes(config.mesh)), std::nullopt, 1);
  std::vector<int32_t> begins(17), tokens(17);
  for (int i = 0; i < 17; ++i) {
    begins[static_cast<size_t>(i)] = 3 * i;
    tokens[static_cast<size_t>(i)] = i % 5;
  }
  const unsigned group = kExpertShareAxes.bits();
  EXPECT_EQ(peers.gathered(group, 8, {begins.data(), DType::I32, {17}}).elements(), 8 * 17);
  EXPECT_EQ(peers.gathered(group, 8, {tokens.data(), DType::I32, {17}}).rank(), 0);
}

TEST(LoneRank, TellsWhatFails) {
  const PretrainConfig config = on_mesh(small_run(), 4);
  EXPECT_NE(error_of([&] { rehearse_rank(job_of(config), 4, {}); }).find("the mesh has ranks 0 to 3"),
            std::string::npos);
  PretrainJob job = job_of(config);
  job.start.from = "/nowhere/at/all";
  const RehearsedRank failed = rehearse_rank(job, 0, {.steps = 1});
  EXPECT_NE(failed.failure, "");
  EXPECT_GT(failed.held.parameters, 0U);
}

}  // namespace
}  // namespace trifold::test
