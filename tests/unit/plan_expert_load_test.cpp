// What a plan says of experts whose load is uneven, and of the two ways in which tokens reach them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config/commands/validate.h"
#include "support/planned_runs.h"
#include "support/plans.h"
#include "support/training.h"

namespace trifold::test {
namespace {

PlanConfig shared_experts(int64_t choices, double load = 1, std::optional<double> factor = {}) {
  PlanConfig config;
  PretrainConfig& run = config.run;
  run = small_run();
  run.model.num_experts = 16;
  run.model.moe_router_topk = choices;
  run.model.disable_bias_linear = true;
  run.mesh.ranks = 4;
  run.mesh.data_parallel_size.reset();
  run.mesh.expert_model_parallel_size = 4;
  run.mesh.moe_buffer_factor = factor;
  run.batch.micro_batch_size = 1;
  run.batch.global_batch_size = 8;
  config.moe_load_imbalance = load;
  config.link_latency = 0;
  return config;
}

// Of a step.
double seconds(PlanConfig config, double bandwidth, std::optional<std::string> hardware = {}) {
  config.hardware = hardware;
  if (hardware)
    config.link_latency = PlanConfig().link_latency;  // not with a device
  else
    config.link_bandwidth = bandwidth;
  return report_of(resolve(config)).step_seconds;
}

TEST(PlanExpertLoad, TheBusiestRankSetsTheTime) {
  constexpr double kFast = 1e9;
  const double even = seconds(shared_experts(2), kFast);
  const double twice = seconds(shared_experts(2, 2), kFast);
  const double four = seconds(shared_experts(2, 4), kFast);
  EXPECT_GT(twice, even);
  EXPECT_NEAR(four - twice, 2 * (twice - even), 1e-9 * even) << "as many rows more";
  // Only the experts' products are of more rows: one with h x f and one with f x h numbers, three times each.
  const PlanConfig config = resolve(shared_experts(2));
  const ModelConfig& model = config.run.model;
  const double products = 3.0 * 2 * 2 * static_cast<double>(model.seq_length * model.hidden_size) * 2 *
                          static_cast<double>(*model.ffn_hidden_size * model.num_layers);
  EXPECT_NEAR(twice - even, 2 * products / (config.peak_gflops * 1e9), 1e-4 * even) << "2 micro-batches";
  for (const char* hardware : {"a100-80gb", "h100"})
    EXPECT_GT(seconds(shared_experts(2, 2), 0, hardware), seconds(shared_experts(2), 0, hardware));
}

TEST(PlanExpertLoad, RoundsRepeatProductsAndTransfers) {
  const PlanReport one = report_of(resolve(shared_experts(2, 1.5, 2)));
  const PlanReport many = report_of(resolve(shared_experts(2, 3, 1.5)));
  ASSERT_TRUE(one.dispatch && many.dispatch);
  EXPECT_EQ(one.dispatch->rounds, 1);
  EXPECT_EQ(many.dispatch->rounds, 2);
  EXPECT_EQ(report_of(resolve(shared_experts(2, 4, 1))).dispatch->rounds, 4);
  for (const double bandwidth : {1e9, 1e-3})
    EXPECT_GT(seconds(shared_experts(2, 3, 1.5), bandwidth), seconds(shared_experts(2, 3, 3), bandwidth));
  EXPECT_GT(seconds(shared_experts(2, 3, 1.5), 0, "a100-80gb"),
            seconds(shared_experts(2, 3, 3), 0, "a100-80gb"));
}

// Halves of pairs that take turns hide what travels, as far as they compute.
TEST(PlanExpertLoad, TurnsHideTravellingRows) {
  PlanConfig config = shared_experts(2);
  config.run.model.num_layers = 4;
  config.run.mesh.ranks = 8;
  config.run.mesh.pipeline_model_parallel_size = 2;
  config.run.pipeline.schedule = Schedule::DualPipeV;
  config.run.batch.global_batch_size = 64;
  PlanConfig turns = config;
  turns.run.mesh.overlap_moe_expert_parallel_comm = true;
  EXPECT_LT(seconds(turns, 0, "h100"), seconds(config, 0, "h100"));
  constexpr double kSlow = 0.05, kFast = 1e9;
  turns.peak_gflops = config.peak_gflops = 10;  // rows travel about as long as a half computes
  EXPECT_LT(seconds(turns, kSlow), 0.85 * seconds(config, kSlow));
  // A pair begins when both halves can.
  EXPECT_GE(seconds(turns, kFast), seconds(config, kFast));
  turns.link_bandwidth = config.link_bandwidth = kSlow;
  const PlanReport report = report_of(resolve(turns));
  EXPECT_GT(report.turns, 0);
  EXPECT_LE(report.turns, report.pairs);
  EXPECT_EQ(report.seconds_without_turns, report_of(resolve(config)).step_seconds);
  // Rounds are not left to the other half.
  for (PlanConfig* each : {&turns, &config}) {
    each->moe_load_imbalance = 3;
    each->run.mesh.moe_buffer_factor = 1.5;
  }
  EXPECT_GE(seconds(turns, kSlow), seconds(config, kSlow));
  turns.run.batch.global_batch_size = 16;  // 4 micro-batches on 2 ranks
  EXPECT_NO_THROW(report_of(resolve(turns)));
}

// With plain layers, uneven stages, few and many micro-batches, transfers shorter and longer than what can hide them, and
// messages for which pairs wait.
TEST(PlanExpertLoad, TheClosedFormCountsTurnsAsTheSimulatorDoes) {
  struct Case {
    int pipeline;
    int64_t layers, micros;
    const char* expert_layers = "1";
    const char* links = "nvlink-gbytes=450";
    RecomputeGranularity recompute = RecomputeGranularity::None;
  };
  double error = 0, error_apart = 0;
  for (const Case& each :
       {Case{2, 8, 16}, Case{4, 16, 32}, Case{4, 16, 8}, Case{2, 7, 24, "[0]*3+[1]*4"},
        Case{4, 16, 32, "1", "nvlink-gbytes=20"}, Case{8, 32, 64}, Case{4, 16, 64, "1", "adapter-gbytes=10"},
        Case{2, 8, 16, "1", "nvlink-gbytes=60", RecomputeGranularity::Full}}) {
    SCOPED_TRACE(fmt::format("{} stages, {} layers ({}), {} micro-batches, {}", each.pipeline, each.layers,
                             each.expert_layers, each.micros, each.links));
    PlanConfig config;
    PretrainConfig& run = config.run;
    run = gpt_of({each.layers, 2048, 16, 2048, 1024}, 4 * each.pipeline);
    run.model.num_experts = 16;
    run.model.moe_router_topk = 4;
    run.model.moe_ffn_hidden_size = 1024;
    run.model.moe_layer_freq = each.expert_layers;
    run.model.disable_bias_linear = true;
    run.precision.bf16 = true;
    run.mesh.pipeline_model_parallel_size = each.pipeline;
    run.mesh.expert_model_parallel_size = 4;
    run.mesh.recompute_granularity = each.recompute;
    run.pipeline.schedule = Schedule::DualPipeV;
    run.batch.micro_batch_size = 1;
    run.batch.global_batch_size = 4 * each.micros;
    config.hardware = "h100";
    config.hardware_set = {each.links};
    const auto times = [&](bool turns) {
      config.run.mesh.overlap_moe_expert_parallel_comm = turns;
      const PlanReport report = report_of(resolve(config));
      return std::pair{report.forecast->closed_form.all(), report.step_seconds};
    };
    const auto [closed_apart, apart] = times(false);
    const auto [closed, simulated] = times(true);
    EXPECT_GT(apart, simulated);
    EXPECT_NEAR(closed / simulated, 1, 0.05);
    error += std::abs(closed / simulated - 1);
    error_apart += std::abs(closed_apart / simulated - 1);
  }
  EXPECT_GT(error_apart, 5 * error);
}

// Context ranks wait for each other's routers.
TEST(PlanExpertLoad, RoutersOfContextRanksTakeTime) {
  PlanConfig config = shared_experts(2);
  config.run.mesh.expert_model_parallel_size = 1;
  config.run.mesh.context_parallel_size = 4;
  const double bandwidth = 0.01;
  const auto plan_with = [&](std::optional<double> capacity, RouterBalance balance) {
    PlanConfig one = config;
    one.run.model.moe_expert_capacity_factor = capacity;
    one.run.model.moe_router_load_balancing_type = balance;
    one.link_bandwidth = bandwidth;
    return report_of(resolve(one));
  };
  const PlanReport known = plan_with({}, RouterBalance::GlobalAuxLoss);
  const ModelConfig& model = config.run.model;
  const double passes = static_cast<double>(8 * model.num_layers);  // of a rank in a step
  const auto expect_more = [&](const PlanReport& report, double bytes) {
    EXPECT_EQ(report.traffic[0].context - known.traffic[0].context, passes * bytes);
    EXPECT_NEAR(report.step_seconds - known.step_seconds, passes * bytes / (bandwidth * 1e9),
                1e-6 * known.step_seconds);
  };
  const double counts = 3 * 16 * 4;
  expect_more(plan_with({}, RouterBalance::SequenceAuxLoss), counts);
  expect_more(plan_with({}, RouterBalance::AuxLoss), counts);  // one sample each
  const double choices = 0.75 * static_cast<double>(model.seq_length) * 2 * (4 + 4);
  expect_more(plan_with(1.25, RouterBalance::GlobalAuxLoss), choices);
  expect_more(plan_with(1.25, RouterBalance::SequenceAuxLoss), choices + counts);
  config.hardware = "h100";
  config.link_latency = PlanConfig().link_latency;
  const auto seconds_of = [&](std::optional<double> capacity) {
    PlanConfig one = config;
    one.run.model.moe_expert_capacity_factor = capacity;
    const PlanReport report = report_of(resolve(one));
    return std::pair{report.step_seconds, report.forecast->closed_form.context};
  };
  EXPECT_GT(seconds_of(1.25).first, seconds_of({}).first);
  EXPECT_GT(seconds_of(1.25).second, seconds_of({}).second);
}

TEST(PlanExpertLoad, AnImpossibleLoadIsRejected) {
  const auto message = [](const PlanConfig& config) -> std::string {
    try {
      resolve(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message(shared_experts(2, 5))
                .find("--moe-load-imbalance 5 is not possible with "
                      "--expert-model-parallel-size 4: give at most 4"),
            std::string::npos);
  PlanConfig dropping = shared_experts(2, 3);
  dropping.run.model.moe_expert_capacity_factor = 2;
  EXPECT_NE(message(dropping).find(
                "--moe-load-imbalance 3 is not possible with --moe-expert-capacity-factor 2: give at most 2"),
            std::string::npos)
      << message(dropping);
  dropping.moe_load_imbalance = 2;
  EXPECT_EQ(message(dropping), "");
  // The capacity is a whole number of rows: 3 of a mean of 2.
  ASSERT_EQ(dropping.run.model.seq_length, 16);
  dropping.run.model.moe_expert_capacity_factor = 1.1;
  dropping.moe_load_imbalance = 1.6;
  EXPECT_NE(message(dropping).find("--moe-expert-capacity-factor 1.1: give at most 1.5"), std::string::npos)
      << message(dropping);
  dropping.moe_load_imbalance = 1.5;
  EXPECT_EQ(message(dropping), "");
  EXPECT_NE(message(shared_experts(8, 3))
                .find("--moe-load-imbalance 3 is not possible with --num-experts 16 and --moe-router-topk 8: "
                      "give at most 2"),
            std::string::npos)
      << message(shared_experts(8, 3));
  PlanConfig alone = shared_experts(2, 1.5);
  alone.run.mesh.expert_model_parallel_size = 1;
  EXPECT_NE(message(alone).find("--moe-load-imbalance 1.5 has no effect, because no ranks share experts"),
            std::string::npos);
}

// Four ranks gather what they would otherwise send to k experts.
TEST(PlanExpertLoad, TheCheaperWayToExperts) {
  for (const int64_t choices : {1, 2, 4, 8}) {
    PlanConfig config = shared_experts(choices);
    config.run.model.moe_router_pre_softmax = true;
    const PlanReport sent = report_of(resolve(config));
    config.run.mesh.moe_token_dispatcher_type = TokenDispatcher::AllGather;
    const PlanReport gathered = report_of(resolve(config));
    ASSERT_TRUE(sent.dispatch && gathered.dispatch);
    EXPECT_EQ(sent.dispatch->all_to_all, sent.traffic[0].experts);
    EXPECT_EQ(gathered.dispatch->all_gather, gathered.traffic[0].experts);
    EXPECT_EQ(gathered.dispatch->all_to_all, sent.dispatch->all_to_all);
    const bool gathering_is_less = sent.dispatch->all_gather < sent.dispatch->all_to_all;
    EXPECT_EQ(gathering_is_less, choices > 4) << choices;
    // Rows of a size that matters beside the latency of one more collective, in which the tokens of rows are gathered.
    config.run.model.hidden_size = 1024;
    config.run.model.ffn_hidden_size = 1024;
    config.run.model.seq_length = config.run.model.max_position_embeddings.emplace(1024);
    for (const char* hardware : {"a100-80gb", "h100"}) {
      PlanConfig other = config;
      other.run.mesh.moe_token_dispatcher_type = TokenDispatcher::AllToAll;
      if (choices == 4) continue;
      EXPECT_EQ(seconds(config, 0, hardware) < seconds(other, 0, hardware), choices > 4) << choices;
    }
  }
}

}  // namespace
}  // namespace trifold::test
