// Experts spread over ranks: what a token gets has the bits of ranks that hold all experts; only the gradients of
// experts' weights are summed in another order.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "support/expert_runs.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

// 8 experts of which a token chooses 2, or in a Llama 3, on so many data-parallel ranks of which `ep` share them.
PretrainConfig expert_run(int dp, int ep, bool f64, bool llama = false) {
  PretrainConfig config = on_mesh(run_with_experts(8, f64), dp);
  if (llama) make_llama(config.model, 2);
  if (llama) config.model.moe_router_topk = 3;
  config.mesh.expert_model_parallel_size = ep;
  return config;
}

// Before the first update weights are the same.
TEST(Experts, TheFirstLossHasTheBitsOfRanksThatHoldAll) {
  for (const bool llama : {false, true}) {
    const Curve all = train(expert_run(8, 1, false, llama), 1);
    for (const int ep : {2, 4, 8}) {
      const Curve cut = train(expert_run(8, ep, false, llama), 1);
      EXPECT_EQ(cut.losses, all.losses) << "ep " << ep;
      EXPECT_EQ(cut.balances, all.balances) << "ep " << ep;
      EXPECT_EQ(cut.router_sizes, all.router_sizes) << "ep " << ep;
      EXPECT_LT(relative_error(cut.grad_norms[0], all.grad_norms[0]), 1e-6) << "ep " << ep;
    }
  }
}

// The gradients of a step, whole, by the names of parameters.
using Gradients = std::map<std::string, std::vector<double>>;
Gradients gradients_of(const PretrainConfig& config) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  std::mutex mutex;
  Gradients all;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    trainer.step();
    const ParamList& params = trainer.replica().layout().params();
    const FlatLayout& layout = trainer.replica().layout().flat();
    const std::lock_guard lock(mutex);
    for (const FlatLayout::Unit& unit : layout.units())
      for (const FlatLayout::Segment& segment : layout.segments(unit, {})) {
        const ShardSpec& spec = params[segment.id].shard;
        if (!counts_here(spec, trainer.replica().mesh().coords())) continue;
        std::vector<double>& whole = all[spec.name];
        whole.resize(static_cast<size_t>(spec.global.elements()));
        // Cut on the first dim alone: a part is a range.
        const int64_t row = spec.global.elements() / spec.global[0];
        const auto* from = trainer.grads().grad(segment.id).as<double>();
        std::copy_n(from, spec.local.elements(), whole.begin() + spec.local.offset[0] * row);
      }
  });
  return all;
}

TEST(Experts, OnlyTheirWeightsGradientsAreSummedInAnotherOrder) {
  for (const int ep : {2, 4}) {
    PretrainConfig config = expert_run(4, 1, true);
    const Gradients all = gradients_of(config);
    config.mesh.expert_model_parallel_size = ep;
    const Gradients cut = gradients_of(config);
    ASSERT_EQ(cut.size(), all.size());
    for (const auto& [name, values] : all) {
      const std::vector<double>& mine = cut.at(name);
      if (name.find(".experts.") == std::string::npos)
        EXPECT_EQ(first_difference<double>(mine, values), kSame) << name;
      else
        EXPECT_LT(relative_error(mine, values), 1e-12) << name;
      EXPECT_GT(std::accumulate(values.begin(), values.end(), 0.0,
                                [](double sum, double x) { return sum + x * x; }),
                0)
          << name;
    }
  }
}

TEST(Experts, CurvesAgreeOnEveryMesh) {
  const Curve one = train_and_evaluate(expert_run(1, 1, true));
  for (const auto& [dp, ep] : {std::pair(2, 2), {4, 2}, {4, 4}, {8, 4}, {8, 8}}) {
    const Curve cut = train_and_evaluate(expert_run(dp, ep, true));
    EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11) << "dp " << dp << " ep " << ep;
    EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10) << "dp " << dp << " ep " << ep;
    EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11) << "dp " << dp << " ep " << ep;
  }
}

