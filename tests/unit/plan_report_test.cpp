// The report of `trifold plan` against real runs and published numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>

#include "config/commands/validate.h"
#include "config/fields/schedule.h"
#include "support/planned_runs.h"
#include "support/plans.h"
#include "support/refusal.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// GPT-3 on 1536 ranks: 12 copies of pipelines of 16 ranks of 8 tensor ranks.
PlanConfig gpt3() {
  PretrainConfig run = gpt_of({96, 12288, 96, 2048, 51200}, 1536);
  run.mesh.tensor_model_parallel_size = 8;
  run.mesh.pipeline_model_parallel_size = 16;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = 1536;
  return plan_config(run);
}

TEST(PlanReport, KnowsThePublishedNumbersOfGpt3) {
  const auto start = std::chrono::steady_clock::now();
  const PlanReport report = report_of(gpt3());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));  // sanitizers included
  EXPECT_NEAR(static_cast<double>(report.parameters), 174.6e9, 0.1e9);
  EXPECT_NEAR(report.flops, 3.341e18, 0.001e18);  // Megatron-LM's counter for this model and batch
  EXPECT_EQ(report.stages.size(), 16U);
  EXPECT_EQ(report.micros, 128);
  EXPECT_EQ(report.memory.size(), 16U);
  // A layer sends 8 b s h (t - 1) / t elements over the tensor axis (arXiv 2104.04473); rank 5 has 6 layers.
  EXPECT_EQ(report.stages[5].layers, 6);
  EXPECT_NEAR(report.traffic[5].tensor, 128 * 6 * 4 * 8.0 * 2048 * 12288 * 7 / 8, 1.0);
  // An inner rank sends an activation forward and a gradient back for each micro-batch.
  EXPECT_NEAR(report.traffic[5].pipeline, 128 * 2 * 4.0 * 2048 * 12288, 1.0);
  EXPECT_NEAR(report.traffic[5].data, 2.0 * 11 / 12 * static_cast<double>(report.memory[5].gradients), 1.0);
  // 12 h^2 + 13 h parameters a layer; norms are whole on every tensor rank.
  const double layer = 12.0 * 12288 * 12288;
  EXPECT_NEAR(static_cast<double>(report.memory[5].parameters), 6 * 4 * layer / 8, 1e-3 * 6 * 4 * layer / 8);
}

// A search sees the same values that a plan reports.
TEST(PlanReport, AgreesWithItsOutcome) {
  PlanConfig config = gpt3();
  config.hardware = "a100-80gb";
  config.run.precision.bf16 = true;
  const PlanReport report = report_of(config);
  const PlanOutcome outcome = outcome_of(config);
  EXPECT_EQ(outcome.step_seconds, report.step_seconds);
  EXPECT_EQ(outcome.bubble, report.simulation.bubble);
  ASSERT_EQ(outcome.memory.size(), report.memory.size());
  size_t most = 0;
  for (size_t rank = 0; rank < report.memory.size(); ++rank) {
    EXPECT_EQ(outcome.memory[rank].predicted_total(), report.memory[rank].predicted_total());
    most = std::max(most, report.memory[rank].predicted_total());
  }
  EXPECT_EQ(outcome.most_bytes(), most);
  EXPECT_EQ(outcome.forecast.value().closed_form.all(), report.forecast.value().closed_form.all());
}

// What a step takes longer on a slower network is what its ranks send: gradients of experts go round the ranks that
// hold the same ones, not round all data-parallel ranks.
TEST(PlanReport, CountsSumsOfExpertsOverTheRanksThatHoldThem) {
  for (const auto& [sharing, parts] : {std::pair(1, 1), {2, 1}, {4, 1}, {1, 2}, {2, 2}}) {
    PlanConfig config;
    PretrainConfig& run = config.run;
    run = on_mesh(small_run(), 4);
    run.model.num_experts = 8;
    run.model.disable_bias_linear = true;
    run.model.untie_embeddings_and_output_weights = true;
    run.mesh.expert_model_parallel_size = sharing;
    run.mesh.expert_tensor_parallel_size = parts;
    config.link_latency = 0;
    constexpr double kSlow = 1, kFast = 4;  // GB/s
    config.link_bandwidth = kSlow;
    const PlanReport slow = report_of(resolve(config));
    config.link_bandwidth = kFast;
    const PlanReport fast = report_of(resolve(config));
    const double sent = slow.traffic[0].data + slow.traffic[0].experts;
    const double expected = sent * 1e-9 * (1 / kSlow - 1 / kFast);
    // Units are filled up to whole slices, which the time leaves out.
    EXPECT_NEAR(slow.step_seconds - fast.step_seconds, expected, 0.03 * expected)
        << sharing << " share " << parts;
  }
}

