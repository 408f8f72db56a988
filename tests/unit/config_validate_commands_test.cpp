// What is checked of the commands besides pretrain.
#include <gtest/gtest.h>

#include "config/validate.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

TEST(ConfigValidateCommands, ChecksTheOtherCommands) {
  GenerateConfig generate;
  generate.top_p = 0;
  generate.temperature = -1;
  EXPECT_EQ(problems(generate).size(), 3u);  // and --load
  EvaluateConfig evaluate;
  evaluate.load = std::string("d");
  evaluate.data.data_path = {"x"};
  EXPECT_EQ(problems(evaluate), Words{});
  evaluate.data.split = std::string("1,1");
  evaluate.part = Split::Test;
  ASSERT_EQ(problems(evaluate).size(), 1u);
  expect_contains(problems(evaluate)[0], "--part test needs data");
  EXPECT_EQ(problems(BenchConfig()), Words{});
  BenchConfig bench;
  bench.run.model.hidden_size = 100;
  bench.what.clear();
  EXPECT_EQ(problems(bench).size(), 2u);
  TokenizeConfig tokenize;
  tokenize.tokenizer_type = TokenizerType::SentencePiece;
  EXPECT_EQ(problems(tokenize).size(), 3u);
  EXPECT_EQ(problems(InspectConfig()).size(), 1u);
}

TEST(ConfigValidateCommands, OptionsOfOtherCommandsThatHaveNoEffect) {
  GenerateConfig generate;
  generate.load = "d";
  generate.temperature = 0;
  EXPECT_EQ(problems(generate), Words{});
  generate.top_k = 5;
  generate.top_p = 0.5;
  generate.seed = 1;
  const auto sampling = problems(generate);
  ASSERT_EQ(sampling.size(), 3u);
  expect_contains(sampling[0], "--top-k has no effect with --temperature 0");

  PlanConfig plan;
  plan.run = pretrain({});
  plan.run.model.vocab_size = 100;
  plan.costs = "costs.json";
  EXPECT_EQ(problems(plan), Words{});
  plan.link_latency = 3;
  EXPECT_EQ(problems(plan), Words{"--link-latency has no effect with --costs costs.json, whose times count"});

  RecommendConfig recommend;
  EXPECT_EQ(problems(recommend), Words{});
  recommend.model.cross_layers = 4;
  recommend.training.eps = 1e-6;
  recommend.checkpoint.check_replicas = 0;
  const auto of_run = problems(recommend);
  ASSERT_EQ(of_run.size(), 3u);
  expect_contains(of_run[0], "--cross-layers has no effect with --interaction dot");
  expect_contains(of_run[1], "--eps has no effect with --optimizer sgd");
  expect_contains(of_run[2], "--check-replicas 0 has no effect without --save DIR");
}

TEST(ConfigValidateCommands, PreprocessOptionsThatContradict) {
  PreprocessConfig preprocess;
  preprocess.input = {"a"};
  preprocess.output = "b";
  EXPECT_TRUE(problems(preprocess).empty());
  preprocess.ids = IdSource::Hash;
  preprocess.frequency_threshold = 3;
  const std::vector<std::string> found = problems(preprocess);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], "--ids hash needs --max-ind-range: the rows of every table");
  EXPECT_EQ(found[1], "--frequency-threshold 3 has no effect with --ids hash: nothing is counted");
}

}  // namespace
}  // namespace trifold
