// Nothing is allocated inside a step: from the third on, no thread of a run calls operator new or maps
// memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "parity/allocation_count.h"
#include "support/training.h"
#include "text/corpus.h"

namespace trifold::test {
namespace {

// Trains, and returns the allocations from step 3 on.
std::string allocations(const PretrainConfig& config, const DataSource& data) {
  std::string found;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    while (trainer.steps_done() < 2) trainer.advance();
    world.barrier();
    if (world.rank() == 0) start_counting();
    world.barrier();
    while (trainer.steps_done() < config.batch.train_iters) trainer.advance();
    world.barrier();
    if (world.rank() == 0) found = stop_counting();
    world.barrier();
  });
  return found;
}

PretrainConfig four_layers(PretrainConfig config) {
  config.model.num_layers = 4;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(8);
  config.zero.zero_min_unit_params = 4000;  // several units in a model this small
  return config;
}

struct Case {
  std::string name;
  PretrainConfig config;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& name, const PretrainConfig& config, auto&& change) {
    all.push_back({name, four_layers(config)});
    change(all.back().config);
  };
  const auto nothing = [](PretrainConfig&) {};
  const auto stage = [](int number) {
    return [number](PretrainConfig& config) { config.zero.zero_stage = number; };
  };
  const PretrainConfig run = small_run();
  for (int zero : {0, 1, 2, 3}) add("zero" + std::to_string(zero), on_mesh(run, 2), stage(zero));
  add("reduce_each", scheduled(on_mesh(run, 2, 1, 2), "zb-h1"), [](PretrainConfig& config) {
    config.zero.zero_stage = 2;
    config.zero.zero_reduce = ReducePolicy::Each;
  });
  for (int zero : {0, 2})  // sums of groups and between them
    add("reduce_in_bf16_zero" + std::to_string(zero), on_mesh(run, 4), [zero](PretrainConfig& config) {
      config.zero.zero_stage = zero;
      config.zero.zero_group_size = GroupSize{2};
      config.precision.grad_reduce_in_bf16 = true;
    });
  add("reduce_each_in_bf16", scheduled(on_mesh(run, 2, 1, 2), "zb-h1"), [](PretrainConfig& config) {
    config.zero.zero_stage = 2;
    config.zero.zero_reduce = ReducePolicy::Each;
    config.precision.grad_reduce_in_bf16 = true;
  });
  add("tensor", on_mesh(run, 1, 2), nothing);
  add("sequence", on_mesh(run, 1, 2), [](PretrainConfig& config) { config.mesh.sequence_parallel = true; });
  add("context", scheduled(on_mesh(run, 1, 1, 2, 2), "1f1b"),
      [](PretrainConfig& config) { config.model.hidden_dropout = config.model.attention_dropout = 0.1; });
  add("experts", scheduled(on_mesh(run, 2, 1, 2), "zb-h1"), [](PretrainConfig& config) {
    config.model.num_experts = 4;
    config.model.disable_bias_linear = true;
    config.mesh.expert_model_parallel_size = 2;
    config.zero.zero_stage = 1;
  });
  add("expert_parts", on_mesh(run, 4), [](PretrainConfig& config) {
    config.model.num_experts = 4;
    config.model.disable_bias_linear = true;
    config.model.moe_shared_expert_intermediate_size = 16;
    config.mesh.expert_model_parallel_size = config.mesh.expert_tensor_parallel_size = 2;
  });
  add("expert_capacity", on_mesh(run, 2), [](PretrainConfig& config) {
    config.model.num_experts = 4;
    config.model.disable_bias_linear = true;
    config.model.moe_expert_capacity_factor = 0.75;
    config.mesh.expert_model_parallel_size = 2;
  });
  add("context_ring", on_mesh(run, 1, 1, 1, 4),
      [](PretrainConfig& config) { config.mesh.cp_comm_type = ContextExchange::Ring; });
  add("tiled_mlp", scheduled(on_mesh(run, 1, 2, 2), "zb-h1"), [](PretrainConfig& config) {
    config.mesh.sequence_parallel = true;
    config.mesh.tiled_mlp = 3;
  });
  add("head_parts", scheduled(on_mesh(run, 1, 2, 2), "zb-v", 2), [](PretrainConfig& config) {
    config.model.untie_embeddings_and_output_weights = true;
    config.mesh.sequence_parallel = true;
    config.mesh.pipeline_vocab_parts = 4;
  });
  add("pairs", scheduled(on_mesh(run, 1, 2, 2), "zb-h1"), [](PretrainConfig& config) {
    config.model.pair_loss = PairLossConfig{};
    config.batch.micro_batch_size = 2;
  });
  add("experts_in_turns", scheduled(on_mesh(run, 2, 1, 2), "dualpipe-v", 2), [](PretrainConfig& config) {
    config.model.disable_bias_linear = true;
    config.model.num_experts = 4;
    config.mesh.expert_model_parallel_size = 2;
    config.mesh.overlap_moe_expert_parallel_comm = true;
    config.batch.global_batch_size = 20;
  });
  add("pipeline", scheduled(on_mesh(run, 1, 1, 2), "1f1b"), nothing);
  add("interleaved", scheduled(on_mesh(run, 1, 1, 2), "interleaved", 2), nothing);
  add("zero_bubble", scheduled(on_mesh(run, 1, 1, 2), "zb-h1"), nothing);
  add("all_axes_zero3", scheduled(on_mesh(run, 2, 2, 2), "1f1b"), stage(3));
  add("asynchronous", scheduled(on_mesh(run, 2, 1, 2), "pipedream-2bw"), [](PretrainConfig& config) {
    config.optimizer.clip_grad = 0;
    config.pipeline.async_window = 2;
  });
  add("selective", run, [](PretrainConfig& config) {
    config.mesh.recompute_granularity = RecomputeGranularity::Selective;
    config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  });
  add("full", scheduled(on_mesh(run, 1, 1, 2), "zb-h1"),
      [](PretrainConfig& config) { config.mesh.recompute_granularity = RecomputeGranularity::Full; });
  add("bf16", on_mesh(run, 2), [](PretrainConfig& config) {
    config.precision.bf16 = true;
    config.zero.zero_stage = 3;
  });
  add("fp16", on_mesh(run, 2), [](PretrainConfig& config) {
    config.precision.fp16 = true;
    config.precision.initial_loss_scale = 65536 * 65536.0;  // steps are skipped, too
  });
  add("offload", on_mesh(run, 2), [](PretrainConfig& config) {
    config.precision.bf16 = true;
    config.zero.zero_stage = 3;
    config.zero.offload = Offload::parse(std::filesystem::temp_directory_path().string());
  });
  add("f64", run, [](PretrainConfig& config) { config.precision.f64 = true; });
  for (const OptimizerKind kind : {OptimizerKind::Lamb, OptimizerKind::Lars})
    add(std::string(name_of(kind)), on_mesh(run, 2), [kind](PretrainConfig& config) {
      config.optimizer.optimizer = kind;
      config.zero.zero_stage = 1;
    });
  // Tensor ranks exchange more than four messages at once.
  add("muon", run, [](PretrainConfig& config) {
    config.optimizer.optimizer = OptimizerKind::Muon;
    config.optimizer.ema = 0.9;
  });
  add("muon_zero", on_mesh(run, 2), [](PretrainConfig& config) {
    config.optimizer.optimizer = OptimizerKind::Muon;
    config.optimizer.lr_mult = {{"*.bias", 2}};
    config.zero.zero_stage = 1;
  });
  for (const MomentType type : {MomentType::Bf16, MomentType::Fp8})
    add(fmt::format("moments_in_{}", name_of(type)), on_mesh(run, 2), [type](PretrainConfig& config) {
      config.optimizer.exp_avg_dtype = config.optimizer.exp_avg_sq_dtype = type;
      config.zero.zero_stage = 2;
    });
  add("quantized_base", on_mesh(run, 2, 2), [](PretrainConfig& config) {
    config.model.adapters.lora_rank = 2;
    config.model.adapters.quantize_base = BaseWeights::Nf4;
    config.precision.bf16 = true;
    config.zero.zero_stage = 3;
  });
  return all;
}

