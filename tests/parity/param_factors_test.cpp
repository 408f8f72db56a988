// Factors of the learning rate and of weight decay by parameter (--lr-mult, --wd-mult).
#include <gtest/gtest.h>

#include "parity/zero_runs.h"
#include "support/planned_memory.h"

namespace trifold::test {
namespace {

using Values = std::map<std::string, std::vector<float>>;

// The weights after some steps on one rank.
Values trained(const PretrainConfig& config, int64_t steps) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  Values values;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    while (trainer.steps_done() < steps) trainer.advance();
    const ParamList& params = trainer.replica().model().params;
    for (const ParamId id : params.by_name()) {
      const Tensor weight = trainer.replica().weights().weight(id);
      values[params[id].shard.name].assign(weight.as<float>(), weight.as<float>() + weight.elements());
    }
  });
  return values;
}

PretrainConfig one_rank() { return zero_run({"1f1b", 1, 1, 1, 1, false}, 0); }

bool is_bias(const std::string& name) { return name.ends_with(".bias"); }

TEST(ParamFactors, OfZeroKeepParameters) {
  PretrainConfig config = one_rank();
  config.optimizer.lr_mult = {{"*.bias", 0}};
  const Values first = trained(config, 0), last = trained(config, 3);
  for (const auto& [name, values] : last) EXPECT_EQ(values == first.at(name), is_bias(name)) << name;
}

TEST(ParamFactors, OfTheRateAreTheRateIfAllHaveThem) {
  for (const OptimizerKind kind : {OptimizerKind::Adam, OptimizerKind::Muon, OptimizerKind::Lamb}) {
    PretrainConfig twice = one_rank(), factor = one_rank();
    twice.optimizer.optimizer = factor.optimizer.optimizer = kind;
    twice.lr.lr *= 2;
    twice.lr.min_lr *= 2;
    factor.optimizer.lr_mult = {{"*.bias", 0.5}, {"*", 2}};  // the last that matches decides
    EXPECT_EQ(trained(factor, 3), trained(twice, 3)) << trifold::name_of(kind);
  }
}

TEST(ParamFactors, OfTheDecayReachMatricesAlone) {
  PretrainConfig none = one_rank(), factor = one_rank(), some = one_rank();
  none.optimizer.weight_decay = 0;
  factor.optimizer.wd_mult = {{"*", 0}};
  const Values without = trained(none, 3);
  EXPECT_EQ(trained(factor, 3), without);
  some.optimizer.wd_mult = {{"*", 0}, {"block.?.mlp.*", 100}};
  // The first step has the rate 0, so the second is the first that changes weights.
  const Values found = trained(some, 2), plain = trained(none, 2);
  for (const auto& [name, values] : found)
    EXPECT_EQ(values != plain.at(name), name.find(".mlp.") != name.npos && !is_bias(name)) << name;
}

TEST(ParamFactors, HaveTheSameBitsInSlicesAndOnStages) {
  const auto run = [](const ZeroCase& mesh, int stage) {
    PretrainConfig config = zero_run(mesh, stage);
    config.optimizer.lr_mult = {{"*norm*", 0.5}, {"block.[02].*", 1.5}};
    config.optimizer.wd_mult = {{"embedding.*", 0}};
    return train(config);
  };
  const Curve plain = run({"1f1b", 2, 1, 1, 1, false}, 0);
  for (const int stage : {1, 2, 3}) expect_same_bits(plain, run({"1f1b", 2, 1, 1, 1, false}, stage));
  expect_same_bits(plain, run({"zb-h1", 2, 1, 2, 1, false}, 1));
}

TEST(ParamFactors, RefuseAPatternThatMatchesNothing) {
  PretrainConfig config = one_rank();
  config.optimizer.lr_mult = {{"*.bais", 2}};
  try {
    plan_of(config);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_NE(std::string(error.what()).find("--lr-mult *.bais=2 matches no parameter"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace trifold::test
