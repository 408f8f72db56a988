// A failure on one rank of a pipeline soon ends all ranks, and the message says what went wrong where.
#include <gtest/gtest.h>

#include <chrono>

#include "support/training.h"

namespace trifold::test {
namespace {

using Clock = std::chrono::steady_clock;

// Samples from `end` on cannot be read.
class BrokenTokens final : public DataSource {
 public:
  explicit BrokenTokens(int64_t end) : end_(end) {}
  int64_t seq_length() const override { return tokens_.seq_length(); }
  int64_t samples() const override { return tokens_.samples(); }
  void read(Batch& batch, int64_t first) const override {
    if (first >= end_) fail("sample {} cannot be read", first);
    tokens_.read(batch, first);
  }

 private:
  int64_t end_;
  SyntheticTokens tokens_{16, 7, 11};
};

struct FailureCase {
  int dp, tp, pp;
  std::string schedule;
};

PretrainConfig run_of(const FailureCase& c) {
  PretrainConfig config = scheduled(on_mesh(small_run(), c.dp, c.tp, c.pp), c.schedule);
  config.model.num_layers = 4;
  config.batch.micro_batch_size = 1;
  config.optimizer.clip_grad = 0;
  config.pipeline.async_window = 5;
  config.mesh.distributed_timeout_minutes = 0.5;  // a rank that waits in vain is found out
  config.eval.eval_iters = 2;
  return config;
}

// The message of a run in which `broken` has nothing but errors from sample 11 on: in its second step.
std::string failure_of(const PretrainConfig& config, int broken, bool evaluates) {
  const SyntheticTokens good(16, 7, 11);
  const BrokenTokens bad(11);
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      const bool breaks = world.rank() == broken;
      const auto& data = breaks ? static_cast<const DataSource&>(bad) : good;
      Trainer trainer(world, config, evaluates ? good : data, &data);
      if (evaluates) trainer.evaluate();
      for (int i = 0; i < 3; ++i) trainer.advance();
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class PipelineFailure : public ::testing::TestWithParam<FailureCase> {};

TEST_P(PipelineFailure, OnAnyRankEndsAllWithItsMessage) {
  const PretrainConfig config = run_of(GetParam());
  for (int rank = 0; rank < config.mesh.ranks; ++rank)
    for (const bool evaluates : {false, true}) {
      SCOPED_TRACE(fmt::format("rank {}{}", rank, evaluates ? ", evaluation" : ""));
      const auto start = Clock::now();
      const std::string text = failure_of(config, rank, evaluates);
      EXPECT_EQ(text.find(fmt::format("rank {}: ", rank)), 0U) << text;
      EXPECT_NE(text.find("cannot be read"), std::string::npos) << text;
      EXPECT_EQ(text.find("failed"), std::string::npos) << text;
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(20)) << "it waited for a time-out";
    }
}

INSTANTIATE_TEST_SUITE_P(Meshes, PipelineFailure,
                         ::testing::Values(FailureCase{1, 1, 2, "1f1b"}, FailureCase{1, 1, 4, "zb-h1"},
                                           FailureCase{2, 1, 2, "gpipe"}, FailureCase{1, 2, 2, "1f1b"},
                                           FailureCase{1, 1, 4, "pipedream"}),
                         [](const auto& test) {
                           const FailureCase& c = test.param;
                           std::string name = fmt::format("dp{}_tp{}_pp{}_{}", c.dp, c.tp, c.pp, c.schedule);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// An error that arises in the thread that carries messages: the ranks do not agree about their size.
TEST(PipelineFailure, InAMessageIsReportedToo) {
  const PretrainConfig config = run_of({1, 1, 2, "1f1b"});
  PretrainConfig other = config;
  other.batch.micro_batch_size = 2;
  other.batch.global_batch_size = 16;
  const SyntheticTokens data(16, 7, 11);
  const auto start = Clock::now();
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, world.rank() == 0 ? config : other, data, nullptr);
      trainer.step();
    });
    FAIL() << "messages of 16 rows were received as 32";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("512"), std::string::npos) << text;   // 16 x 32 numbers
    EXPECT_NE(text.find("1024"), std::string::npos) << text;  // 32 x 32
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20)) << "it waited for a time-out";
}

}  // namespace
}  // namespace trifold::test
