// ZeRO: the memory and traffic of ranks, by shard, by node and by the paper's formula.
#include <algorithm>
#include <array>
#include <mutex>

#include "parity/zero_runs.h"

namespace trifold::test {
namespace {

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
