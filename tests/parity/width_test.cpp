// The coordinate check of muP (Yang et al., arXiv 2203.03466, appendix D): after a few steps the activations of a model
// with transferred rates have the same size at every width; with the same rates for all widths they grow.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/width_rules.h"
#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// Root mean squares of the outputs of layers in the last step, by name.
class Coordinates final : public StepWatch {
 public:
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override {
    if (what != "output") return;
    stream.synchronize();
    double sum = 0;
    for (int64_t i = 0; i < tensor.elements(); ++i) sum += tensor.as<double>()[i] * tensor.as<double>()[i];
    rms[std::string(layer)] = std::sqrt(sum / static_cast<double>(tensor.elements()));
  }
  std::map<std::string, double> rms;
};

PretrainConfig of_width(int64_t width, bool transfers) {
  PretrainConfig config = small_run();
  config.precision.f64 = true;
  config.model.hidden_size = width;
  config.model.ffn_hidden_size = 4 * width;
  config.batch.micro_batch_size = 8;
  config.lr.lr = config.lr.min_lr = 0.02;
  config.lr.lr_decay_style = LrDecayStyle::Constant;
  config.lr.lr_decay_iters.reset();
  config.lr.lr_warmup_iters = 0;
  config.optimizer.weight_decay = 0;
  config.optimizer.clip_grad = 0;
  config.model.init_method_std = 0.1;
  if (transfers) {
    config.model.mup_base_hidden_size = 32;
    config.model.mup_base_head_dim = 8;
  }
  return config;
}

// The outputs in step `steps`, counted from 1.
std::map<std::string, double> coordinates(int64_t width, bool transfers, int steps) {
  const PretrainConfig config = of_width(width, transfers);
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  Coordinates watch;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    trainer.watch(&watch);
    for (int step = 0; step < steps; ++step) trainer.step();
  });
  return watch.rms;
}

// The largest factor between the outputs of a layer at two widths.
double largest_growth(bool transfers, int steps) {
  const auto narrow = coordinates(32, transfers, steps), wide = coordinates(512, transfers, steps);
  EXPECT_GT(narrow.size(), 6U);
  double largest = 1;
  for (const auto& [layer, rms] : narrow) {
    const double factor = wide.at(layer) / rms;
    largest = std::max({largest, factor, 1 / factor});
  }
  return largest;
}

TEST(Width, ActivationsKeepTheirSizeAtEveryWidth) {
  EXPECT_LT(largest_growth(true, 1), 1.5) << "initial values";
  EXPECT_GT(largest_growth(false, 1), 2.5) << "initial values that do not depend on the width";
  EXPECT_LT(largest_growth(true, 5), 2.0) << "updates";
  EXPECT_GT(largest_growth(false, 5), 5.0) << "rates that do not depend on the width";
}

TEST(Width, AtTheBaseWidthNothingChanges) {
  PretrainConfig config = small_run(), plain = config;
  config.model.mup_base_hidden_size = 32;
  config.model.mup_base_head_dim = 8;
  EXPECT_EQ(first_difference(std::span<const double>(train(config).losses),
                             std::span<const double>(train(plain).losses)),
            kSame);
}

// The rules by their effect: half the rate and 1 / sqrt(2) of the initial values for matrices of a model twice as wide
// as the base, which its parameters in checkpoints show.
TEST(Width, RulesReachEveryRole) {
  PretrainConfig config = small_run();
  make_llama(config.model, 2);
  config.model.num_experts = 4;
  config.model.moe_router_topk = 2;
  config.precision.f64 = true;
  PretrainConfig plain = config;
  config.model.mup_base_hidden_size = 16;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    const Replica wide(world, config.mesh, config.model, DType::F64, 1);
    const Replica same(world, plain.mesh, plain.model, DType::F64, 1);
    std::map<WidthRole, int> roles;
    for (int i = 0; i < wide.model().params.size(); ++i) {
      const ParamSpec &spec = wide.model().params[{i}], &before = same.model().params[{i}];
      const WidthRole role = width_role(spec);
      ++roles[role];
      SCOPED_TRACE(spec.shard.name);
      const double init = before.init.std == 0 ? 1 : spec.init.std / before.init.std;
      const bool matrix = role == WidthRole::Matrix, readout = role == WidthRole::Readout;
      EXPECT_NEAR(init, matrix ? std::sqrt(0.5) : readout ? 0.5 : 1, 1e-12);
      EXPECT_EQ(spec.lr_factor, matrix || readout ? 0.5 : 1);
      EXPECT_EQ(spec.decay_factor, matrix || readout ? 2 : 1);
      EXPECT_EQ(spec.shard.name.find("router.weight") != std::string::npos, readout);
      EXPECT_EQ(spec.shard.name == "head.weight" || spec.shard.name.starts_with("embedding."),
                role == WidthRole::Table);
    }
    EXPECT_EQ(roles.size(), 4U);
  });
}

TEST(Width, IsTheSameOnEveryMeshAndAfterAResume) {
  PretrainConfig config = small_run();
  make_llama(config.model, 2);
  config.model.mup_base_hidden_size = 8;
  config.model.mup_base_head_dim = 2;
  config.precision.f64 = true;
  config.batch.micro_batch_size = 1;
  const Curve one = train(config);
  for (const int stage : {0, 1, 3}) {
    PretrainConfig mesh = on_mesh(config, 2, 2, 2);
    mesh.zero.zero_stage = stage;
    const Curve other = train(mesh);
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_LT(relative_error(other.losses[i], one.losses[i]), 1e-11) << i;
  }
}

// The model that is written without the options of width computes the same from the same weights.
TEST(Width, IsContainedInOtherOptionsOfTheModel) {
  ModelConfig model = small_run().model;
  model.mup_base_hidden_size = 8;
  model.mup_base_head_dim = 2;
  const ModelConfig plain = without_base_width(model);
  EXPECT_FALSE(plain.mup_base_hidden_size || plain.mup_base_head_dim);
  EXPECT_EQ(plain.logits_scaling, 4);
  EXPECT_DOUBLE_EQ(*plain.softmax_scale, std::sqrt(2.0) / 8);
}

}  // namespace
}  // namespace trifold::test
