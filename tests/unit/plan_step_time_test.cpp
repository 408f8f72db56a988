#include "plan/forecast/step_time.h"

#include <gtest/gtest.h>

#include "plan/forecast/kernels.h"
#include "plan/forecast/network.h"

namespace trifold {
namespace {

// A GPT of 16 layers on one device.
Workload small_gpt() {
  Workload work;
  work.layers = 16;
  work.hidden = 4096;
  work.heads = work.key_heads = 32;
  work.head_width = 128;
  work.inner = 16384;
  work.sequence = 2048;
  work.vocabulary = 51200;
  work.micros = 8;
  work.stage_layers = {16};
  return work;
}

Workload on_pipeline(Workload work, int ranks, int chunks = 1) {
  work.pipeline = ranks;
  work.chunks = chunks;
  work.stage_layers = even_layers(static_cast<int>(work.layers), ranks * chunks);
  return work;
}

const Hardware& a100() {
  static const Hardware hardware = find_hardware("a100-80gb");
  return hardware;
}

TEST(PlanKernels, WholeWavesOfLargeTilesReachTheRate) {
  const double large = shape_efficiency(a100(), {256 * 108, 1024, 4096});
  EXPECT_GT(large, 0.95);
  EXPECT_LE(large, 1);
  // One tile more than a wave holds takes another wave.
  EXPECT_LT(shape_efficiency(a100(), {256 * 109, 128, 4096}),
            0.95 * shape_efficiency(a100(), {256 * 108, 128, 4096}));
  // Heads of 108 columns cannot use tensor cores, those of 112 lose a little.
  EXPECT_LT(shape_efficiency(a100(), {2048, 2048, 108}), 0.2 * shape_efficiency(a100(), {2048, 2048, 112}));
}

TEST(PlanKernels, SmallProductsAreBoundByMemory) {
  const ProductShape one_row{8, 4096, 4096};
  EXPECT_GE(product_seconds(a100(), one_row), 2 * 4096.0 * 4096 / a100().memory_rate());
}

TEST(PlanKernels, AFullSquareIsTwiceACausalOne) {
  const double launch = a100().launch * 1e-6;
  const double causal = fused_attention_seconds(a100(), {32, 4096, 4096, 128, true}, 0.4) - launch;
  const double full = fused_attention_seconds(a100(), {32, 4096, 4096, 128, false}, 0.4) - launch;
  EXPECT_NEAR(full, 2 * causal, 1e-12 * full);

  Workload work = small_gpt();
  const BlockCosts gpt = block_costs(a100(), {}, work);
  work.causal = false;
  const BlockCosts bert = block_costs(a100(), {}, work);
  EXPECT_GT(bert.layer.compute.forward, gpt.layer.compute.forward);
  EXPECT_EQ(bert.layer.compute.weight, gpt.layer.compute.weight);
}

TEST(PlanNetwork, RingsKnowTheirPlaceInNodes) {
  Workload work = small_gpt();
  work.data = 32;
  const Ring wide = data_ring(a100(), work);  // eight of a node, four nodes
  EXPECT_EQ(wide.in_node, 8);
  EXPECT_EQ(wide.nodes(), 4);
  work.tensor = 8;
  const Ring narrow = data_ring(a100(), work);  // one of a node
  EXPECT_EQ(narrow.in_node, 1);
  EXPECT_EQ(narrow.nodes(), 32);
  constexpr double kBytes = 1e9;
  // A node's eight adapters carry a ring of eight, one carries that of one.
  EXPECT_GT(gather_seconds(a100(), {}, narrow, kBytes), 7 * gather_seconds(a100(), {}, wide, kBytes));
  const Ring inside = tensor_ring(a100(), work);
  EXPECT_EQ(inside.nodes(), 1);
  EXPECT_LT(gather_seconds(a100(), {}, inside, kBytes), gather_seconds(a100(), {}, wide, kBytes));
  Software one_adapter;
  one_adapter.adapters_per_collective = 1;
  EXPECT_GT(gather_seconds(a100(), one_adapter, wide, kBytes), 4 * gather_seconds(a100(), {}, wide, kBytes));
}

TEST(PlanStepTime, APipelinesBubbleIsThatOfItsSchedule) {
  Workload work = small_gpt();
  work.vocabulary = 128;  // ends that cost nothing: all stages are alike
  work = on_pipeline(work, 4);
  const StepTime plain = step_time(a100(), {}, work);
  EXPECT_NEAR(plain.bubble / plain.compute, 3.0 / 8, 0.01);
  work = on_pipeline(work, 4, 2);
  work.schedule = Schedule::Interleaved;
  EXPECT_NEAR(step_time(a100(), {}, work).bubble, plain.bubble / 2, 0.02 * plain.bubble);
  work = on_pipeline(work, 4);
  work.schedule = Schedule::ZbH2;
  EXPECT_LT(step_time(a100(), {}, work).bubble, 0.3 * plain.bubble);
}

TEST(PlanStepTime, ExposedCommunicationTakesTime) {
  Workload work = small_gpt();
  work.data = 32;
  Software hidden, waits;
  waits.overlap_gradients = false;
  EXPECT_GT(step_time(a100(), waits, work).data, 2 * step_time(a100(), hidden, work).data);
  work.zero_stage = 3;
  const StepTime sharded = step_time(a100(), hidden, work);
  EXPECT_GT(sharded.weights, 0);
  EXPECT_EQ(sharded.data, 0);
  EXPECT_LT(sharded.update, step_time(a100(), hidden, small_gpt()).update / 16);
  EXPECT_NEAR(sharded.all(), sharded.compute + sharded.weights + sharded.update, 1e-9);
}

TEST(PlanStepTime, TensorRanksSendAPartOfSomeMessages) {
  Workload work = on_pipeline(small_gpt(), 4);
  work.tensor = 8;
  Software half, all;
  half.scatter_messages = 0.5;
  all.scatter_messages = 1;
  const double whole = stage_message_seconds(a100(), {}, work),
               part = stage_message_seconds(a100(), all, work);
  EXPECT_NEAR(whole / part, 8, 0.4);  // less the latency
  EXPECT_NEAR(stage_message_seconds(a100(), half, work), (whole + part) / 2, 1e-9);
  work.sequence_parallel = true;
  EXPECT_EQ(stage_message_seconds(a100(), {}, work), part);
}

TEST(PlanStepTime, SumsAfterEachMicroBatchCostMoreThanOne) {
  Workload work = small_gpt();
  work.data = 32;
  work.zero_stage = 2;
  const double once = step_time(a100(), {}, work).data;
  work.reduces_each = true;
  EXPECT_GT(step_time(a100(), {}, work).data, once);
  Software waits;
  waits.overlap_gradients = false;
  const double of_eight = step_time(a100(), waits, work).data;
  work.micros = 1;
  const double of_one = step_time(a100(), waits, work).data;
  EXPECT_GT(of_eight, 4 * of_one);  // gradients of 4 bytes eight times, weights of 2 bytes once
  EXPECT_LT(of_eight, 8 * of_one);
}

TEST(PlanStepTime, RecomputationCostsAForward) {
  Workload work = small_gpt();
  const StepTime kept = step_time(a100(), {}, work);
  work.recompute = RecomputeGranularity::Full;
  const StepTime again = step_time(a100(), {}, work);
  EXPECT_GT(again.compute, 1.2 * kept.compute);
  EXPECT_LT(again.compute, 1.4 * kept.compute);
}

// What sharing experts adds to a layer: without hops, in proportion to bytes.
PartSeconds exchange_of(Workload work, const Software& software) {
  Hardware hardware = a100();
  hardware.nvlink_latency = 0;
  work.expert = 1;
  const PartSeconds alone = block_costs(hardware, software, work).layer.tensor;
  work.expert = 4;
  const PartSeconds shared = block_costs(hardware, software, work).layer.tensor;
  return {shared.forward - alone.forward, shared.input - alone.input, shared.weight - alone.weight};
}

TEST(PlanNetwork, ExpertsAreHeldByOtherRanksThanTheRest) {
  Workload work = small_gpt();
  work.experts = 8;
  work.tensor = 2;
  work.data = 16;
  work.expert = 4;
  const Ring dense = data_ring(a100(), work);
  EXPECT_EQ(dense.ranks, 16);
  EXPECT_EQ(dense.in_node, 4);
  const Ring experts = expert_data_ring(a100(), work);
  EXPECT_EQ(experts.ranks, 8);  // 2 x 16 ranks of a stage
  EXPECT_EQ(experts.in_node, 2);
  const HeldWeights held = work.layer_weights();
  EXPECT_NEAR(held.experts, 2 * 2.0 * 4096 * 16384, 1);
  EXPECT_NEAR(held.dense, 4.0 * 4096 * 4096 / 2 + 10 * 4096, 1);
}

// A Mixtral of which some layers have one network of another width: the sum of its layers' parts, on one pipeline rank.
TEST(PlanStepTime, LayersOfTwoKindsAddUp) {
  for (const int zero : {0, 3}) {
    Workload work = small_gpt();
    work.experts = 8;
    work.choices = 2;
    work.inner = 2048;
    work.plain_inner = 24576;
    work.data = 16;
    work.expert = 4;
    work.zero_stage = zero;
    const StepTime experts = step_time(a100(), {}, work);
    const StepTime plain = step_time(a100(), {}, work.of_plain_layers());
    work.stage_plain = {4};
    const StepTime mixed = step_time(a100(), {}, work);
    EXPECT_NEAR(mixed.compute, 0.75 * experts.compute + 0.25 * plain.compute, 1e-9 * mixed.compute);
    EXPECT_NEAR(mixed.tensor, 0.75 * experts.tensor + 0.25 * plain.tensor, 1e-9 * mixed.tensor);
    EXPECT_NEAR(mixed.update, 0.75 * experts.update + 0.25 * plain.update, 1e-3 * mixed.update);
    EXPECT_NE(experts.compute, plain.compute);
    work.stage_plain = {0};
    EXPECT_EQ(step_time(a100(), {}, work).all(), experts.all());
  }
}

// The stage with the larger layers is the slowest, unless it has fewer of them.
TEST(PlanStepTime, StagesWaitForTheLargerLayers) {
  Workload work = on_pipeline(small_gpt(), 4);
  work.experts = 8;
  work.choices = 2;
  work.inner = 2048;
  work.plain_inner = 65536;
  work.stage_plain = {4, 0, 0, 0};
  const StepTime even = step_time(a100(), {}, work);
  work.stage_layers = {1, 5, 5, 5};
  work.stage_plain = {1, 0, 0, 0};
  const StepTime cut = step_time(a100(), {}, work);
  EXPECT_LT(cut.compute, 0.6 * even.compute);
}

// One copy of each expert: nothing to sum, and nothing to shard.
TEST(PlanStepTime, ExpertsOfOneRankAreNotSummed) {
  Workload work = small_gpt();
  work.experts = 8;
  work.data = work.expert = 8;
  constexpr double kMany = 1e9;
  EXPECT_EQ(data_seconds(a100(), {}, work, {0, kMany}, 0), 0);
  EXPECT_GT(data_seconds(a100(), {}, work, {kMany, 0}, 0), 0);
  const double whole = update_seconds(a100(), work, {0, kMany});
  for (const int stage : {1, 3}) {
    work.zero_stage = stage;
    EXPECT_EQ(update_seconds(a100(), work, {0, kMany}), whole);
    EXPECT_LT(update_seconds(a100(), work, {kMany, 0}), 0.4 * whole);
  }
  // A layer waits for the gather of what is sharded.
  BlockCost layer;
  const GatherSeconds shared = layer_gathers(a100(), {}, work, layer);
  work.expert = 1;
  EXPECT_GT(layer_gathers(a100(), {}, work, layer).forward, 4 * shared.forward);
  // As many copies of an expert as of the rest, on the same ranks.
  EXPECT_EQ(data_seconds(a100(), {}, work, {0, kMany}, 0), data_seconds(a100(), {}, work, {kMany, 0}, 0));
  EXPECT_EQ(update_seconds(a100(), work, {0, kMany}), update_seconds(a100(), work, {kMany, 0}));
}

// --zero-group-size 8 on nodes of eight: weights are gathered within a node, a rank's slice is summed over the nodes.
TEST(PlanStepTime, GroupsOfZeroGatherWithinTheirNode) {
  Workload work = small_gpt();
  work.data = 32;
  work.zero_stage = 3;
  constexpr double kMany = 1e9, kBytes = 4;
  const HeldWeights held{kMany, 0};
  const Ring node{8, 8}, nodes{4, 1};
  const double whole = gather_seconds(a100(), {}, work, held, kBytes);
  EXPECT_EQ(scatter_seconds(a100(), {}, work, held, kBytes), whole);
  const double updated = update_seconds(a100(), work, held);
  work.zero_groups = 4;
  const double inside = gather_seconds(a100(), {}, node, kMany * kBytes);
  EXPECT_EQ(gather_seconds(a100(), {}, work, held, kBytes), inside);
  EXPECT_LT(inside, whole);
  EXPECT_EQ(scatter_seconds(a100(), {}, work, held, kBytes),
            inside + 2 * gather_seconds(a100(), {}, nodes, kMany * kBytes / 8));
  EXPECT_NEAR(update_seconds(a100(), work, held), 4 * updated, 0.01 * updated);
  // Groups that share a node: two of four ranks.
  work.data = 8;
  work.zero_groups = 2;
  EXPECT_EQ(gather_seconds(a100(), {}, work, held, kBytes),
            gather_seconds(a100(), {}, Ring{4, 4}, kMany * kBytes));
  // Six ranks hold the same experts: they cannot form four groups, so each keeps them whole.
  work.data = 24;
  work.expert = 4;
  work.zero_groups = 4;
  EXPECT_EQ(gather_seconds(a100(), {}, work, {0, kMany}, kBytes), 0);
  EXPECT_GT(scatter_seconds(a100(), {}, work, {0, kMany}, kBytes), 0);
}

TEST(PlanBlockCosts, ATensorRankSendsExpertsItsOwnRows) {
  Workload work = small_gpt();
  work.experts = 8;
  work.choices = 2;
  work.data = 4;
  const PartSeconds whole = exchange_of(work, {});
  EXPECT_NEAR(whole.forward, 2 * whole.weight, 1e-9 * whole.forward);
  EXPECT_NEAR(whole.input, 2 * whole.weight, 1e-9 * whole.forward);
  work.tensor = 4;
  work.sequence_parallel = true;
  const PartSeconds cut = exchange_of(work, {});
  EXPECT_NEAR(cut.forward, whole.forward / 4, 1e-9 * whole.forward);
  EXPECT_NEAR(cut.weight, whole.weight / 4, 1e-9 * whole.forward);
}

TEST(PlanBlockCosts, ExchangesAreRepeatedWhereLayersAre) {
  Workload work = small_gpt();
  work.experts = 8;
  work.choices = 2;
  work.data = 4;
  work.recompute = RecomputeGranularity::Full;
  Software software;
  for (const double fraction : {1.0, 0.25}) {
    software.recompute_fraction = fraction;
    const PartSeconds seconds = exchange_of(work, software);
    EXPECT_NEAR(seconds.input, (2 + 2 * fraction) * seconds.weight, 1e-9 * seconds.input);
  }
}

}  // namespace
}  // namespace trifold