// With tensor ranks beside them, which cut sequences in parts and send their own rows.
TEST(Experts, TensorRanksSendTheirRows) {
  for (const bool shared : {false, true}) {
    PretrainConfig base = expert_run(1, 1, true);
    if (shared) base.model.moe_shared_expert_intermediate_size = 16;
    const Curve one = train_and_evaluate(base);
    for (const ExpertMesh& mesh : {ExpertMesh{.tp = 2},
                                   {.tp = 4, .ep = 4},
                                   {.dp = 2, .tp = 2, .ep = 2, .zero = 1},
                                   {.dp = 2, .tp = 2, .ep = 4, .zero = 3},
                                   {.dp = 2, .tp = 4, .ep = 8, .zero = 2},
                                   {.dp = 2, .tp = 2, .pp = 2, .ep = 4, .zero = 1}}) {
      SCOPED_TRACE(mesh.name());
      expect_alike(train_and_evaluate(mesh.of(base)), one);
    }
  }
}

TEST(Experts, StagesOfZeroAndGroupsChangeNoBit) {
  for (const int ep : {2, 4}) {
    const PretrainConfig config = expert_run(8, ep, false);
    const Curve plain = train_and_evaluate(config);
    for (const int stage : {1, 2, 3}) {
      PretrainConfig sharded = config;
      sharded.zero.zero_stage = stage;
      const Curve curve = train_and_evaluate(sharded);
      EXPECT_EQ(first_difference<double>(curve.losses, plain.losses), kSame) << "stage " << stage;
      EXPECT_EQ(first_difference<double>(curve.grad_norms, plain.grad_norms), kSame) << "stage " << stage;
      EXPECT_EQ(curve.valid_loss, plain.valid_loss) << "stage " << stage;
    }
  }
}

// Of groups that have a slice of the experts for each of their ranks, and of smaller ones.
TEST(Experts, GroupsAndReductionsOfEachMicroBatchAgree) {
  const Curve one = train(expert_run(1, 1, true));
  for (const int ep : {2, 4})
    for (const int group : {2, 4})
      for (const ReducePolicy policy : {ReducePolicy::Once, ReducePolicy::Each}) {
        PretrainConfig config = expert_run(8, ep, true);
        config.batch.global_batch_size = 8;
        config.zero.zero_stage = 2;
        config.zero.zero_group_size = GroupSize{group};
        config.zero.zero_reduce = policy;
        EXPECT_LT(relative_error(train(config).losses, one.losses), 1e-11)
            << "ep " << ep << " group " << group;
      }
}

TEST(Experts, In16BitsTheyAgreeWithinTheirRounding) {
  PretrainConfig config = expert_run(4, 1, false);
  config.precision.bf16 = true;
  const Curve all = train(config);
  config.mesh.expert_model_parallel_size = 4;
  config.zero.zero_stage = 1;
  const Curve cut = train(config);
  EXPECT_EQ(cut.losses[0], all.losses[0]);
  EXPECT_LT(relative_error(cut.losses, all.losses), 5e-3);
  config.precision.grad_reduce_in_bf16 = true;
  config.mesh.expert_model_parallel_size = 2;
  EXPECT_LT(relative_error(train(config).losses, all.losses), 2e-2);
}

// Weights of routers that make all tokens choose the same experts, all of them on the first rank: the others get
// no row, and that one all that it has memory for.
TEST(Experts, AllTokensMayChooseTheSame) {
  const auto losses = [](int ep, bool f64, std::optional<double> factor = {},
                         RecomputeGranularity recompute = RecomputeGranularity::None) {
    PretrainConfig config = expert_run(4, ep, f64);
    config.mesh.moe_buffer_factor = factor;
    config.mesh.recompute_granularity = recompute;
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    std::vector<double> seen;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, data.get());
      clear_routers(trainer);
      for (int step = 0; step < 3; ++step) {
        const double loss = trainer.step().loss;
        if (world.rank() == 0) seen.push_back(loss);
      }
      const double valid = trainer.evaluate().loss;
      if (world.rank() == 0) seen.push_back(valid);
    });
    return seen;
  };
  EXPECT_LT(relative_error(losses(4, true), losses(1, true)), 1e-11);
  EXPECT_EQ(losses(4, false)[0], losses(1, false)[0]);
  // In 4 rounds, in many, and in some for a part of the layers.
  for (const double factor : {1.0, 0.13, 3.9}) {
    EXPECT_LT(relative_error(losses(4, true, factor), losses(1, true)), 1e-11) << factor;
    EXPECT_EQ(losses(4, false, factor)[0], losses(1, false)[0]) << factor;
  }
  EXPECT_LT(relative_error(losses(2, true, 0.7, RecomputeGranularity::Selective), losses(1, true)), 1e-11);
  EXPECT_LT(relative_error(losses(4, true, 0.7, RecomputeGranularity::Full), losses(1, true)), 1e-11);
}

