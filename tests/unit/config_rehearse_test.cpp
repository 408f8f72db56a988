// The options of rehearsals, and the command by which a plan names one.
#include <gtest/gtest.h>

#include "unit/config_testing.h"

namespace trifold {
namespace {

const Words kModel{"--num-layers", "4",  "--hidden-size",      "128", "--num-attention-heads", "4",
                   "--seq-length", "64", "--micro-batch-size", "2",   "--vocab-size",          "256"};

RehearsePretrainConfig rehearsal(const Words& more) {
  return std::get<RehearsePretrainConfig>(read(Words{"rehearse"} + kModel + more));
}

TEST(ConfigRehearse, RunsRandomTokensWithoutData) {
  const RehearsePretrainConfig config = rehearsal({"--steps", "5"});
  EXPECT_TRUE(config.plan.run.data.mock_data);
  EXPECT_EQ(config.plan.run.batch.train_iters, 6);
  EXPECT_FALSE(config.rehearse.only_ranks);
  EXPECT_EQ(config.rehearse.wait, PeerWait::None);
  EXPECT_EQ(rehearsal({"--lr-warmup-iters", "50"}).plan.run.batch.train_iters, 51);
  const RehearsePretrainConfig real =
      rehearsal({"--data-path", "t.txt", "--train-iters", "100", "--lr", "1e-3"});
  EXPECT_TRUE(real.plan.length_given);
  EXPECT_FALSE(config.plan.length_given);
  // The default of a plan counts if it is given.
  EXPECT_EQ(rehearsal({"--train-iters", "1"}).plan.run.batch.train_iters, 1);
  EXPECT_FALSE(real.plan.run.data.mock_data);
  EXPECT_EQ(real.plan.run.batch.train_iters, 100);
}

TEST(ConfigPlan, KnowsWhetherALengthIsGiven) {
  const auto plan = [](const Words& more) {
    return knows_length(std::get<PlanConfig>(read(Words{"plan"} + kModel + more)));
  };
  EXPECT_FALSE(plan({}));
  EXPECT_TRUE(plan({"--train-iters", "1"}));
  EXPECT_TRUE(plan({"--train-iters", "2"}));
  EXPECT_TRUE(plan({"--train-samples", "64", "--lr-decay-samples", "64"}));
  EXPECT_TRUE(plan({"--train-epochs", "3"}));
  expect_contains(refusal_of(Words{"plan"} + kModel + Words{"--train-iters", "1", "--train-epochs", "3"}),
                  "--train-iters 1 and --train-epochs 3 exclude each other");
}

TEST(ConfigRehearse, ReadsRanksInTheirOrder) {
  const RehearsePretrainConfig config =
      rehearsal({"--ranks", "16", "--global-batch-size", "32", "--only-ranks", "15,0,8"});
  EXPECT_EQ(config.rehearse.only_ranks->ranks, (std::vector<int>{15, 0, 8}));
  EXPECT_EQ(config.rehearse.only_ranks->text(), "15,0,8");
}

TEST(ConfigRehearse, RefusesRanksThatDoNotExist) {
  const auto refused = [](const Words& more) { return refusal_of(Words{"rehearse"} + kModel + more); };
  expect_contains(
      refused({"--only-ranks", "0,1"}),
      "--only-ranks 0,1 names rank 1, but the mesh has 1 rank: give ranks from 0 to 0, or the mesh by "
      "--ranks");
  for (const char* text : {"", "x", "0,", "-1", "0 1"})
    expect_contains(refused({"--only-ranks", text}),
                    "give ranks from 0 on, separated by commas, such as 0,8,15");
  expect_contains(refused({"--only-ranks", "0,0"}), "has rank 0 twice");
  expect_contains(refused({"--steps", "0"}), "--steps 0");
  expect_contains(refused({"--wait", "soon"}), "give one of none, planned");
}

// A rehearsal finds the mistakes that the run's own command finds.
TEST(ConfigRehearse, ChecksTheRunAsItsOwnCommandDoes) {
  const Words data{"--data-path", "t.txt", "--train-iters", "10", "--lr", "1e-3"};
  for (const Words& wrong : {Words{"--save-interval", "5", "--split", "0,1,0"}, Words{"--min-lr", "1"},
                             Words{"--ranks", "3", "--pp", "2"}}) {
    const std::string run = refusal_of(Words{"pretrain"} + kModel + data + wrong);
    EXPECT_EQ(refusal_of(Words{"rehearse"} + kModel + data + wrong), run);
  }
  expect_contains(refusal_of(Words{"rehearse"} + kModel + Words{"--moe-load-imbalance", "2"}),
                  "no ranks share experts");
}

TEST(ConfigRehearse, ReadsEachKindOfRun) {
  const RehearseRecommenderConfig clicks = std::get<RehearseRecommenderConfig>(
      read({"rehearse", "--table-rows", "50-60", "--ranks", "8", "--only-ranks", "7", "--zipf", "0.9"}));
  EXPECT_EQ(clicks.plan.run.mesh.ranks, 8);
  EXPECT_EQ(clicks.rehearse.zipf, 0.9);
  const Words task{"rehearse", "--task", "lm", "--load", "d", "--micro-batch-size", "2"};
  const RehearseFinetuneConfig tuned = std::get<RehearseFinetuneConfig>(
      read(task + Words{"--train-data", "t.jsonl", "--lr", "1e-4", "--train-iters", "9"}));
  EXPECT_EQ(tuned.run.train_data, "t.jsonl");
  expect_contains(refusal_of(task + Words{"--valid-data", "t.jsonl"}),
                  "a rehearsal trains, and --train-data is not given");
  const std::string neither = refusal_of(task);
  expect_contains(neither, "neither --train-data nor --valid-data is given");
  expect_lacks(neither, "a rehearsal trains");
}

// The configurations of known recommenders name evaluations and formats of data that a rehearsal may lack.
TEST(ConfigRehearse, RunsRandomClicksWithoutData) {
  const Words clicks{"rehearse", "--table-rows",  "50-60",      "--ranks",
                     "16",       "--data-format", "mlperf-bin", "--id-policy",
                     "modulo",   "--lr",          "18",         "--global-batch-size",
                     "65536",    "--target-auc",  "0.8025",     "--eval-interval",
                     "6400"};
  const RecommendConfig run =
      std::get<RehearseRecommenderConfig>(read(clicks + Words{"--valid-samples", "6548660"})).plan.run;
  EXPECT_EQ(run.data.valid_samples, 0);
  EXPECT_EQ(run.data.data_format, "auto");
  EXPECT_FALSE(run.data.id_policy);
  EXPECT_FALSE(run.training.target_auc);
  EXPECT_GE(run.data.synthetic_samples, 4 * 65536);
  expect_contains(refusal_of(clicks + Words{"--train-data", "t.bin"}), "--eval-interval 6400");
}

TEST(ConfigRehearse, TellsRandomTokensThatWereAskedFor) {
  EXPECT_TRUE(rehearsal({}).rehearse.no_data);
  EXPECT_FALSE(rehearsal({"--mock-data"}).rehearse.no_data);
  const std::string many = refusal_of(Words{"rehearse"} + kModel + Words{"--steps", "1000000000000"});
  expect_lacks(many, "--train-iters");
  expect_contains(many, "--steps 1000000000000");
}

TEST(ConfigRehearse, IsNamedByAPlan) {
  const PlanConfig plan = std::get<PlanConfig>(read(
      Words{"plan"} + kModel +
      Words{"--ranks", "2", "--json", "plan.json", "--records", "--data-path", "my text.txt", "--bf16"}));
  const Words words = plan.rehearsal_words;
  EXPECT_EQ(std::count(words.begin(), words.end(), "'my text.txt'"), 1);
  EXPECT_EQ(std::count(words.begin(), words.end(), "--bf16"), 1);
  for (const char* unknown : {"--json", "--records", "plan.json"})
    EXPECT_EQ(std::count(words.begin(), words.end(), unknown), 0) << unknown;
  Words given = words;
  std::replace(given.begin(), given.end(), std::string("'my text.txt'"), std::string("my text.txt"));
  const RehearsePretrainConfig same = std::get<RehearsePretrainConfig>(read(Words{"rehearse"} + given));
  EXPECT_EQ(same.plan.run.mesh.ranks, 2);
  EXPECT_TRUE(same.plan.run.precision.bf16);
  EXPECT_EQ(same.plan.run.data.data_path, (Words{"my text.txt"}));
}

TEST(ConfigRehearse, IsLongEnoughForABatchThatGrows) {
  // 2, 4 after 2 samples, 8 after 6, 16 after 14
  const Words ramp{"--global-batch-size", "16", "--rampup-batch-size", "2", "2", "14"};
  EXPECT_EQ(rehearsal(ramp).plan.run.batch.train_iters, 3 + 4);
}

// A file of options that only a plan has cannot be given to a rehearsal.
TEST(ConfigRehearse, IsNamedByAPlanOfAFile) {
  const auto words_with = [](const std::string& line) {
    const TemporaryFile file("ranks = 2\nbf16 = true\n" + line);
    return std::get<PlanConfig>(read(Words{"plan"} + kModel + Words{"--config", file.path()}))
        .rehearsal_words;
  };
  const auto ranks_of = [](const Words& words) {
    return std::get<RehearsePretrainConfig>(read(Words{"rehearse"} + words)).plan.run.mesh.ranks;
  };
  const Words by_file = words_with("tp = 1\n");
  EXPECT_EQ(std::count(by_file.begin(), by_file.end(), "--config"), 1);
  for (const char* line :
       {"mtbf = 1e4\nsave-seconds = 5\nranks-per-node = 2\n", "svg = plan.svg\n", "json = plan.json\n"}) {
    const Words words = words_with(line);
    EXPECT_EQ(std::count(words.begin(), words.end(), "--config"), 0) << line;
    EXPECT_EQ(std::count(words.begin(), words.end(), "--bf16"), 1) << line;
    EXPECT_EQ(ranks_of(words), 2) << line;
  }
}

}  // namespace
}  // namespace trifold
