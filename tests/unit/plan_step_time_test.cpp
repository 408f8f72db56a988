#include "plan/forecast/step_time.h"

#include <gtest/gtest.h>

#include "plan/forecast/kernels.h"
#include "plan/forecast/network.h"

namespace trifold {
namespace {

// A GPT of 16 layers on one device, eight micro-batches a step.
PretrainConfig small_gpt() {
  PretrainConfig run;
  run.model.num_layers = 16;
  run.model.hidden_size = 4096;
  run.model.num_attention_heads = 32;
  run.model.ffn_hidden_size = 16384;
  run.model.seq_length = 2048;
  run.model.max_position_embeddings = 2048;
  run.model.vocab_size = 51200;
  run.model.disable_bias_linear = true;
  run.model.normalization = Normalization::RmsNorm;
  run.precision.bf16 = true;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = 8;
  return run;
}

// The same with eight experts, of which a token chooses two.
PretrainConfig small_mixtral(int64_t inner = 16384) {
  PretrainConfig run = small_gpt();
  run.model.num_experts = 8;
  run.model.moe_router_topk = 2;
  run.model.moe_ffn_hidden_size = inner;
  return run;
}

// With data-parallel ranks that have eight micro-batches each.
PretrainConfig on_data_ranks(PretrainConfig run, int ranks) {
  run.mesh.data_parallel_size = ranks;
  run.batch.global_batch_size = 8 * ranks;
  return run;
}

Workload on_pipeline(Workload work, int ranks, int chunks = 1) {
  work.pipeline = ranks;
  work.chunks = chunks;
  const int layers = static_cast<int>(work.layers), stages = ranks * chunks;
  work.stages.layers.clear();
  for (int stage = 0; stage < stages; ++stage)
    work.stages.layers.push_back({layers / stages + (stage < layers % stages ? 1 : 0)});
  return work;
}

Workload work_of(const PretrainConfig& run) {
  return on_pipeline(make_workload(run_spec(run), static_cast<double>(*run.model.vocab_size)), 1);
}

const Hardware& a100() {
  static const Hardware hardware = find_hardware("a100-80gb", DeviceFigures::Fitted);
  return hardware;
}

BlockCosts costs_of(const PretrainConfig& run, const Software& software = {}, bool split = false) {
  return CostsOfModel(a100(), software).of(run_spec(run), split);
}

StepTime time_of(const PretrainConfig& run, const Workload& work, const Software& software = {}) {
  return step_time(a100(), software, work, costs_of(run, software));
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
  const double causal = fused_attention_seconds(a100(), {32, 4096, 4096, 128, 0.5}, 0.4) - launch;
  const double full = fused_attention_seconds(a100(), {32, 4096, 4096, 128, 1}, 0.4) - launch;
  EXPECT_NEAR(full, 2 * causal, 1e-12 * full);

  PretrainConfig run = small_gpt();
  run.model.normalization = Normalization::LayerNorm;
  run.model.disable_bias_linear = false;
  const BlockCosts gpt = costs_of(run);
  run.model.model_type = ModelType::Bert;
  const BlockCosts bert = costs_of(run);
  EXPECT_GT(bert.layers[0].compute.forward, gpt.layers[0].compute.forward);
  EXPECT_NEAR(bert.layers[0].compute.weight, gpt.layers[0].compute.weight,
              1e-9 * gpt.layers[0].compute.weight);
}

TEST(PlanNetwork, RingsKnowTheirPlaceInNodes) {
  Workload work = work_of(small_gpt());
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
  const Ring inside = ring_over(a100(), MeshSizes{{Axis::Tp, 8}, {Axis::Dp, 32}}, {Axis::Tp});
  EXPECT_EQ(inside.nodes(), 1);
  EXPECT_LT(gather_seconds(a100(), {}, inside, kBytes), gather_seconds(a100(), {}, wide, kBytes));
  Software one_adapter;
  one_adapter.adapters_per_collective = 1;
  EXPECT_GT(gather_seconds(a100(), one_adapter, wide, kBytes), 4 * gather_seconds(a100(), {}, wide, kBytes));
}

TEST(PlanStepTime, APipelinesBubbleIsThatOfItsSchedule) {
  PretrainConfig run = small_gpt();
  run.model.vocab_size = 128;  // ends that cost nothing: all stages are alike
  Workload work = on_pipeline(work_of(run), 4);
  const StepTime plain = time_of(run, work);
  EXPECT_NEAR(plain.bubble / plain.compute, 3.0 / 8, 0.01);
  work = on_pipeline(work, 4, 2);
  work.schedule = Schedule::Interleaved;
  EXPECT_NEAR(time_of(run, work).bubble, plain.bubble / 2, 0.02 * plain.bubble);
  work = on_pipeline(work, 4);
  work.schedule = Schedule::ZbH2;
  EXPECT_LT(time_of(run, work).bubble, 0.3 * plain.bubble);
}

TEST(PlanStepTime, ExposedCommunicationTakesTime) {
  const PretrainConfig run = on_data_ranks(small_gpt(), 32);
  Workload work = work_of(run);
  Software hidden, waits;
  waits.overlap_gradients = false;
  EXPECT_GT(time_of(run, work, waits).data, 2 * time_of(run, work, hidden).data);
  work.zero_stage = 3;
  const StepTime sharded = time_of(run, work, hidden);
  EXPECT_GT(sharded.weights, 0);
  EXPECT_EQ(sharded.data, 0);
  EXPECT_LT(sharded.update, time_of(small_gpt(), work_of(small_gpt())).update / 16);
  EXPECT_NEAR(sharded.all(), sharded.compute + sharded.weights + sharded.update, 1e-9);
}

TEST(PlanStepTime, TensorRanksSendAPartOfSomeMessages) {
  Workload work = on_pipeline(work_of(small_gpt()), 4);
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
  const PretrainConfig run = on_data_ranks(small_gpt(), 32);
  Workload work = work_of(run);
  work.zero_stage = 2;
  const double once = time_of(run, work).data;
  work.reduces_each = true;
  EXPECT_GT(time_of(run, work).data, once);
  Software waits;
  waits.overlap_gradients = false;
  const double of_eight = time_of(run, work, waits).data;
  work.micros = 1;
  const double of_one = time_of(run, work, waits).data;
  EXPECT_GT(of_eight, 4 * of_one);  // gradients of 4 bytes eight times, weights of 2 bytes once
  EXPECT_LT(of_eight, 8 * of_one);
}

TEST(PlanStepTime, RecomputationCostsAForward) {
  PretrainConfig run = small_gpt();
  const StepTime kept = time_of(run, work_of(run));
  run.mesh.recompute_granularity = RecomputeGranularity::Full;
  const StepTime again = time_of(run, work_of(run));
  EXPECT_GT(again.compute, 1.2 * kept.compute);
  EXPECT_LT(again.compute, 1.4 * kept.compute);
}

// What sharing experts adds to a layer: without hops, in proportion to bytes.
PartSeconds exchange_of(PretrainConfig run, const Software& software) {
  Hardware hardware = a100();
  hardware.nvlink_latency = 0;
  const auto tensor = [&](int sharing) {
    run.mesh.expert_model_parallel_size = sharing;
    return CostsOfModel(hardware, software).of(run_spec(run), true).layers[0].tensor;
  };
  const PartSeconds alone = tensor(1), shared = tensor(4);
  return {shared.forward - alone.forward, shared.input - alone.input, shared.weight - alone.weight};
}

TEST(PlanNetwork, ExpertsAreHeldByOtherRanksThanTheRest) {
  PretrainConfig run = on_data_ranks(small_mixtral(), 16);
  run.mesh.tensor_model_parallel_size = 2;
  run.mesh.sequence_parallel = true;
  run.mesh.expert_model_parallel_size = 4;
  const Workload work = work_of(run);
  const Ring dense = data_ring(a100(), work);
  EXPECT_EQ(dense.ranks, 16);
  EXPECT_EQ(dense.in_node, 4);
  const Ring experts = expert_data_ring(a100(), work);
  EXPECT_EQ(experts.ranks, 8);  // 2 x 16 ranks of a stage
  EXPECT_EQ(experts.in_node, 2);
  const HeldWeights held = costs_of(run).layers[0].weights;
  EXPECT_NEAR(held.experts, 2 * 2.0 * 4096 * 16384, 1);
  EXPECT_NEAR(held.dense, 4.0 * 4096 * 4096 / 2 + 10 * 4096, 1);
}

// A Mixtral of which some layers have one network of another width: the sum of its layers' parts, on one pipeline rank.
TEST(PlanStepTime, LayersOfTwoKindsAddUp) {
  PretrainConfig run = on_data_ranks(small_mixtral(2048), 16);
  run.model.ffn_hidden_size = 24576;
  run.model.moe_layer_freq = "2";
  run.mesh.expert_model_parallel_size = 4;
  for (const int zero : {0, 3}) {
    run.zero.zero_stage = zero;
    Workload work = work_of(run);
    const auto with_plain = [&](int layers) {
      work.stages.layers = {{layers, 16 - layers}};
      return time_of(run, work);
    };
    const StepTime experts = with_plain(0), plain = with_plain(16), mixed = with_plain(4);
    EXPECT_NEAR(mixed.compute, 0.75 * experts.compute + 0.25 * plain.compute, 1e-9 * mixed.compute);
    EXPECT_NEAR(mixed.tensor, 0.75 * experts.tensor + 0.25 * plain.tensor, 1e-9 * mixed.tensor);
    EXPECT_NEAR(mixed.update, 0.75 * experts.update + 0.25 * plain.update, 1e-3 * mixed.update);
    EXPECT_NE(experts.compute, plain.compute);
  }
}

// The stage with the larger layers is the slowest, unless it has fewer of them.
TEST(PlanStepTime, StagesWaitForTheLargerLayers) {
  PretrainConfig run = small_mixtral(2048);
  run.model.ffn_hidden_size = 65536;
  run.model.moe_layer_freq = "2";
  Workload work = on_pipeline(work_of(run), 4);
  work.stages.layers = {{4, 0}, {0, 4}, {0, 4}, {0, 4}};
  const StepTime even = time_of(run, work);
  work.stages.layers = {{1, 0}, {0, 5}, {0, 5}, {0, 5}};
  const StepTime cut = time_of(run, work);
  EXPECT_LT(cut.compute, 0.6 * even.compute);
}

// One copy of each expert: nothing to sum, and nothing to shard.
TEST(PlanStepTime, ExpertsOfOneRankAreNotSummed) {
  Workload work = work_of(small_mixtral());
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
  layer.weights = {kMany / 10, kMany};
  const GatherSeconds shared = layer_gathers(a100(), {}, work, layer);
  work.expert = 1;
  EXPECT_GT(layer_gathers(a100(), {}, work, layer).forward, 4 * shared.forward);
  // As many copies of an expert as of the rest, on the same ranks.
  EXPECT_EQ(data_seconds(a100(), {}, work, {0, kMany}, 0), data_seconds(a100(), {}, work, {kMany, 0}, 0));
  EXPECT_EQ(update_seconds(a100(), work, {0, kMany}), update_seconds(a100(), work, {kMany, 0}));
}

// --zero-group-size 8 on nodes of eight: weights are gathered within a node, a rank's slice is summed over the nodes.
TEST(PlanStepTime, GroupsOfZeroGatherWithinTheirNode) {
  Workload work = work_of(small_gpt());
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

// Gates travel with rows, and so do the numbers of rows.
TEST(PlanBlockCosts, ATensorRankSendsExpertsItsOwnRows) {
  PretrainConfig run = on_data_ranks(small_mixtral(), 4);
  const PartSeconds whole = exchange_of(run, {});
  EXPECT_NEAR(whole.forward, 2 * whole.weight, 2e-3 * whole.forward);
  EXPECT_NEAR(whole.input, 2 * whole.weight, 2e-3 * whole.forward);
  run.mesh.tensor_model_parallel_size = 4;
  run.mesh.sequence_parallel = true;
  const PartSeconds cut = exchange_of(run, {});
  EXPECT_NEAR(cut.forward, whole.forward / 4, 2e-3 * whole.forward);
  EXPECT_NEAR(cut.weight, whole.weight / 4, 2e-3 * whole.forward);
}

TEST(PlanBlockCosts, ExchangesAreRepeatedWhereLayersAre) {
  PretrainConfig run = on_data_ranks(small_mixtral(), 4);
  run.mesh.recompute_granularity = RecomputeGranularity::Full;
  Software software;
  for (const double fraction : {1.0, 0.25}) {
    software.recompute_fraction = fraction;
    const PartSeconds seconds = exchange_of(run, software);
    EXPECT_NEAR(seconds.input, (2 + 2 * fraction) * seconds.weight, 2e-3 * seconds.input);
  }
}

}  // namespace
}  // namespace trifold
