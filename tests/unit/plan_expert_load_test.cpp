// What a plan says of experts whose load is uneven, and of the two ways in which tokens reach them.
#include <gtest/gtest.h>

#include "config/rules/validate.h"
#include "plan/report.h"
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
  return make_plan_report(resolve(config)).step_seconds;
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
  const PlanReport one = make_plan_report(resolve(shared_experts(2, 1.5, 2)));
  const PlanReport many = make_plan_report(resolve(shared_experts(2, 3, 1.5)));
  ASSERT_TRUE(one.dispatch && many.dispatch);
  EXPECT_EQ(one.dispatch->rounds, 1);
  EXPECT_EQ(many.dispatch->rounds, 2);
  EXPECT_EQ(make_plan_report(resolve(shared_experts(2, 4, 1))).dispatch->rounds, 4);
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
  const PlanReport report = make_plan_report(resolve(turns));
  EXPECT_GT(report.turns, 0);
  EXPECT_LE(report.turns, report.pairs);
  EXPECT_EQ(report.seconds_without_turns, make_plan_report(resolve(config)).step_seconds);
  // Rounds are not left to the other half.
  for (PlanConfig* each : {&turns, &config}) {
    each->moe_load_imbalance = 3;
    each->run.mesh.moe_buffer_factor = 1.5;
  }
  EXPECT_GE(seconds(turns, kSlow), seconds(config, kSlow));
  turns.run.batch.global_batch_size = 16;  // 4 micro-batches on 2 ranks
  EXPECT_NO_THROW(make_plan_report(resolve(turns)));
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
  PlanConfig alone = shared_experts(2, 1.5);
  alone.run.mesh.expert_model_parallel_size = 1;
  EXPECT_NE(message(alone).find("--moe-load-imbalance 1.5 has no effect: no ranks share experts"),
            std::string::npos);
}

// Four ranks gather what they would otherwise send to k experts.
TEST(PlanExpertLoad, TheCheaperWayToExperts) {
  for (const int64_t choices : {1, 2, 4, 8}) {
    PlanConfig config = shared_experts(choices);
    config.run.model.moe_router_pre_softmax = true;
    const PlanReport sent = make_plan_report(resolve(config));
    config.run.mesh.moe_token_dispatcher_type = TokenDispatcher::AllGather;
    const PlanReport gathered = make_plan_report(resolve(config));
    ASSERT_TRUE(sent.dispatch && gathered.dispatch);
    EXPECT_EQ(sent.dispatch->all_to_all, sent.traffic[0].experts);
    EXPECT_EQ(gathered.dispatch->all_gather, gathered.traffic[0].experts);
    EXPECT_EQ(gathered.dispatch->all_to_all, sent.dispatch->all_to_all);
    const bool gathering_is_less = sent.dispatch->all_gather < sent.dispatch->all_to_all;
    EXPECT_EQ(gathering_is_less, choices > 4) << choices;
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
