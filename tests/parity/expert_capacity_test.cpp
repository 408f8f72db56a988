// Experts with a capacity: every mesh drops the same choices, and what is dropped is neither added nor sent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nn/experts.h"
#include "support/compare.h"
#include "support/layer_bench.h"
#include "support/planned_memory.h"
#include "support/ranks.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// 8 experts, of which a token chooses 2, and which take 3 of the 16 tokens of a sequence.
PretrainConfig limited_run(std::optional<double> factor = 0.75,
                           KeptChoices drop = KeptChoices::LargestGates) {
  PretrainConfig config = small_run();
  make_llama(config.model, 2);
  config.model.num_layers = 4;
  config.model.num_experts = 8;
  config.model.moe_router_topk = 2;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_shared_expert_intermediate_size = 16;
  config.model.moe_layer_freq = "[1,0,1,1]";
  config.model.moe_aux_loss_coeff = 0.01;
  config.model.hidden_dropout = 0.1;
  config.model.moe_expert_capacity_factor = factor;
  config.model.moe_token_drop_policy = drop;
  set_four_steps(config);
  return config;
}

struct Limited {
  std::vector<double> losses, norms, dropped;  // the last of every layer with experts and step
  double valid = 0;
};

Limited run_limited(const PretrainConfig& config) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  Limited result;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, data.get());
    while (trainer.steps_done() < config.batch.train_iters)
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        result.losses.push_back(step.loss);
        result.norms.push_back(step.grad_norm);
        result.dropped.insert(result.dropped.end(), step.experts_dropped.begin(), step.experts_dropped.end());
      }
    const double loss = trainer.evaluate().loss;
    if (world.rank() == 0) result.valid = loss;
  });
  return result;
}

TEST(ExpertCapacity, EveryMeshDropsTheSame) {
  for (const KeptChoices drop : {KeptChoices::LargestGates, KeptChoices::FirstTokens}) {
    const PretrainConfig base = limited_run(0.75, drop);
    const Limited one = run_limited(base);
    ASSERT_EQ(one.dropped.size(), 12U);
    EXPECT_GT(*std::min_element(one.dropped.begin(), one.dropped.end()), 0);
    struct Place {
      int dp, tp, pp, ep, zero, micro = 1;
      const char* schedule = "1f1b";
      RecomputeGranularity recompute = RecomputeGranularity::None;
      std::optional<double> buffer = {};
      int cp = 1;
      ContextExchange exchange = ContextExchange::AllGather;
    };
    constexpr RecomputeGranularity kNone = RecomputeGranularity::None;
    for (const Place& place :
         {Place{2, 1, 1, 1, 0}, Place{1, 1, 1, 1, 0, 4}, Place{4, 1, 1, 4, 1}, Place{8, 1, 1, 2, 3},
          Place{1, 2, 1, 2, 0, 2}, Place{2, 2, 2, 4, 2, 1, "zb-h1"},
          Place{2, 1, 2, 2, 3, 2, "1f1b", RecomputeGranularity::Full},
          Place{4, 1, 1, 4, 0, 2, "1f1b", RecomputeGranularity::Selective, 0.4},
          Place{1, 1, 1, 1, 0, 2, "1f1b", kNone, {}, 2},
          Place{2, 1, 1, 4, 1, 2, "1f1b", kNone, {}, 2, ContextExchange::Ring},
          Place{1, 2, 2, 4, 3, 1, "zb-h1", RecomputeGranularity::Full, 0.4, 2}}) {
      SCOPED_TRACE(fmt::format("dp {} tp {} pp {} cp {} ep {} zero {} micro {}", place.dp, place.tp, place.pp,
                               place.cp, place.ep, place.zero, place.micro));
      PretrainConfig config =
          scheduled(on_mesh(base, place.dp, place.tp, place.pp, place.cp), place.schedule);
      if (place.cp > 1) config.mesh.cp_comm_type = place.exchange;
      config.mesh.sequence_parallel = place.tp > 1;
      config.mesh.expert_model_parallel_size = place.ep;
      config.mesh.moe_buffer_factor = place.buffer;
      config.mesh.recompute_granularity = place.recompute;
      config.zero.zero_stage = place.zero;
      config.batch.micro_batch_size = place.micro;
      const Limited cut = run_limited(config);
      EXPECT_EQ(cut.dropped, one.dropped);
      EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
      EXPECT_LT(relative_error(cut.norms, one.norms), 1e-10);
      EXPECT_LT(relative_error(cut.valid, one.valid), 1e-11);
    }
  }
}

// In f32, before the first update; stages and schedules change no bit at all.
TEST(ExpertCapacity, StagesAndExpertRanksKeepTheBits) {
  PretrainConfig base = on_mesh(limited_run(), 4);
  base.precision.f64 = false;
  const Limited one = run_limited(base);
  for (const int ep : {2, 4}) {
    PretrainConfig config = base;
    config.mesh.expert_model_parallel_size = ep;
    EXPECT_EQ(run_limited(config).losses[0], one.losses[0]) << ep;
  }
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    PretrainConfig config = scheduled(on_mesh(limited_run(), 4, 1, 2), schedule);
    config.precision.f64 = false;
    const Limited cut = run_limited(config);
    EXPECT_EQ(cut.losses, one.losses) << schedule;
    EXPECT_EQ(cut.dropped, one.dropped) << schedule;
  }
}

