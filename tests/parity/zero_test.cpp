// ZeRO: what is shared out over data-parallel ranks changes no bit of the curve.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

struct ZeroCase {
  std::string schedule;
  int dp, tp, pp, chunks;
  bool sequence_parallel;
};

std::string name_of(const ZeroCase& c) {
  std::string name = c.schedule + "_dp" + std::to_string(c.dp) + "tp" + std::to_string(c.tp) + "pp" +
                     std::to_string(c.pp) + (c.sequence_parallel ? "sp" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

PretrainConfig zero_run(const ZeroCase& c, int stage, bool f64 = false) {
  PretrainConfig config = scheduled(on_mesh(small_run(), c.dp, c.tp, c.pp), c.schedule, c.chunks);
  config.model.num_layers = 4;
  config.model.hidden_dropout = 0.1;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 8 * c.dp / 2;
  config.mesh.sequence_parallel = c.sequence_parallel;
  config.precision.f64 = f64;
  config.zero.zero_stage = stage;
  config.zero.zero_min_unit_params = 4000;  // several units in a model this small
  return config;
}

void expect_same_bits(const Curve& a, const Curve& b) {
  EXPECT_EQ(first_difference(std::span<const double>(a.losses), std::span<const double>(b.losses)), kSame);
  EXPECT_EQ(first_difference(std::span<const double>(a.grad_norms), std::span<const double>(b.grad_norms)),
            kSame);
}

class EveryStage : public ::testing::TestWithParam<ZeroCase> {};

TEST_P(EveryStage, GivesTheBitsOfStageZero) {
  const Curve plain = train(zero_run(GetParam(), 0));
  ASSERT_EQ(plain.losses.size(), 20U);
  EXPECT_LT(plain.losses.back(), 0.9 * plain.losses.front());
  for (int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    expect_same_bits(plain, train(zero_run(GetParam(), stage)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, EveryStage,
    ::testing::Values(ZeroCase{"1f1b", 2, 1, 1, 1, false}, ZeroCase{"1f1b", 8, 1, 1, 1, false},
                      ZeroCase{"1f1b", 4, 2, 1, 1, true}, ZeroCase{"1f1b", 4, 1, 2, 1, false},
                      ZeroCase{"zb-h1", 2, 2, 2, 1, true}, ZeroCase{"zb-v", 4, 1, 2, 2, false},
                      ZeroCase{"interleaved", 2, 1, 2, 2, false}, ZeroCase{"gpipe", 3, 1, 2, 1, false}),
    [](const auto& test) { return name_of(test.param); });

// Gradients reduced after each micro-batch.
PretrainConfig each_run(const ZeroCase& c, int stage, int micros, bool f64 = false) {
  PretrainConfig config = zero_run(c, stage, f64);
  config.batch.global_batch_size = int64_t{micros} * c.dp;
  if (stage >= 2) config.zero.zero_reduce = ReducePolicy::Each;
  return config;
}

class ReduceEach : public ::testing::TestWithParam<ZeroCase> {};

// With one micro-batch a step the two policies are one; with several only the order of sums differs.
TEST_P(ReduceEach, GivesTheCurveOfStageZero) {
  const ZeroCase& c = GetParam();
  for (const int micros : c.chunks == 1 ? std::vector<int>{1, 4} : std::vector<int>{4})
    for (const bool f64 : {false, true}) {
      SCOPED_TRACE(fmt::format("{} micro-batches, {}", micros, f64 ? "f64" : "f32"));
      const Curve plain = train(each_run(c, 0, micros, f64));
      ASSERT_EQ(plain.losses.size(), 20U);
      for (int stage : {2, 3}) {
        SCOPED_TRACE(stage);
        const Curve each = train(each_run(c, stage, micros, f64));
        ASSERT_EQ(each.losses.size(), 20U);
        if (micros == 1) expect_same_bits(plain, each);
        const double tolerance = f64 ? 1e-11 : 2e-5;
        for (size_t i = 0; i < 20; ++i) {
          EXPECT_LT(relative_error(each.losses[i], plain.losses[i]), tolerance) << "step " << i + 1;
          EXPECT_LT(relative_error(each.grad_norms[i], plain.grad_norms[i]), 20 * tolerance)
              << "step " << i + 1;
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, ReduceEach,
    ::testing::Values(ZeroCase{"1f1b", 2, 1, 1, 1, false}, ZeroCase{"1f1b", 4, 2, 1, 1, true},
                      ZeroCase{"1f1b", 2, 1, 4, 1, false}, ZeroCase{"gpipe", 2, 1, 2, 1, false},
                      ZeroCase{"interleaved", 2, 1, 2, 2, false}, ZeroCase{"zb-h1", 2, 2, 2, 1, true},
                      ZeroCase{"zb-v", 2, 1, 2, 2, false}, ZeroCase{"dualpipe-v", 2, 1, 2, 2, false}),
    [](const auto& test) { return name_of(test.param); });

// Groups of ranks that share slices, and sums between groups: another order of sums, so within rounding.
TEST(ZeroGroups, AgreeWithOneGroup) {
  for (int stage : {0, 1, 3}) {
    PretrainConfig config = zero_run({"1f1b", 4, 1, 1, 1, false}, stage, true);
    const Curve one = train(config);
    config.zero.zero_group_size = GroupSize{2};
    const Curve two = train(config);
    ASSERT_EQ(two.losses.size(), 20U);
    for (size_t i = 0; i < 20; ++i) EXPECT_LT(relative_error(two.losses[i], one.losses[i]), 1e-11);
  }
}

// Between groups only the sums of a step travel; with one micro-batch that is what reducing once does.
TEST(ZeroGroups, ReduceAfterEachMicroBatchToo) {
  for (const ZeroCase& c : {ZeroCase{"1f1b", 4, 1, 1, 1, false}, ZeroCase{"zb-h1", 4, 2, 1, 1, true}})
    for (int micros : {1, 3})
      for (int stage : {2, 3}) {
        SCOPED_TRACE(fmt::format("stage {} with {} micro-batches", stage, micros));
        PretrainConfig config = each_run(c, stage, micros, true);
        config.zero.zero_group_size = GroupSize{2};
        const Curve each = train(config);
        config.zero.zero_reduce = ReducePolicy::Once;
        const Curve once = train(config);
        ASSERT_EQ(each.losses.size(), 20U);
        if (micros == 1) expect_same_bits(each, once);
        for (size_t i = 0; i < 20; ++i) EXPECT_LT(relative_error(each.losses[i], once.losses[i]), 1e-11);
      }
}

// Gradients that travel in bf16: whatever is shared out, an element is rounded where it leaves a rank and
// where its sum does. Returns the curve of stage 0.
Curve expect_same_bits_in_bf16(PretrainConfig config, bool each) {
  config.precision.grad_reduce_in_bf16 = true;
  config.zero.zero_stage = 0;
  Curve plain = train(config);
  EXPECT_EQ(plain.losses.size(), 20U);
  for (int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    config.zero.zero_stage = stage;
    if (each && stage >= 2) config.zero.zero_reduce = ReducePolicy::Each;
    expect_same_bits(plain, train(config));
  }
  return plain;
}

class ReduceInBf16 : public ::testing::TestWithParam<ZeroCase> {};

// A bf16 number has 8 bits: 0.2 % of a gradient at most, twice, in either direction.
TEST_P(ReduceInBf16, StaysCloseAndTheSameBitsInEveryStage) {
  const Curve wide = train(zero_run(GetParam(), 0));
  const Curve narrow = expect_same_bits_in_bf16(zero_run(GetParam(), 0), false);
  ASSERT_EQ(narrow.losses.size(), 20U);
  EXPECT_NE(narrow.grad_norms, wide.grad_norms);
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_LT(relative_error(narrow.losses[i], wide.losses[i]), 1e-3) << "step " << i + 1;
    EXPECT_LT(relative_error(narrow.grad_norms[i], wide.grad_norms[i]), 2e-2) << "step " << i + 1;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ReduceInBf16,
                         ::testing::Values(ZeroCase{"1f1b", 3, 1, 1, 1, false},
                                           ZeroCase{"1f1b", 2, 2, 1, 1, true},
                                           ZeroCase{"zb-h1", 2, 1, 2, 1, false}),
                         [](const auto& test) { return name_of(test.param); });

// Three groups cut a slice into parts that are not equal; in groups of one nothing else is summed.
TEST(ReduceInBf16, OfGroupsGivesTheSameBitsInEveryStage) {
  for (const auto& [ranks, group] : {std::pair(6, 2), {3, 1}}) {
    SCOPED_TRACE(group);
    PretrainConfig config = zero_run({"1f1b", ranks, 1, 1, 1, false}, 0);
    config.batch.global_batch_size = 2 * ranks;
    config.zero.zero_group_size = GroupSize{group};
    const Curve wide = train(config);
    const Curve narrow = expect_same_bits_in_bf16(config, false);
    EXPECT_NE(narrow.grad_norms, wide.grad_norms);
    for (size_t i = 0; i < 20; ++i) EXPECT_LT(relative_error(narrow.losses[i], wide.losses[i]), 1e-3);
  }
}

TEST(ReduceInBf16, AfterEachMicroBatch) {
  for (const int micros : {1, 3}) {
    SCOPED_TRACE(micros);
    const ZeroCase mesh{"1f1b", 4, 1, 1, 1, false};
    PretrainConfig config = each_run(mesh, 0, micros);
    config.zero.zero_group_size = GroupSize{2};
    if (micros == 1) {
      expect_same_bits_in_bf16(config, true);
      continue;
    }
    const Curve wide = train(config);
    config = each_run(mesh, 2, micros);
    config.zero.zero_group_size = GroupSize{2};
    config.precision.grad_reduce_in_bf16 = true;
    const Curve narrow = train(config);
    EXPECT_NE(narrow.grad_norms, wide.grad_norms);
    for (size_t i = 0; i < 20; ++i) EXPECT_LT(relative_error(narrow.losses[i], wide.losses[i]), 1e-3);
  }
}

// Updates inside the plan, on slices.
TEST(ZeroAsync, KeepsTheBitsOfStageZero) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16 ? "gradients travel in bf16" : "gradients travel in f32");
    std::vector<Curve> curves;
    for (int stage : {0, 1}) {
      PretrainConfig config = zero_run({"pipedream-2bw", 2, 1, 2, 1, false}, stage);
      config.optimizer.clip_grad = 0;
      config.pipeline.async_window = 10;
      config.precision.grad_reduce_in_bf16 = bf16;
      curves.push_back(train(config));
    }
    expect_same_bits(curves[0], curves[1]);
  }
}

TEST(ZeroMemory, FallsWithTheStages) {
  std::vector<MemoryReport> memory;
  for (int stage : {0, 1, 3}) {
    PretrainConfig config = zero_run({"1f1b", 4, 1, 1, 1, false}, stage);
    config.model.num_layers = 12;
    const SyntheticTokens data(config.model.seq_length, 7, 11);
    run_on_ranks(config.mesh, [&](Communicator& world) {
      const Trainer trainer(world, config, data, nullptr);
      if (world.rank() == 0) memory.push_back(trainer.memory());
    });
  }
  EXPECT_EQ(memory[1].optimizer * 4, memory[0].optimizer);
  EXPECT_EQ(memory[1].parameters, memory[0].parameters);
  EXPECT_EQ(memory[2].optimizer, memory[1].optimizer);
  EXPECT_LT(memory[2].parameters * 10, memory[0].parameters * 6);
}

// A rank keeps the sums of its slice, and of whole units those that are in use and the one under way: of the
// thirteen units of this model the embedding's, which the head adds to as well, and two layers'.
TEST(ZeroMemory, HoldsSlicesOfGradientsAndAFewUnits) {
  for (const int micros : {1, 3}) {
    PretrainConfig config = each_run({"1f1b", 4, 1, 1, 1, false}, 2, micros);
    config.model.num_layers = 12;
    const SyntheticTokens data(config.model.seq_length, 7, 11);
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      const FlatLayout& layout = trainer.replica().layout().flat();
      ASSERT_EQ(layout.units().size(), 13U);
      const auto& units = layout.units();  // the last layer's holds the final norm too
      const int64_t held =
          layout.shard_elements() + units.back().elements() + units[0].elements() + units[1].elements();
      EXPECT_EQ(trainer.memory().gradients, static_cast<size_t>(held) * sizeof(float));
      EXPECT_LT(4 * trainer.memory().gradients, 3 * static_cast<size_t>(layout.elements()) * sizeof(float));
    });
  }
}

// Every micro-batch adds a reduce-scatter of all gradients; updated weights are gathered once.
TEST(ZeroTraffic, OfEachMicroBatchIsOneReduceScatter) {
  for (const int micros : {1, 3})
    for (const ReducePolicy policy : {ReducePolicy::Once, ReducePolicy::Each}) {
      PretrainConfig config = each_run({"1f1b", 4, 1, 1, 1, false}, 2, micros);
      config.zero.zero_reduce = policy;
      const SyntheticTokens data(config.model.seq_length, 7, 11);
      run_on_ranks(config.mesh, [&](Communicator& world) {
        Trainer trainer(world, config, data, nullptr);
        const Communicator& shard = trainer.replica().groups().shard();
        const int64_t before = shard.bytes_sent();
        trainer.step();
        const FlatLayout& layout = trainer.replica().layout().flat();
        const int64_t once = layout.elements() * static_cast<int64_t>(sizeof(float)) * 3 / 4;
        const int reductions = policy == ReducePolicy::Each ? micros : 1;
        EXPECT_EQ(shard.bytes_sent() - before, (reductions + 1) * once);
      });
    }
}

// Half the bytes of gradients; the work space is half of the largest unit.
TEST(ZeroTraffic, OfGradientsInBf16IsHalf) {
  for (const int stage : {0, 2}) {
    std::array<int64_t, 2> moved{};
    std::array<size_t, 2> held{};
    int64_t once = 0, largest = 0;
    for (const bool bf16 : {false, true}) {
      PretrainConfig config = zero_run({"1f1b", 4, 1, 1, 1, false}, stage);
      config.precision.grad_reduce_in_bf16 = bf16;
      const SyntheticTokens data(config.model.seq_length, 7, 11);
      run_on_ranks(config.mesh, [&](Communicator& world) {
        Trainer trainer(world, config, data, nullptr);
        const Communicator& shard = trainer.replica().groups().shard();
        const int64_t before = shard.bytes_sent();
        trainer.step();
        if (world.rank() != 0) return;
        moved[bf16] = shard.bytes_sent() - before;
        held[bf16] = trainer.memory().gradients;
        once = trainer.replica().layout().flat().elements() * 3 / 4;
        for (const FlatLayout::Unit& unit : trainer.replica().layout().flat().units())
          largest = std::max(largest, unit.elements());
      });
    }
    EXPECT_EQ(moved[0], 2 * once * 4);
    EXPECT_EQ(moved[1], once * 2 + once * (stage == 0 ? 2 : 4)) << "weights are gathered in f32";
    EXPECT_EQ(held[1] - held[0], static_cast<size_t>(largest) * 2);
  }
}

// Rajbhandari et al., section 7: a step moves 2 Psi elements through each rank for stages 0 to 2 and 3 Psi
// for stage 3, times (N - 1) / N. With a unit ahead, the last units of forward stay for backward and are
// gathered once.
TEST(ZeroTraffic, IsThatOfThePaper) {
  for (int stage : {0, 1, 2, 3}) {
    PretrainConfig config = zero_run({"1f1b", 4, 1, 1, 1, false}, stage);
    config.model.num_layers = 12;
    config.batch.micro_batch_size = 2;
    config.batch.global_batch_size = 8;
    const SyntheticTokens data(config.model.seq_length, 7, 11);
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      trainer.step();
      const Communicator& shard = trainer.replica().groups().shard();
      const int64_t before = shard.traffic().sent;
      trainer.step();
      const auto moved = static_cast<double>(shard.traffic().sent - before);
      const FlatLayout& layout = trainer.replica().layout().flat();
      const double once = static_cast<double>(layout.elements()) * sizeof(float) * 3 / 4;
      if (stage < 3) {
        EXPECT_EQ(moved, 2 * once) << "stage " << stage;
      } else {
        EXPECT_LE(moved, 3 * once);
        // The head reads the embedding's unit as well, so that is gathered once more: three of the fourteen
        // units make the difference.
        EXPECT_GT(moved, 2.7 * once);
      }
    });
  }
}

struct Moved {
  double shard = 0, replicas = 0;                      // bytes sent by rank 0
  double shard_left_node = 0, replicas_left_node = 0;  // by all ranks together, to other nodes
  StepReport report;
};

// The second step on 8 data-parallel ranks, four to a node.
Moved moved_in_a_step(int stage, const std::string& groups) {
  PretrainConfig config = zero_run({"1f1b", 8, 1, 1, 1, false}, stage);
  config.model.num_layers = 12;
  config.batch.global_batch_size = 8;
  config.mesh.ranks_per_node = 4;
  if (!groups.empty()) config.zero.zero_group_size = GroupSize::parse(groups);
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  Moved moved;
  std::mutex mutex;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    trainer.step();
    const Traffic shard = trainer.replica().groups().shard().traffic();
    const Traffic replicas = trainer.replica().groups().replicas().traffic();
    const StepReport report = trainer.step();
    const Traffic shard_now = trainer.replica().groups().shard().traffic();
    const Traffic replicas_now = trainer.replica().groups().replicas().traffic();
    // In units of the weights' bytes.
    const double psi = static_cast<double>(trainer.replica().layout().flat().elements()) * sizeof(float);
    const std::lock_guard lock(mutex);
    moved.shard_left_node += static_cast<double>(shard_now.left_node - shard.left_node) / psi;
    moved.replicas_left_node += static_cast<double>(replicas_now.left_node - replicas.left_node) / psi;
    if (world.rank() != 0) return;
    moved.shard = static_cast<double>(shard_now.sent - shard.sent) / psi;
    moved.replicas = static_cast<double>(replicas_now.sent - replicas.sent) / psi;
    moved.report = report;
  });
  return moved;
}

