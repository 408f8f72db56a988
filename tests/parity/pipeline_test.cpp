// Cutting the model into pipeline stages changes no bit, whatever the schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "support/compare.h"
#include "support/files.h"
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

// The output of the embedding's stage is a message, which is gone when the backward comes.
TEST(BlocksAlone, GiveTheBitsOfOneRank) {
  for (const ModelType type : {ModelType::Gpt, ModelType::Bert})
    for (const char* layout : {"E|tt|L", "E|t|t|L"}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(type), layout));
      PretrainConfig base = deep_run({"1f1b", 1, 1, 6}, 0.2);
      base.model.model_type = type;
      base.model.num_layers = 2;
      base.batch.train_iters = 3;
      const Curve one = train(base);
      const auto stages = static_cast<int>(std::count(layout, layout + std::strlen(layout), '|')) + 1;
      PretrainConfig cut = on_mesh(base, 1, 1, stages);
      cut.mesh.cut.pipeline_model_parallel_layout = layout;
      const Curve alone = train(cut);
      EXPECT_EQ(first_difference<double>(one.losses, alone.losses), kSame);
      EXPECT_EQ(first_difference<double>(one.grad_norms, alone.grad_norms), kSame);
    }
}

// Stage 1 computes a weight gradient from its input, the output of stage 0, after stage 0 has ended the micro-batch and
// begun the next.
TEST(ScheduleFile, GivesTheBitsOfOneRankWhenAWeightGradientIsLate) {
  const TempDir folder;
  const std::string file = folder.file("late.csv");
  const PretrainConfig base = deep_run({"", 1, 1, 4}, 0.2);
  const Curve one = train(base);
  const auto check_plan = [&](const std::string& plan) {
    SCOPED_TRACE(plan);
    std::ofstream(file) << plan << "\n";
    const Curve late = train(scheduled(base, file));
    EXPECT_EQ(first_difference(std::span<const double>(one.losses), std::span<const double>(late.losses)),
              kSame);
    EXPECT_EQ(
        first_difference(std::span<const double>(one.grad_norms), std::span<const double>(late.grad_norms)),
        kSame);
  };
  check_plan("0F0,1F0,1I0,0B0,0F1,1W0,1F1,1I1,0B1,0F2,1F2,1W1,1I2,0I2,0W2,0F3,1W2,1F3,1B3,0B3");
  // Three stages: what the last holds back, the first two do.
  check_plan(
      "0F0,1F0,2F0,2I0,1I0,0B0,0F1,1W0,1F1,2F1,2W0,2B1,1I1,0I1,0F2,0W1,1W1,1F2,2F2,2I2,1B2,0B2,0F3,1F3,2W2,2F3,"
      "2B3,1B3,0B3");
}

}  // namespace
}  // namespace trifold::test