TEST(ExpertCapacity, EnoughIsAsIfThereWasNone) {
  for (const int ep : {1, 4}) {
    const auto curve = [&](std::optional<double> factor, KeptChoices drop) {
      PretrainConfig config = on_mesh(limited_run(factor, drop), 4);
      config.precision.f64 = false;
      config.mesh.expert_model_parallel_size = ep;
      return run_limited(config);
    };
    const Limited none = curve({}, KeptChoices::LargestGates);
    EXPECT_TRUE(none.dropped.empty());
    for (const KeptChoices drop : {KeptChoices::LargestGates, KeptChoices::FirstTokens}) {
      const Limited enough = curve(4, drop);  // 8 experts / 2 choices
      EXPECT_EQ(enough.losses, none.losses);
      EXPECT_EQ(enough.norms, none.norms);
      EXPECT_EQ(enough.valid, none.valid);
      EXPECT_EQ(enough.dropped, std::vector<double>(12, 0.0));
    }
  }
}

TEST(ExpertCapacity, EvaluationDropsNone) {
  const auto loss = [](const PretrainConfig& config) {
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    double valid = 0;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, data.get());
      valid = trainer.evaluate().loss;
    });
    return valid;
  };
  EXPECT_EQ(loss(limited_run(0.1)), loss(limited_run({})));
}

// A tight capacity bounds what arrives, and so the memory of it: 8 ranks with an expert each.
TEST(ExpertCapacity, BoundsThePlannedMemory) {
  const auto bytes = [](std::optional<double> factor) {
    PretrainConfig config = on_mesh(limited_run(factor), 8);
    config.model.seq_length = config.model.max_position_embeddings.emplace(256);
    config.mesh.expert_model_parallel_size = 8;
    return planned_activations(config);
  };
  const size_t none = bytes({}), one = bytes(1.0), two = bytes(2.0);
  EXPECT_LT(one, two);
  EXPECT_LT(two, none);
}

// The layer's output, token by token: 10 tokens in two sequences, 4 experts that take one of each.
TEST(ExpertCapacity, ADroppedChoiceAddsNothing) {
  constexpr int64_t kTokens = 10, kSeq = 5, kWidth = 6, kFfn = 3, kExperts = 4, kChoices = 2;
  constexpr double kFactor = 0.4;  // 5 x 2 / 4 x 0.4 = 1
  constexpr Init kNormal{Init::Kind::Normal, 0.5};
  using Values = LayerBench::Values;
  for (const KeptChoices kept : {KeptChoices::LargestGates, KeptChoices::FirstTokens})
    run_ranks(1, [&](Communicator& world) {
      const Placed rows{Placed::Cut::Stream, {kTokens, kWidth}};
      const auto make = [&](BlockBuilder& b) {
        ExpertsShape shape{kExperts, {kChoices, RouterGate::Chosen, 1}, {}};
        shape.capacity = {kFactor, kept};
        return std::make_unique<Experts>(b, "mlp", shape, kWidth, kFfn, ActivationKind::Gelu, kNormal,
                                         kNormal);
      };
      LayerBench bench(world, false, make, rows, rows, kTokens / kSeq, kSeq, 7);
      const Values x = LayerBench::random(kTokens * kWidth, "x"),
                   dy = LayerBench::random(kTokens * kWidth, "dy");
      const Values &router = bench.weight({0}), &up = bench.weight({1}), &down = bench.weight({2});
      const auto dot = [](const double* a, const double* b, int64_t count) {
        return std::inner_product(a, a + count, b, 0.0);
      };
      struct Choice {
        int64_t token, expert;
        double gate;
      };
      std::vector<Choice> choices;
      for (int64_t t = 0; t < kTokens; ++t) {
        std::vector<std::pair<double, int64_t>> z;
        for (int64_t e = 0; e < kExperts; ++e)
          z.emplace_back(
              -dot(&x[static_cast<size_t>(t * kWidth)], &router[static_cast<size_t>(e * kWidth)], kWidth), e);
        std::sort(z.begin(), z.end());
        const double second = std::exp(z[0].first - z[1].first);
        choices.push_back({t, z[0].second, 1 / (1 + second)});
        choices.push_back({t, z[1].second, second / (1 + second)});
      }
      double expected = 0;
      int dropped = 0;
      for (const Choice& c : choices) {
        const bool first = std::none_of(choices.begin(), choices.end(), [&](const Choice& other) {
          return other.expert == c.expert && other.token / kSeq == c.token / kSeq && other.token != c.token &&
                 (kept == KeptChoices::FirstTokens ? other.token < c.token : other.gate > c.gate);
        });
        if (!first) {
          ++dropped;
          continue;
        }
        for (int64_t j = 0; j < kFfn; ++j) {
          const double z = dot(&x[static_cast<size_t>(c.token * kWidth)],
                               &up[static_cast<size_t>((c.expert * kFfn + j) * kWidth)], kWidth);
          const double a = z / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
          for (int64_t i = 0; i < kWidth; ++i)
            expected += c.gate * a * down[static_cast<size_t>((c.expert * kWidth + i) * kFfn + j)] *
                        dy[static_cast<size_t>(c.token * kWidth + i)];
        }
      }
      EXPECT_GE(dropped, 8);
      const double losses = bench.forward(x, Values(dy.size()));
      EXPECT_LT(relative_error(bench.forward(x, dy) - losses, expected), 1e-12);
    });
}

}  // namespace
}  // namespace trifold::test
