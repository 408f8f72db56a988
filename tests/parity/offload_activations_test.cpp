// --cpu-offloading-num-layers: activations that wait for their backward in a file change no bit of a run, and do not
// take memory meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "support/files.h"
#include "support/planned_memory.h"
#include "support/training.h"

namespace trifold::test {
namespace {

std::string activations_folder() { return std::filesystem::temp_directory_path().string(); }

PretrainConfig leaving(PretrainConfig config, int64_t layers) {
  config.mesh.cpu_offloading_num_layers = layers;
  if (layers > 0) config.mesh.cpu_offloading_folder = activations_folder();
  return config;
}

PretrainConfig four_layers() {
  PretrainConfig config = small_run();
  config.model.num_layers = 4;
  config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.eval.eval_iters = 2;
  return config;
}

void expect_same_curve(const PretrainConfig& config, int64_t layers) {
  const Curve kept = train_and_evaluate(config);
  const Curve left = train_and_evaluate(leaving(config, layers));
  EXPECT_EQ(kept.losses, left.losses);
  EXPECT_EQ(kept.grad_norms, left.grad_norms);
  EXPECT_EQ(kept.valid_loss, left.valid_loss);
}

TEST(OffloadedActivations, KeepTheBitsInEverySchedule) {
  struct Case {
    const char* schedule;
    int chunks;
  };
  for (const auto& [schedule, chunks] :
       {Case{"gpipe", 1}, Case{"1f1b", 1}, Case{"interleaved", 2}, Case{"zb-h1", 1}, Case{"zb-h2", 1},
        Case{"zb-v", 2}, Case{"dualpipe-v", 2}}) {
    SCOPED_TRACE(schedule);
    expect_same_curve(scheduled(on_mesh(four_layers(), 1, 1, 2), schedule, chunks), chunks == 1 ? 2 : 1);
  }
  PretrainConfig async = scheduled(on_mesh(four_layers(), 1, 1, 2), "pipedream");
  async.optimizer.clip_grad = 0;
  async.pipeline.async_window = 2;
  expect_same_curve(async, 1);
}

TEST(OffloadedActivations, KeepTheBitsWithRecomputationZeroAndOtherAxes) {
  for (const RecomputeGranularity recompute :
       {RecomputeGranularity::None, RecomputeGranularity::Selective, RecomputeGranularity::Full})
    for (const int stage : {0, 2, 3}) {
      SCOPED_TRACE(fmt::format("recompute {} stage {}", static_cast<int>(recompute), stage));
      PretrainConfig config = on_mesh(four_layers(), 2);
      config.mesh.recompute_granularity = recompute;
      config.zero.zero_stage = stage;
      config.zero.zero_min_unit_params = 1000;
      expect_same_curve(config, 3);
    }
  expect_same_curve(on_mesh(four_layers(), 1, 2, 1, 2), 4);
  PretrainConfig sequence = scheduled(on_mesh(four_layers(), 1, 2, 2), "zb-h1");
  sequence.mesh.sequence_parallel = true;
  expect_same_curve(sequence, 2);
}

TEST(OffloadedActivations, KeepTheBitsOfOtherModels) {
  PretrainConfig llama = four_layers();
  make_llama(llama.model, 2);
  expect_same_curve(llama, 4);
  PretrainConfig bert = four_layers();
  bert.model.model_type = ModelType::Bert;
  expect_same_curve(scheduled(on_mesh(bert, 1, 1, 2), "1f1b"), 1);
  PretrainConfig tiled = four_layers();
  tiled.mesh.tiled_mlp = 3;
  expect_same_curve(tiled, 2);
  PretrainConfig half = four_layers();
  half.precision.bf16 = true;
  expect_same_curve(half, 3);
}

TEST(OffloadedActivations, TakeWhatAPlanSays) {
  for (const char* schedule : {"1f1b", "zb-h1", "gpipe"})
    for (const int64_t layers : {0, 1, 2}) {
      SCOPED_TRACE(fmt::format("{} {}", schedule, layers));
      const PretrainConfig config = leaving(scheduled(on_mesh(four_layers(), 1, 1, 2), schedule), layers);
      compare_with_plan(config, [&](Trainer& trainer, const MemoryReport& planned) {
        EXPECT_EQ(trainer.memory().predicted_activations, planned.predicted_activations);
        EXPECT_EQ(trainer.memory().offloaded, planned.offloaded);
        // The executor counts the bytes in memory, and would have stopped at one byte more.
        EXPECT_EQ(trainer.activations_in_memory(), trainer.planned_activations_in_memory());
        EXPECT_EQ(trainer.memory().offloaded > 0, layers > 0);
      });
    }
}

// Blocks below the first adapter keep nothing for a backward, so that there is nothing to off-load.
TEST(OffloadedActivations, AreThoseOfBlocksWithABackward) {
  PretrainConfig config = four_layers();
  config.model.adapters.lora_rank = 2;
  config.model.adapters.lora_targets = {"block.[1-3].*"};
  const auto bytes = [&](int64_t layers) { return plan_of(leaving(config, layers)).memory[0].offloaded; };
  EXPECT_GT(bytes(1), 0U);
  EXPECT_GT(bytes(2), bytes(1));
  for (const int64_t layers : {1, 2})
    compare_with_plan(leaving(config, layers), [&](Trainer& trainer, const MemoryReport& planned) {
      EXPECT_EQ(trainer.memory().predicted_activations, planned.predicted_activations);
      EXPECT_EQ(trainer.memory().offloaded, planned.offloaded);
      EXPECT_EQ(trainer.activations_in_memory(), trainer.planned_activations_in_memory());
    });
  EXPECT_NE(error_of([&] { bytes(4); }).find("that keep activations for a backward: give at most 3"),
            std::string::npos);
}

TEST(OffloadedActivations, RefuseStagesOfOneBlock) {
  PretrainConfig config = leaving(scheduled(on_mesh(four_layers(), 1, 1, 6), "1f1b"), 1);
  config.mesh.cut.pipeline_model_parallel_layout = "E|t|t|t|t|L";
  EXPECT_NE(
      error_of([&] {
        plan_of(config);
      }).find("--cpu-offloading-num-layers 1 has no effect, because the last block of a stage is not off-loaded"),
      std::string::npos);
  config.mesh.cut.pipeline_model_parallel_layout = "E|tt|t|t|L";
  config.mesh.ranks = config.mesh.pipeline_model_parallel_size = 5;
  EXPECT_GT(plan_of(config).memory[1].offloaded, 0U);
}

// Up to three blocks are in memory: one is computed, one moves, and one reads or has left its output for the next.
TEST(OffloadedActivations, PlanFewerBytesInMemory) {
  size_t before = SIZE_MAX;
  for (const int64_t layers : {0, 4, 8, 12}) {
    PretrainConfig config = leaving(four_layers(), layers);
    config.model.num_layers = 12;
    config.model.seq_length = config.model.max_position_embeddings.emplace(512);
    const PlanReport report = plan_of(config);
    EXPECT_LT(report.memory[0].predicted_activations, before);
    before = report.memory[0].predicted_activations;
    EXPECT_EQ(report.traffic[0].offloaded, report.traffic[0].fetched);
  }
}

double kibibytes_of(const std::string& what) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(what, 0) == 0) return std::stod(line.substr(what.size()));
  return 0;
}

