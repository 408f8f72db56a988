// Copies of weights and optimizer state have the same bits on every mesh and after every kind of step; one
// that has drifted is found, with its tensor and its rank.
#include "run/checks/replica_check.h"

#include <gtest/gtest.h>

#include <functional>

#include "support/training.h"

namespace trifold::test {
namespace {

struct ReplicaCase {
  std::string name;
  int dp = 1, tp = 1, pp = 1;
  std::function<void(PretrainConfig&)> change = {};
};

void PrintTo(const ReplicaCase& c, std::ostream* out) { *out << c.name; }

PretrainConfig run_of(const ReplicaCase& c) {
  PretrainConfig config = on_mesh(small_run(), c.dp, c.tp, c.pp);
  config.model.num_layers = 4;
  config.model.hidden_dropout = 0.1;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = 4;
  config.zero.zero_min_unit_params = 4000;
  if (c.change) c.change(config);
  return config;
}

std::vector<HeldCopy> held_copies_of(Trainer& trainer) {
  Replica& replica = trainer.replica();
  return held_copies(replica.mesh(), replica.layout().flat(), replica.weights(), trainer.optimizer(),
                     trainer.grads(), replica.compute());
}

void compare(Trainer& trainer) { trainer.check_replicas(fmt::format("step {}", trainer.steps_done())); }

class Replicas : public ::testing::TestWithParam<ReplicaCase> {};

TEST_P(Replicas, AreTheSame) {
  const PretrainConfig config = run_of(GetParam());
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    if (world.rank() == 0) {
      EXPECT_FALSE(held_copies_of(trainer).empty());
    }
    EXPECT_NO_THROW(compare(trainer));
    while (trainer.steps_done() < config.batch.train_iters) {
      trainer.advance();
      compare(trainer);
    }
  });
}

using C = PretrainConfig;
INSTANTIATE_TEST_SUITE_P(
    Meshes, Replicas,
    ::testing::Values(ReplicaCase{"dp", 4}, ReplicaCase{"tp", 1, 4}, ReplicaCase{"tied_stages", 1, 1, 4},
                      ReplicaCase{"all_axes", 2, 2, 2},
                      ReplicaCase{"sequence_parallel", 2, 2, 1,
                                  [](C& c) { c.mesh.sequence_parallel = true; }},
                      ReplicaCase{"shared_key_heads", 1, 4, 1, [](C& c) { make_llama(c.model, 2); }},
                      ReplicaCase{"rounded", 2, 2, 2, [](C& c) { c.precision.bf16 = true; }},
                      ReplicaCase{"bf16_sums", 4, 1, 2,
                                  [](C& c) {
                                    c.precision.grad_reduce_in_bf16 = true;
                                    c.zero.zero_stage = 2;
                                    c.zero.zero_group_size = GroupSize{2};
                                  }},
                      ReplicaCase{"zero1", 2, 1, 2, [](C& c) { c.zero.zero_stage = 1; }},
                      ReplicaCase{"zero2_tp_groups", 4, 2, 1,
                                  [](C& c) {
                                    c.zero.zero_stage = 2;
                                    c.zero.zero_group_size = GroupSize{2};
                                  }},
                      ReplicaCase{"zero3_tied_stages", 4, 1, 2, [](C& c) { c.zero.zero_stage = 3; }},
                      ReplicaCase{"zero3_each_groups", 4, 1, 2,
                                  [](C& c) {
                                    c.zero.zero_stage = 3;
                                    c.zero.zero_group_size = GroupSize{2};
                                    c.zero.zero_reduce = ReducePolicy::Each;
                                  }},
                      ReplicaCase{"lamb_zero1", 2, 2, 2,
                                  [](C& c) {
                                    c.optimizer.optimizer = OptimizerKind::Lamb;
                                    c.zero.zero_stage = 1;
                                  }},
                      ReplicaCase{"zb_v", 2, 1, 2, [](C& c) { c = scheduled(c, "zb-v", 2); }},
                      ReplicaCase{"pipedream", 2, 1, 2,
                                  [](C& c) {
                                    c = scheduled(c, "pipedream-2bw");
                                    c.optimizer.clip_grad = 0;
                                    c.pipeline.async_window = 2;
                                  }}),
    [](const auto& test) { return test.param.name; });

// The error message when the ranks in `damaged` change an element of a parameter after a step.
std::string report_of(const ReplicaCase& c, const std::vector<int>& damaged, const std::string& parameter) {
  const PretrainConfig config = run_of(c);
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  std::string text;
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, nullptr);
      trainer.step();
      compare(trainer);
      const bool mine = std::find(damaged.begin(), damaged.end(), world.rank()) != damaged.end();
      if (mine) {
        const ParamId id = trainer.replica().model().params.find(parameter);
        trainer.replica().weights().weight(id).flat().as<float>()[3] += 1e-4F;
      }
      trainer.step();
      compare(trainer);
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Agreed);
    text = error.what();
  }
  return text;
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Replicas, AMinorityIsNamed) {
  const std::string text = report_of({"", 4}, {2}, "block.1.norm2.gain");
  expect_in(text, "step 2: ");
  expect_in(text, "rank 2 differs from ranks 0, 1 and 3: ");
  expect_in(text, "param/block.1.norm2.gain");
  EXPECT_EQ(text.find("block.2"), std::string::npos) << text;
}

TEST(Replicas, TwoCopiesHaveNoMajority) {
  const std::string text = report_of({"", 1, 2}, {1}, "block.0.norm2.gain");
  expect_in(text, "rank 0 and rank 1 differ, and there is no majority: ");
  expect_in(text, "param/block.0.norm2.gain");
}

TEST(Replicas, EachTensorRankHasItsOwnPart) {
  expect_in(report_of({"", 3, 2}, {3}, "block.0.mlp.up.weight"), "rank 3 differs from ranks 1 and 5: ");
}

TEST(Replicas, TheUsesOfATiedWeightAreCompared) {
  const std::string text = report_of({"", 1, 1, 2}, {1}, "embedding.tokens.weight@head");
  expect_in(text, "the two uses of a tied weight, on rank 0 and on rank 1, differ: ");
}

// Master weights are on their owners only, and each step brings the weights to the others: a copy that is
// damaged between steps is right again after the next.
TEST(Replicas, WeightsOfZero1AreRepairedByTheirOwners) {
  const ReplicaCase zero1{"", 4, 1, 1, [](C& c) { c.zero.zero_stage = 1; }};
  EXPECT_EQ(report_of(zero1, {2}, "block.3.norm2.gain"), "");
}

}  // namespace
}  // namespace trifold::test
