// A whole step under the sanitizers: compute, communication and read-ahead threads of several ranks.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include "schedule/schedules.h"
#include "support/training.h"

namespace trifold::test {
namespace {

TEST(Trainer, RanksAgreeAndStopTogether) {
  PretrainConfig config = on_mesh(small_run(), 2);
  config.batch.micro_batch_size = 1;
  config.mesh.threads_per_rank = 2;
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  double losses[2] = {0, 1};
  bool stopped[2] = {false, false};
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, &data);
    trainer.step();
    const std::atomic<int> signal{world.rank() == 1 ? 15 : 0};
    const StepReport step = trainer.step(&signal);
    losses[world.rank()] = step.loss;
    stopped[world.rank()] = trainer.stop_agreed();
    EXPECT_EQ(step.step, 2);
    EXPECT_EQ(step.consumed_samples, 16);
    EXPECT_GT(trainer.evaluate().tokens, 0);
  });
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_TRUE(stopped[0] && stopped[1]);
}

TEST(Trainer, PlansItsMemoryExactly) {
  PretrainConfig config = small_run();
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    const MemoryReport memory = trainer.memory();
    EXPECT_GT(memory.predicted_activations, 0U);
    EXPECT_NO_THROW(trainer.step());  // an arena that is too small would throw
    EXPECT_EQ(memory.parameters * 2, memory.optimizer);
    EXPECT_GT(memory.gradients, memory.parameters);  // the tied head has a gradient of its own
  });
}

TEST(Trainer, TakesThePlanThatItIsGiven) {
  const PretrainConfig config = scheduled(on_mesh(small_run(), 1, 1, 2), "1f1b");
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  const RunSpec run = run_spec(config);
  const auto planned = std::make_shared<const PlannedRun>(
      run, order_of_plan(run, make_schedule(Schedule::Gpipe, 2, 1, run.micros())));
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, planned, data, nullptr);
    EXPECT_EQ(trainer.report().plan, to_string(planned->plan()));
    trainer.step();
  });
}

// The orders that two hosts find differ if their processors round differently.
TEST(Trainer, TakesTheOrderThatRankZeroFound) {
  const PretrainConfig config = scheduled(on_mesh(small_run(), 1, 1, 2), "auto");
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  const RunSpec run = run_spec(config);
  std::shared_ptr<const PlannedRun> of_rank[2];
  for (const auto& [rank, schedule] : {std::pair(0, Schedule::Gpipe), {1, Schedule::OneFOneB}})
    of_rank[rank] = std::make_shared<const PlannedRun>(
        run, order_of_plan(run, make_schedule(schedule, 2, 1, run.micros())));
  ASSERT_NE(of_rank[0]->plan(), of_rank[1]->plan());
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, of_rank[world.rank()], data, nullptr);
    EXPECT_EQ(trainer.report().plan, to_string(of_rank[0]->plan()));
    trainer.step();
  });
}

TEST(Trainer, RefusesThePlanOfAnotherModel) {
  const PretrainConfig config = on_mesh(small_run(), 1, 1, 2);
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  PretrainConfig deeper = config;
  deeper.model.num_layers += 2;
  const auto planned = std::make_shared<const PlannedRun>(run_spec(deeper));
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) { Trainer(world, config, planned, data, nullptr); });
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("does not have the shape that was planned"), std::string::npos)
        << error.what();
  }
}

TEST(Trainer, AFailureOnOneRankEndsTheOthers) {
  class Broken final : public DataSource {
   public:
    int64_t seq_length() const override { return tokens_.seq_length(); }
    int64_t samples() const override { return tokens_.samples(); }
    void read(Batch& batch, int64_t first) const override {
      if (first >= 10) fail("sample {} cannot be read", first);
      tokens_.read(batch, first);
    }

   private:
    SyntheticTokens tokens_{16, 7, 11};
  };
  const PretrainConfig config = on_mesh(small_run(), 2);
  const Broken data;
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      for (int i = 0; i < 4; ++i) trainer.step();
    });
    FAIL() << "the broken sample was read";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cannot be read"), std::string::npos) << text;
    EXPECT_NE(text.find("rank "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace trifold::test