// Eight micro-batches in flight on the first stage of gpipe: the process shrinks by what the plan says, at its peak.
TEST(OffloadedActivations, GiveTheirMemoryBack) {
  struct Memory {
    double most = 0, planned = 0;
  };
  const auto held_by = [](int64_t layers) {
    PretrainConfig config = leaving(four_layers(), layers);
    config.model.hidden_size = 128;
    config.model.ffn_hidden_size = 512;
    config.model.seq_length = config.model.max_position_embeddings.emplace(512);
    config.batch.micro_batch_size = 1;
    config = scheduled(on_mesh(config, 1, 1, 2), "gpipe");
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    Memory held;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, nullptr);
      trainer.step();
      const std::vector<MemoryReport> all = trainer.report().memory;
      world.barrier();
      if (world.rank() != 0) return;
      held.most = 1024 * kibibytes_of("VmHWM:");
      for (const MemoryReport& rank : all) held.planned += static_cast<double>(rank.predicted_total());
    });
    return held;
  };
  const Memory left = held_by(2);  // first, for the peak of a process only grows
  const Memory kept = held_by(0);
  EXPECT_GT(kept.planned - left.planned, 50e6);
  EXPECT_GT(kept.most - left.most, 0.8 * (kept.planned - left.planned));
}

}  // namespace
}  // namespace trifold::test