// One ring over N = 8 ranks crosses from node to node twice, with all that it carries; groups of a node keep
// their own exchanges inside, and slices of Psi / 4 travel between the M = 2 ranks that hold them, of each of
// 4 such pairs.
TEST(Nodes, HierarchicalReductionSendsLessBetweenThem) {
  for (int stage : {0, 1, 2}) {
    const Moved flat = moved_in_a_step(stage, "");
    EXPECT_DOUBLE_EQ(flat.shard, 2 * 7.0 / 8);
    EXPECT_DOUBLE_EQ(flat.shard_left_node, 2 * 2 * 7.0 / 8);
    const Moved nodes = moved_in_a_step(stage, "node");
    EXPECT_DOUBLE_EQ(nodes.shard, 2 * 3.0 / 4);
    EXPECT_DOUBLE_EQ(nodes.replicas, 2 * 1.0 / 2 / 4);
    EXPECT_EQ(nodes.shard_left_node, 0);
    EXPECT_DOUBLE_EQ(nodes.replicas_left_node, 8 * 2 * 1.0 / 2 / 4);
    EXPECT_LT(nodes.report.left_node_bytes, 0.6 * static_cast<double>(flat.report.left_node_bytes));
  }
}

// Hybrid sharding: weights are gathered inside a node, gradients' slices summed between nodes.
TEST(Nodes, HybridShardingGathersInsideThem) {
  const Moved flat = moved_in_a_step(3, "");
  EXPECT_GT(flat.shard_left_node, 2 * 2.7 * 7 / 8);
  EXPECT_LE(flat.shard_left_node, 2 * 3.0 * 7 / 8);
  const Moved nodes = moved_in_a_step(3, "node");
  EXPECT_GT(nodes.shard, 2.7 * 3 / 4);
  EXPECT_EQ(nodes.shard_left_node, 0);
  EXPECT_DOUBLE_EQ(nodes.replicas_left_node, 2);
}

// Groups that follow the nodes are the groups of that many ranks, to the bit.
TEST(Nodes, MakeTheGroups) {
  for (int stage : {1, 3}) {
    PretrainConfig config = zero_run({"1f1b", 4, 2, 1, 1, false}, stage);
    config.zero.zero_group_size = GroupSize{2};
    const Curve two = train(config);
    config.zero.zero_group_size = GroupSize{};
    config.mesh.ranks_per_node = 4;  // two pairs of tensor ranks
    expect_same_bits(two, train(config));
    config.mesh.ranks_per_node = 2;
    try {
      train(config);
      ADD_FAILURE() << "a node with one rank of a kind can share nothing out";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find("every node has one data-parallel rank"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace trifold::test
