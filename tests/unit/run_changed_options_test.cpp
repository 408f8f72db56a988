#include "run/changed_options.h"

#include <gtest/gtest.h>

#include "config/commands/json.h"
#include "config/commands/option_tables.h"

namespace trifold {
namespace {

std::vector<std::string> changes(RecommendConfig then, RecommendConfig now) {
  return changed_options(to_json(then), to_json(now), options_of(now));
}

TEST(ChangedOptions, ThoseThatDecideResultsAreNamedAsOptions) {
  RecommendConfig then, now;
  then.lr.lr = 0.1;
  now.lr.lr = 0.05;
  then.training.embedding_lr = 0.5;
  now.precision.bf16 = true;
  EXPECT_EQ(changes(then, now),
            (std::vector<std::string>{"--lr 0.05; the checkpoint's run had 0.1",
                                      "no --embedding-lr; the checkpoint's run had --embedding-lr 0.5",
                                      "--bf16; the checkpoint's run had none"}));
  EXPECT_TRUE(changes(then, then).empty());
}

TEST(ChangedOptions, PlacesOfFilesAndTablesAreLeftOut) {
  RecommendConfig then, now;
  then.data.train_data = "a";
  now.data.train_data = "b";
  now.placement.memory_limit = 3;
  now.training.eval_interval = 7;
  EXPECT_TRUE(changes(then, now).empty());
}

TEST(ChangedOptions, AnOptionMayCountAllTheSame) {
  PretrainConfig then, now;
  now.mesh.threads_per_rank = 3;
  const OptionTable table = options_of(now);
  EXPECT_TRUE(changed_options(to_json(then), to_json(now), table).empty());
  EXPECT_EQ(changed_options(to_json(then), to_json(now), table,
                            [](const Option& option) { return option.name == "threads-per-rank"; })
                .size(),
            1U);
}

TEST(ChangedOptions, OptionsNewerThanTheCheckpointAndRecordsThatAreNoneAreLeftOut) {
  RecommendConfig now;
  EXPECT_TRUE(changed_options(nlohmann::json::object(), to_json(now), options_of(now)).empty());
  EXPECT_TRUE(changed_options(3, to_json(now), options_of(now)).empty());
}

}  // namespace
}  // namespace trifold
