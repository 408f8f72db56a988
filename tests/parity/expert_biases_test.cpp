// Experts and routers with biases, as gpt-oss has them: the layer against plain loops, and training on every mesh.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/experts.h"
#include "parity/gradient_cases.h"
#include "support/expert_runs.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

using Values = LayerBench::Values;

constexpr int64_t kBiasedExperts = 4, kBiasedChoices = 2, kBiasedInner = 10;

// Row `row` of a matrix times x, plus a bias.
double affine_row(const Values& matrix, int64_t row, const double* x, int64_t columns, double bias) {
  double sum = bias;
  for (int64_t c = 0; c < columns; ++c) sum += matrix[static_cast<size_t>(row * columns + c)] * x[c];
  return sum;
}

// gpt-oss's bounded gate, with the constants of kClampedSwiglu.
double bounded_gate(double gate, double up) {
  const double g = std::min(gate, 1.25);
  return g / (1 + std::exp(-1.702 * g)) * (std::clamp(up, -1.25, 1.25) + 1);
}

struct BiasedWeights {
  const Values &router, &router_bias, &up, &up_bias, &down, &down_bias;

  // One expert's output for x [C].
  Values expert(int64_t e, const double* x) const {
    Values inner, y;
    for (int64_t f = 0; f < kBiasedInner; ++f) {
      const int64_t gate = (2 * e) * kBiasedInner + f, linear = (2 * e + 1) * kBiasedInner + f;
      inner.push_back(bounded_gate(affine_row(up, gate, x, kWidth, up_bias[static_cast<size_t>(gate)]),
                                   affine_row(up, linear, x, kWidth, up_bias[static_cast<size_t>(linear)])));
    }
    for (int64_t c = 0; c < kWidth; ++c)
      y.push_back(affine_row(down, e * kWidth + c, inner.data(), kBiasedInner,
                             down_bias[static_cast<size_t>(e * kWidth + c)]));
    return y;
  }

  // The experts with the largest logits, weighted by a softmax over their logits.
  Values layer(const double* x) const {
    std::vector<std::pair<double, int64_t>> logits;
    for (int64_t e = 0; e < kBiasedExperts; ++e)
      logits.emplace_back(affine_row(router, e, x, kWidth, router_bias[static_cast<size_t>(e)]), e);
    std::sort(logits.rbegin(), logits.rend());
    logits.resize(kBiasedChoices);
    double all = 0;
    for (const auto& [logit, e] : logits) all += std::exp(logit);
    Values y(kWidth);
    for (const auto& [logit, e] : logits) {
      const Values one = expert(e, x);
      for (size_t c = 0; c < y.size(); ++c) y[c] += std::exp(logit) / all * one[c];
    }
    return y;
  }
};

TEST(ExpertBiases, ComputeWhatPlainLoopsDo) {
  run_ranks(1, [](Communicator& world) {
    ExpertsShape shape{kBiasedExperts, {kBiasedChoices, RouterGate::Chosen, 1}, {}};
    shape.bias = true;
    const auto make = [&](BlockBuilder& b) {
      return std::make_unique<Experts>(b, "mlp", shape, kWidth, kBiasedInner, kClampedSwiglu, kNormal,
                                       kNormal);
    };
    const Placed rows = stream(kWidth);
    LayerBench bench(world, false, make, rows, rows, kSamples, kPositions, kVocab);
    const auto of = [&](const char* name) -> const Values& {
      return bench.weight(bench.params().find(name));
    };
    const BiasedWeights weights{of("mlp.router.weight"),       of("mlp.router.logits.bias"),
                                of("mlp.experts.up.weight"),   of("mlp.experts.up.bias"),
                                of("mlp.experts.down.weight"), of("mlp.experts.down.bias")};
    const Values x = LayerBench::random(kRows * kWidth, "x");
    const double losses = bench.forward(x, Values(x.size(), 0.0));
    for (int64_t row = 0; row < kRows; ++row) {
      const Values expected = weights.layer(x.data() + row * kWidth);
      for (int64_t c = 0; c < kWidth; ++c) {
        Values one(x.size(), 0.0);
        one[static_cast<size_t>(row * kWidth + c)] = 1;
        EXPECT_NEAR(bench.forward(x, one) - losses, expected[static_cast<size_t>(c)], 1e-12)
            << row << " " << c;
      }
    }
  });
}

// A small gpt-oss.
PretrainConfig biased_run(bool f64) {
  PretrainConfig config = run_with_experts(4, f64);
  ModelConfig& model = config.model;
  make_llama(model, 2);
  model.qk_layernorm = model.swiglu = model.disable_bias_linear = false;
  model.quick_geglu = true;
  model.activation_func_clamp_value = 1.25;
  model.glu_linear_offset = 1;
  model.softmax_type = SoftmaxType::Learnable;
  model.window_size = WindowSize{3, 0};
  model.window_attn_skip_freq = "2";
  model.rope_type = RopeType::Yarn;
  model.rotary_scaling_factor = 4;
  model.original_max_position_embeddings = 8;
  model.rope_no_truncate = true;
  return config;
}

TEST(ExpertBiases, CurvesAgreeOnEveryMesh) {
  const PretrainConfig base = biased_run(true);
  const Curve one = train_and_evaluate(base);
  for (const ExpertMesh& mesh : {ExpertMesh{.dp = 2, .ep = 2},
                                 {.dp = 2, .etp = 2, .zero = 1},
                                 {.tp = 2, .ep = 2},
                                 {.tp = 2, .etp = 2, .zero = 2},
                                 {.dp = 2, .tp = 2, .ep = 2, .etp = 2, .zero = 3},
                                 {.cp = 2, .ep = 2},
                                 {.cp = 2, .etp = 2, .recompute = RecomputeGranularity::Selective},
                                 {.dp = 2, .pp = 2, .ep = 2, .zero = 1, .schedule = "zb-h1"},
                                 {.dp = 2, .ep = 2, .factor = 0.3},
                                 {.dp = 4, .ep = 2, .etp = 2, .zero = 1, .factor = 0.3}}) {
    SCOPED_TRACE(mesh.name());
    expect_alike(train_and_evaluate(mesh.of(base)), one);
  }
}

TEST(ExpertBiases, ZeroAndStagesChangeNoBit) {
  const PretrainConfig base = biased_run(false);
  const Curve one = train_and_evaluate(ExpertMesh{.dp = 4, .ep = 2, .etp = 2}.of(base));
  for (const ExpertMesh& mesh : {ExpertMesh{.dp = 4, .ep = 2, .etp = 2, .zero = 1},
                                 {.dp = 4, .ep = 2, .etp = 2, .zero = 3},
                                 {.dp = 4, .pp = 2, .ep = 2, .etp = 2, .zero = 1}}) {
    SCOPED_TRACE(mesh.name());
    const Curve other = train_and_evaluate(mesh.of(base));
    EXPECT_EQ(other.losses, one.losses);
    EXPECT_EQ(other.grad_norms, one.grad_norms);
    EXPECT_EQ(other.valid_loss, one.valid_loss);
  }
}

}  // namespace
}  // namespace trifold::test
