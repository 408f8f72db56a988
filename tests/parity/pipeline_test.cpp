// Cutting the model into pipeline stages changes no bit, whatever the schedule.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

struct PipelineCase {
  std::string schedule;
  int ranks, chunks, micros;
};

PretrainConfig deep_run(const PipelineCase& c, double dropout) {
  PretrainConfig config = small_run();
  config.model.num_layers = 6;
  config.model.hidden_dropout = config.model.attention_dropout = dropout;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = c.micros;
  return config;
}

class EverySchedule : public ::testing::TestWithParam<PipelineCase> {};

TEST_P(EverySchedule, GivesTheBitsOfOneRank) {
  const PipelineCase& c = GetParam();
  for (double dropout : {0.0, 0.2}) {
    const PretrainConfig base = deep_run(c, dropout);
    const Curve one = train(base);
    const Curve cut = train(scheduled(on_mesh(base, 1, 1, c.ranks), c.schedule, c.chunks));
    ASSERT_EQ(one.losses.size(), 20U);
    EXPECT_EQ(first_difference(std::span<const double>(one.losses), std::span<const double>(cut.losses)),
              kSame);
    EXPECT_EQ(
        first_difference(std::span<const double>(one.grad_norms), std::span<const double>(cut.grad_norms)),
        kSame);
    EXPECT_LT(one.losses.back(), 0.8 * one.losses.front()) << "nothing was learnt";
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, EverySchedule,
                         ::testing::Values(PipelineCase{"gpipe", 2, 1, 4}, PipelineCase{"gpipe", 4, 1, 8},
                                           PipelineCase{"1f1b", 2, 1, 1}, PipelineCase{"1f1b", 2, 1, 8},
                                           PipelineCase{"1f1b", 4, 1, 6}, PipelineCase{"1f1b", 8, 1, 8},
                                           PipelineCase{"interleaved", 2, 2, 4},
                                           PipelineCase{"interleaved", 2, 4, 4},
                                           PipelineCase{"interleaved", 4, 2, 8},
                                           PipelineCase{"zb-h1", 4, 1, 8}, PipelineCase{"zb-h2", 4, 1, 8},
                                           PipelineCase{"zb-v", 2, 2, 4}, PipelineCase{"zb-v", 4, 2, 8},
                                           PipelineCase{"dualpipe-v", 2, 2, 4},
                                           PipelineCase{"dualpipe-v", 4, 2, 8}, PipelineCase{"auto", 4, 1, 8},
                                           PipelineCase{"auto", 2, 2, 4}),
                         [](const auto& test) {
                           const PipelineCase& c = test.param;
                           std::string name = c.schedule + "_p" + std::to_string(c.ranks) + "_v" +
                                              std::to_string(c.chunks) + "_m" + std::to_string(c.micros);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trifold::test