// The memory that a run has reserved on each rank is what the plan says, byte for byte.
TEST(PlanReport, ForetellsTheMemoryOfEveryRank) {
  PretrainConfig base = small_run();
  base.model.num_layers = 4;
  base.batch.micro_batch_size = 1;
  base.optimizer.clip_grad = 0;  // asynchronous schedules have none
  for (const auto& [name, chunks] : {std::pair("1f1b", 1),
                                     {"zb-h1", 1},
                                     {"interleaved", 2},
                                     {"zb-v", 2},
                                     {"pipedream", 1},
                                     {"pipedream-2bw", 1}}) {
    PretrainConfig config = scheduled(on_mesh(base, 1, 2, 2), name, chunks);
    if (is_async(*find_schedule(name))) config.pipeline.async_window = 3;
    config.mesh.sequence_parallel = chunks == 2;
    const PlanReport report = report_of(plan_config(config));
    const SyntheticTokens data(config.model.seq_length, 7, 11);
    std::vector<MemoryReport> measured(2);
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      // tensor rank 0 of both pipeline ranks
      if (world.rank() % 2 == 0) measured[static_cast<size_t>(world.rank() / 2)] = trainer.memory();
      EXPECT_EQ(trainer.report().plan, to_string(report.plan));
    });
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(report.memory[rank].parameters, measured[rank].parameters) << name << " rank " << rank;
      EXPECT_EQ(report.memory[rank].gradients, measured[rank].gradients) << name << " rank " << rank;
      EXPECT_EQ(report.memory[rank].optimizer, measured[rank].optimizer) << name << " rank " << rank;
      EXPECT_EQ(report.memory[rank].predicted_activations, measured[rank].predicted_activations)
          << name << " rank " << rank;
    }
  }
}

// Memory and traffic of sharded gradients under both policies, on each pipeline rank.
TEST(PlanReport, PredictsMemoryAndTrafficOfReductions) {
  PretrainConfig base = on_mesh(small_run(), 4, 1, 2);
  base.model.num_layers = 5;
  base.batch.micro_batch_size = 1;
  base.batch.global_batch_size = 16;
  base.zero.zero_min_unit_params = 4000;
  struct Policy {
    const char* schedule;
    bool bf16;
  };
  for (const auto& [schedule, bf16] : {Policy{"1f1b", false}, Policy{"zb-h1", false}, Policy{"1f1b", true}})
    for (const int stage : {0, 1, 2, 3})
      for (const int group : {1, 2, 4})
        for (const ReducePolicy policy : {ReducePolicy::Once, ReducePolicy::Each}) {
          if ((stage < 2 || group == 1) && policy == ReducePolicy::Each) continue;
          if (!bf16 && (stage == 0 || group == 1)) continue;  // nothing new
          SCOPED_TRACE(fmt::format("{} bf16 {} stage {} group {} each {}", schedule, bf16, stage, group,
                                   policy == ReducePolicy::Each));
          PretrainConfig config = scheduled(base, schedule);
          config.zero.zero_stage = stage;
          config.zero.zero_group_size = GroupSize{group};
          config.zero.zero_reduce = policy;
          config.precision.grad_reduce_in_bf16 = bf16;
          const PlanReport report = report_of(plan_config(config));
          ASSERT_EQ(report.reductions.size(), stage < 2 || group == 1 ? 0U : 2U);
          const SyntheticTokens data(config.model.seq_length, 7, 11);
          run_on_ranks(config.mesh, [&](Communicator& world) {
            Trainer trainer(world, config, data, nullptr);
            const DataGroups& groups = trainer.replica().groups();
            const auto sent = [&] { return groups.shard().bytes_sent() + groups.replicas().bytes_sent(); };
            const int64_t before = sent();
            trainer.step();
            const auto rank = static_cast<size_t>(trainer.replica().mesh().coord(Axis::Pp));
            EXPECT_EQ(static_cast<double>(sent() - before), report.traffic[rank].data) << "rank " << rank;
            EXPECT_EQ(trainer.memory().gradients, report.memory[rank].gradients) << "rank " << rank;
          });
        }
}