class Step : public ::testing::TestWithParam<Case> {};

TEST_P(Step, AllocatesNothing) {
  const PretrainConfig& config = GetParam().config;
  EXPECT_EQ(allocations(config, SyntheticTokens(config.model.seq_length, 7, 11)), "");
}

INSTANTIATE_TEST_SUITE_P(Runs, Step, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

// Text that is read ahead by threads.
TEST(StepOnText, AllocatesNothing) {
  PretrainConfig config = four_layers(on_mesh(small_run(), 2));
  config.model.vocab_size = 256;
  const auto file = std::filesystem::temp_directory_path() / fmt::format("allocation_test_{}.txt", getpid());
  std::ofstream(file) << std::string(1000, 'a');  // a few epochs of it are read
  config.data.data_path = {file.string()};
  const auto data = open_data(config.data, Split::Train, config.model.seq_length, 64, 1, 256);
  std::filesystem::remove(file);
  EXPECT_EQ(allocations(config, *data), "");
}

// The test's own eyes.
TEST(Counting, SeesAnAllocationAndAMapping) {
  start_counting();
  const std::vector<int> numbers(100);
  EXPECT_NE(stop_counting(), "");
  start_counting();
  const Buffer buffer(size_t{1} << 16);
  EXPECT_NE(stop_counting(), "");
  start_counting();
  EXPECT_EQ(stop_counting(), "");
}

}  // namespace
}  // namespace trifold::test