// Less memory for what arrives: the same curve, whatever comes in rounds, in every schedule.
TEST(Experts, RoundsChangeNoSumButItsOrder) {
  const Curve one = train_and_evaluate(expert_run(1, 1, true));
  for (const double factor : {0.3, 1.0, 1.2, 2.0}) {
    PretrainConfig config = on_mesh(expert_run(1, 4, true), 4, 1, 2);
    config.model.num_layers = 3;
    config.mesh.moe_buffer_factor = factor;
    for (const char* schedule : {"1f1b", "zb-h1"}) {
      const Curve cut = train_and_evaluate(scheduled(config, schedule));
      EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11) << factor << schedule;
      EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11) << factor << schedule;
    }
  }
}

TEST(Experts, ABufferHasThePlannedSize) {
  const auto bytes = [](std::optional<double> factor, bool tensor) {
    PretrainConfig config = on_mesh(expert_run(1, 8, false), tensor ? 4 : 8, tensor ? 2 : 1);
    config.model.seq_length = config.model.max_position_embeddings.emplace(256);
    config.mesh.sequence_parallel = tensor;
    config.mesh.moe_buffer_factor = factor;
    return planned_activations(config);
  };
  for (const bool tensor : {false, true}) {
    EXPECT_LT(bytes(1.5, tensor), bytes({}, tensor));
    EXPECT_LT(bytes(1.0, tensor), bytes(1.5, tensor));
    EXPECT_EQ(bytes(4.0, tensor), bytes({}, tensor)) << "of 2 choices and one expert, 8 x 1 / 2 can arrive";
  }
}

// Ranks whose samples have run out go forward with those that still have some.
TEST(Experts, EvaluationNeedsNoFullRounds) {
  const auto loss = [](int dp, int ep, int64_t samples) {
    PretrainConfig config = expert_run(dp, ep, true);
    config.batch.micro_batch_size = 2;
    return first_evaluation(config, samples);
  };
  for (const int64_t samples : {1, 5, 8, 11}) {
    EXPECT_LT(relative_error(loss(4, 4, samples), loss(1, 1, samples)), 1e-13) << samples;
    EXPECT_LT(relative_error(loss(4, 2, samples), loss(1, 1, samples)), 1e-13) << samples;
  }
}

// A plan says what ranks hold, and where tokens choose evenly, what they send.
TEST(Experts, APlanPredictsTheirMemoryAndTraffic) {
  for (const auto recompute : {RecomputeGranularity::None, RecomputeGranularity::Full}) {
    PretrainConfig config = expert_run(4, 4, false);
    config.model.seq_length = config.model.max_position_embeddings.emplace(256);
    config.mesh.recompute_granularity = recompute;
    config.zero.zero_stage = 1;
    const PlanReport report = plan_of(config);
    EXPECT_EQ(report.experts, 4);
    const std::vector<double> sent = sent_in_a_step(config, report, kExpertShareAxes, expect_planned_memory);
    EXPECT_NEAR(std::accumulate(sent.begin(), sent.end(), 0.0) / 4 / report.traffic[0].experts, 1, 0.1);
  }
}

// Tensor ranks gather logits of routers, and gradients of gates.
TEST(Experts, APlanPredictsTheTrafficOfTensorRanks) {
  for (const bool shared : {false, true})
    for (const auto recompute : {RecomputeGranularity::None, RecomputeGranularity::Full}) {
      PretrainConfig config = on_mesh(expert_run(1, 1, false), 2, 2);
      config.mesh.sequence_parallel = true;
      config.mesh.expert_model_parallel_size = 4;
      config.mesh.recompute_granularity = recompute;
      if (shared) config.model.moe_shared_expert_intermediate_size = 16;
      config.zero.zero_stage = 1;
      const PlanReport report = plan_of(config);
      for (const double sent : sent_in_a_step(config, report, {Axis::Tp}, expect_planned_memory))
        EXPECT_NEAR(sent / report.traffic[0].tensor, 1, 0.02);
    }
}

}  // namespace
}  // namespace trifold::test