// Keys and values gathered forward and back, and their gradients summed, or sent round a ring, or heads exchanged,
// on each pipeline rank.
TEST(PlanReport, PredictsMemoryAndTrafficOfContextRanks) {
  for (const auto exchange : {ContextExchange::AllGather, ContextExchange::AllToAll, ContextExchange::Ring})
    for (const auto recompute : {RecomputeGranularity::None, RecomputeGranularity::Full}) {
      const bool bf16 = recompute == RecomputeGranularity::Full;
      PretrainConfig config = on_mesh(small_run(), 1, 2, 2, 2);
      // Exchanged heads: a tensor rank's one key head is on both context ranks.
      make_llama(config.model, exchange == ContextExchange::AllToAll ? 2 : 4);
      config.model.num_layers = 5;
      config.mesh.cp_comm_type = exchange;
      config.mesh.sequence_parallel = true;
      config.mesh.recompute_granularity = recompute;
      config.precision.bf16 = bf16;
      config.zero.zero_stage = 1;
      const PlanReport report = report_of(plan_config(config));
      EXPECT_EQ(report.context, 2);
      const SyntheticTokens data(config.model.seq_length, 7, 11);
      run_on_ranks(config.mesh, [&](Communicator& world) {
        Trainer trainer(world, config, data, nullptr);
        const Mesh& mesh = trainer.replica().mesh();
        const int64_t before = mesh.comm({Axis::Cp}).bytes_sent();
        trainer.step();
        const auto rank = static_cast<size_t>(mesh.coord(Axis::Pp));
        EXPECT_EQ(static_cast<double>(mesh.comm({Axis::Cp}).bytes_sent() - before),
                  report.traffic[rank].context);
        EXPECT_EQ(trainer.memory().predicted_activations, report.memory[rank].predicted_activations);
        EXPECT_EQ(trainer.memory().optimizer, report.memory[rank].optimizer);
      });
    }
}

// A ring sends as much behind attention, as far as its products take as long, but for the gradients that come home last;
// gathering waits for a group of heads.
TEST(PlanReport, ReportsTheWaitsOfContextRanks) {
  PretrainConfig config = on_mesh(small_run(), 1, 1, 1, 4);
  config.model.seq_length = config.model.max_position_embeddings.emplace(4096);
  const auto exchanges = [&](ContextExchange exchange, double bandwidth) {
    config.mesh.cp_comm_type = exchange;
    PlanConfig plan = plan_config(config);
    plan.link_latency = 0;
    plan.link_bandwidth = bandwidth;
    const PlanReport report = report_of(plan);
    EXPECT_EQ(report.exchanges.size(), 1U);
    return report.exchanges[0];
  };
  const ContextSeconds heads = exchanges(ContextExchange::AllToAll, 100);
  EXPECT_EQ(heads.hidden, 0);
  EXPECT_GT(heads.exposed, 0);
  ContextSeconds gathered = exchanges(ContextExchange::AllGather, 1e9);
  EXPECT_NEAR(gathered.hidden, 3 * gathered.exposed,
              1e-6 * gathered.hidden);  // all but the first of four heads
  config.mesh.threads_per_rank = 2;     // each group has a head for each
  gathered = exchanges(ContextExchange::AllGather, 1e9);
  EXPECT_NEAR(gathered.hidden, gathered.exposed, 1e-6 * gathered.hidden);
  config.mesh.threads_per_rank = 4;
  gathered = exchanges(ContextExchange::AllGather, 100);
  EXPECT_EQ(gathered.hidden, 0);
  EXPECT_GT(gathered.exposed, 0);
  const ContextSeconds ring = exchanges(ContextExchange::Ring, 1e9);
  EXPECT_NEAR(ring.hidden, 8 * ring.exposed,
              1e-6 * ring.hidden);  // of three moves of keys, twice, and of gradients
  const ContextSeconds slow = exchanges(ContextExchange::Ring, 100);
  EXPECT_NEAR(slow.hidden + slow.exposed, gathered.exposed, 1e-12 * gathered.exposed);
  EXPECT_GT(slow.hidden, 0);
  EXPECT_GT(slow.exposed, 0);
  // Three of four steps of two attention products in forward and all steps of four in backward, of 2 x 4096^2 / 2 x 32
  // flops each, in 2 layers of 8 samples.
  EXPECT_NEAR(slow.hidden,
              (0.75 * 2 + 4) * 4096.0 * 4096 * 32 * 2 * 8 / 4 / (plan_config(config).peak_gflops * 1e9),
              1e-9 * slow.hidden);
}

