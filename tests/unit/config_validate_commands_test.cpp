// Checks of the commands other than pretrain.
#include <gtest/gtest.h>

#include "config/commands/validate.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

TEST(ConfigValidateCommands, ChecksTheOtherCommands) {
  GenerateConfig generate;
  generate.top_p = 0;
  generate.temperature = -1;
  EXPECT_EQ(problems(generate).size(), 3u);  // and --load
  expect_whole(generate);
  EvaluateConfig evaluate;
  evaluate.load = std::string("d");
  evaluate.data.data_path = {"x"};
  EXPECT_EQ(texts_of(problems(evaluate)), Words{});
  evaluate.data.split = std::string("1,1");
  evaluate.part = Split::Test;
  ASSERT_EQ(problems(evaluate).size(), 1u);
  expect_whole(evaluate);
  expect_contains(text_of(problems(evaluate)[0]), "--part test needs data");
  EXPECT_EQ(texts_of(problems(BenchConfig())), Words{});
  BenchConfig bench;
  bench.run.model.hidden_size = 100;
  bench.what.clear();
  EXPECT_EQ(problems(bench).size(), 2u);
  expect_whole(bench);
  BenchConfig products;
  products.what = {BenchPart::Hardware};
  products.run.mesh.cpu_offloading_num_layers = 1;
  products.run.mesh.cpu_offloading_folder = ".";
  EXPECT_EQ(
      texts_of(problems(products)),
      Words{
          "--cpu-offloading-num-layers 1 has no effect without --what step: leave it out, or measure steps"});
  products.what = {BenchPart::Step};
  EXPECT_EQ(texts_of(problems(products)), Words{});
  TokenizeConfig tokenize;
  tokenize.data.tokenizer_type = TokenizerType::SentencePiece;
  EXPECT_EQ(problems(tokenize).size(), 3u);
  expect_whole(tokenize);
  EXPECT_EQ(problems(InspectConfig()).size(), 1u);
}

TEST(ConfigValidateCommands, FilesAndAMeshExcludeEachOther) {
  const Words words = {"reshard", "--load", "a", "--save", "b", "--files", "2"};
  EXPECT_EQ(std::get<ReshardConfig>(read(words)).files, 2);
  for (const Words& mesh : std::vector<Words>{
           {"--tp", "2"}, {"--cp", "2"}, {"--ep", "2"}, {"--pp", "2"}, {"--dp", "2"}, {"--ranks", "2"}})
    expect_contains(refusal_of(words + mesh), "--files 2 and a mesh exclude each other");
}

TEST(ConfigValidateCommands, AColumnThatCannotBeReadIsTheOnlyProblem) {
  const std::string text =
      refusal_of({"preprocess", "--input", "a", "--output", "b", "--label", "y>=x", "--sparse", "user"});
  expect_contains(text, "'y>=x' compares with 'x', which is not a number");
  EXPECT_EQ(text.find("--sparse"), std::string::npos) << text;
}

TEST(ConfigValidateCommands, OptionsOfOtherCommandsThatHaveNoEffect) {
  GenerateConfig generate;
  generate.load = "d";
  generate.temperature = 0;
  EXPECT_EQ(texts_of(problems(generate)), Words{});
  generate.top_k = 5;
  generate.top_p = 0.5;
  generate.seed = 1;
  EXPECT_EQ(texts_of(problems(generate)), Words{});
  const Words sampling = texts_of(findings(generate).notes);
  ASSERT_EQ(sampling.size(), 3u);
  expect_whole(generate);
  EXPECT_EQ(sampling[0],
            "--top-k 5 has no effect with --temperature 0, which always takes the likeliest token");

  PlanConfig plan;
  plan.run = pretrain({});
  plan.run.model.vocab_size = 100;
  plan.costs = "costs.json";
  EXPECT_EQ(texts_of(problems(plan)), Words{});
  plan.link_latency = 3;
  EXPECT_EQ(texts_of(problems(plan)),
            Words{"--link-latency 3 has no effect with --costs costs.json, whose times count: leave it out"});

  RecommendConfig recommend;
  EXPECT_EQ(texts_of(problems(recommend)), Words{});
  recommend.model.cross_layers = 4;
  recommend.training.eps = 1e-6;
  recommend.checkpoint.check_replicas = 0;
  const Words of_run = texts_of(problems(recommend));
  ASSERT_EQ(of_run.size(), 2u);
  expect_whole(recommend);
  expect_contains(of_run[0], "--cross-layers 4 has no effect without --interaction cross");
  expect_contains(of_run[1], "--eps 1e-06 has no effect without --optimizer adagrad or adam");
  EXPECT_EQ(texts_of(findings(recommend).notes),
            Words{"--check-replicas 0 has no effect without --save DIR"});
}

TEST(ConfigValidateCommands, PreprocessOptionsThatContradict) {
  PreprocessConfig preprocess;
  preprocess.input = {"a"};
  preprocess.output = "b";
  EXPECT_TRUE(problems(preprocess).empty());
  preprocess.ids = IdSource::Hash;
  preprocess.frequency_threshold = 3;
  const Words found = texts_of(problems(preprocess));
  ASSERT_EQ(found.size(), 2U);
  expect_whole(preprocess);
  EXPECT_EQ(found[0], "--ids hash needs --max-ind-range above 0: give the rows of every table");
  EXPECT_EQ(found[1],
            "--frequency-threshold 3 has no effect with --ids hash, which counts nothing: leave it out");
}

TEST(ConfigValidateCommands, TheFormatOfPredictionsFollowsFromTheirName) {
  ScoreConfig score;
  EXPECT_EQ(problems(score).size(), 3u);  // --load, --data and --output
  score.run.load = "d";
  score.run.data = "x";
  for (const auto& [output, format] :
       {std::pair{"a.csv", ScoreFormat::Csv}, std::pair{"a.jsonl", ScoreFormat::Jsonl},
        std::pair{"a.parquet", ScoreFormat::Parquet}, std::pair{"-", ScoreFormat::Csv}}) {
    score.output = output;
    EXPECT_EQ(*resolve(score).output_format, format);
  }
  score.output = "scores";
  ASSERT_EQ(problems(score).size(), 1u);
  expect_whole(score);
  expect_contains(text_of(problems(score)[0]),
                  "--output scores: the name ends in none of .csv, .jsonl and .parquet");
  score.output_format = ScoreFormat::Jsonl;
  EXPECT_EQ(*resolve(score).output_format, ScoreFormat::Jsonl);
}

}  // namespace
}  // namespace trifold