// Gathered in four groups of heads, keys take a quarter of the memory.
TEST(PlanReport, MoreGroupsOfHeadsNeedLessMemory) {
  PretrainConfig config = on_mesh(small_run(), 1, 1, 1, 4);
  config.model.seq_length = config.model.max_position_embeddings.emplace(4096);
  const auto scratch = [&](int threads) {
    config.mesh.threads_per_rank = threads;
    return report_of(plan_config(config)).memory[0].predicted_activations;
  };
  // Twice all keys and values and twice their gradients, of 2 samples of 4096 positions and 2 x 32 columns.
  EXPECT_EQ(scratch(4) - scratch(1), 4U * 2 * 4096 * 64 * 4 * 3 / 4);
}

// More ranks for the positions: less to hold, less to compute, more to send.
TEST(PlanReport, ContextRanksTradeTrafficForMemory) {
  PretrainConfig config = small_run();
  config.model.seq_length = config.model.max_position_embeddings.emplace(256);
  const PlanReport one = report_of(plan_config(config));
  PlanConfig cut = plan_config(on_mesh(config, 1, 1, 1, 4));
  cut.link_latency = 0;  // the model is small
  cut.link_bandwidth = 1e6;
  const PlanReport four = report_of(cut);
  EXPECT_EQ(one.traffic[0].context, 0);
  // Three quarters of keys and values of 8 samples of 256 positions, in 2 layers: two gathers and a sum.
  EXPECT_EQ(four.traffic[0].context, 0.75 * 8 * 256 * 2 * 32 * 4 * 2 * 3);
  EXPECT_LT(2 * four.memory[0].predicted_activations, one.memory[0].predicted_activations);
  EXPECT_LT(four.step_seconds, one.step_seconds / 2);
  EXPECT_EQ(four.flops, one.flops);
}

// Each policy as if it had been chosen: less held, more sent.
TEST(PlanReport, ComparesThePoliciesOfReduction) {
  PretrainConfig config = on_mesh(small_run(), 4);
  config.model.num_layers = 12;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 16;
  config.zero.zero_min_unit_params = 4000;
  config.zero.zero_stage = 2;
  const PlanReport report = report_of(plan_config(config));
  ASSERT_EQ(report.reductions.size(), 2U);
  const ReductionReport &once = report.reductions[0], &each = report.reductions[1];
  EXPECT_TRUE(once.chosen);
  EXPECT_FALSE(each.chosen);
  EXPECT_LT(2 * each.gradients, once.gradients);
  EXPECT_EQ(once.gradients - each.gradients, once.total - each.total);
  EXPECT_EQ(each.sent, once.sent / 2 * 5);  // reduce-scatters of 4 micro-batches and an all-gather
  config.batch.global_batch_size = 4;       // one micro-batch: no choice to regret
  const PlanReport single = report_of(plan_config(config));
  EXPECT_TRUE(single.reductions[1].chosen);
  EXPECT_EQ(single.reductions[0].sent, single.reductions[1].sent);
}

TEST(PlanReport, OneRankIsBusyAllTheTime) {
  PlanConfig config = plan_config(small_run());
  const PlanReport report = report_of(config);
  EXPECT_NEAR(report.simulation.bubble, 0, 1e-12);
  EXPECT_NEAR(report.step_seconds, report.flops / (config.peak_gflops * 1e9), 0.2 * report.step_seconds);
  EXPECT_GT(report.mfu, 0.8);
  EXPECT_LE(report.mfu, 1.0);
  EXPECT_EQ(report.traffic[0].tensor + report.traffic[0].pipeline + report.traffic[0].data, 0);
}

TEST(PlanReport, RecomputationAndSequenceParallelTradeTimeForMemory) {
  PretrainConfig config = on_mesh(small_run(), 1, 2, 2);
  config.model.num_layers = 8;
  const PlanReport kept = report_of(plan_config(config));
  config.mesh.sequence_parallel = true;
  const PlanReport cut = report_of(plan_config(config));
  EXPECT_LT(cut.memory[0].predicted_activations, kept.memory[0].predicted_activations);
  config.mesh.recompute_granularity = RecomputeGranularity::Full;
  const PlanReport again = report_of(plan_config(config));
  EXPECT_LT(again.memory[0].predicted_activations, cut.memory[0].predicted_activations);
  EXPECT_GT(again.step_seconds, 1.1 * cut.step_seconds);
  EXPECT_EQ(again.flops, kept.flops);
}

TEST(PlanReport, AsynchronousSchedulesAreMeansOverTheWindow) {
  PretrainConfig config = scheduled(on_mesh(small_run(), 1, 1, 2), "pipedream-2bw");
  config.optimizer.clip_grad = 0;
  config.pipeline.async_window = 20;
  const PlanReport report = report_of(plan_config(config));
  EXPECT_EQ(report.batches, 20);
  EXPECT_EQ(report.micros, 4);
  const PlanReport synchronous = report_of(plan_config(on_mesh(small_run(), 1, 1, 2)));
  EXPECT_LT(report.step_seconds, synchronous.step_seconds);
  EXPECT_LT(report.simulation.bubble, synchronous.simulation.bubble);
}

std::string refusal_of(const PlanConfig& config) {
  return refusal([&] { report_of(config); });
}

TEST(PlanReport, RefusesMoreMemoryThanThereIs) {
  PlanConfig config = gpt3();
  config.run.batch.global_batch_size = 192;  // as much memory as with all micro-batches, and fewer actions
  config.run.mesh.memory_limit = 40;
  const std::string text = refusal_of(config);
  EXPECT_NE(text.find("pipeline rank 0 needs "), std::string::npos) << text;
  EXPECT_NE(text.find("--recompute-granularity"), std::string::npos) << text;
  config.run.mesh.memory_limit = 1e6;
  EXPECT_NO_THROW(report_of(config));
}

TEST(PlanReport, TakesMeasuredTimes) {
  const std::string file = testing::TempDir() + "trifold_costs_" + std::to_string(getpid()) + ".json";
  const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  PlanConfig config = plan_config(on_mesh(small_run(), 1, 1, 2));
  config.costs = file;
  const std::string sizes =
      R"({"blocks": {"hidden_size": 32, "seq_length": 16, "tensor_model_parallel_size": 1,)"
      R"("message_latency": 0, "bytes_per_second": 1e30, "update_seconds": 0,)"
      R"("embedding": {"f": 0, "i": 0, "w": 0}, "layer": {"f": 1, "i": 1, "w": 1}, "head": {"f": 0, "i": 0, "w": 0},)"
      R"("micro_batch_size": )";
  // Cut into embedding + layer and layer + head, or nearly so: a stage has one layer of 3 seconds, and 4
  // micro-batches through 2 stages take 4 + 1 rounds.
  write(sizes + "2}}");
  const PlanReport report = report_of(config);
  ASSERT_EQ(report.stages[0].layers, 1);
  EXPECT_NEAR(report.step_seconds, 15, 1e-6);
  EXPECT_NEAR(report.simulation.bubble, 0.2, 1e-9);
  // A whole backward with a cost of its own takes that.
  std::string merged = sizes;
  merged.replace(merged.find(R"("w": 1)"), 6, R"("w": 1, "b": 1.5)");
  write(merged + "2}}");
  EXPECT_NEAR(report_of(config).step_seconds, 12.5, 1e-6);
  merged.replace(merged.find("1.5"), 3, "-1");
  write(merged + "2}}");
  EXPECT_NE(refusal_of(config).find("b is -1 s; from 0 to 1000000 are possible"), std::string::npos);
  write(sizes + "4}}");
  EXPECT_NE(refusal_of(config).find("measured with micro_batch_size 4, this plan has 2"), std::string::npos);
  // Those of a device are not scaled by cores, which the file does not have.
  std::string of_device = sizes;
  of_device.replace(of_device.find(R"({"hidden)"), 1, R"({"device": "cuda", )");
  write(of_device + "2}}");
  EXPECT_NE(refusal_of(config).find("measured with --device cuda, this plan has --device cpu"),
            std::string::npos);
  PlanConfig device = config;
  device.run.mesh.device = ComputeDevice::Cuda;
  EXPECT_NEAR(report_of(device).step_seconds, 15, 1e-6);
  write("{}");
  EXPECT_NE(refusal_of(config).find("bench --what blocks"), std::string::npos);
  write("no json");
  EXPECT_NE(refusal_of(config).find("--costs " + file), std::string::npos);
  std::remove(file.c_str());
  EXPECT_NE(refusal_of(config).find("cannot be opened"), std::string::npos);
}

}  // namespace
}  // namespace trifold::test
