#include "config/subjects/pipeline_cut.h"

#include <gtest/gtest.h>

#include <array>

namespace trifold {
namespace {

using Layers = std::vector<int>;

std::string text_of(const StageLayers& layers) { return layers.problem ? text_of(*layers.problem) : ""; }

StageCutConfig layout(const char* text) {
  StageCutConfig cut;
  cut.pipeline_model_parallel_layout = text;
  return cut;
}

StageLayers numbers(std::optional<int64_t> first, std::optional<int64_t> last, int64_t layers, int ranks,
                    int chunks = 1) {
  StageCutConfig cut;
  cut.decoder_first_pipeline_num_layers = first;
  cut.decoder_last_pipeline_num_layers = last;
  return stage_layers(cut, layers, 1, ranks, chunks);
}

TEST(PipelineCut, ReadsMegatronsLayouts) {
  const StageLayers plain = stage_layers(layout("Et|tt|tL"), 4, 1, 3, 1);
  EXPECT_FALSE(plain.problem);
  EXPECT_EQ(plain.layers, (Layers{1, 2, 1}));
  EXPECT_EQ(stage_layers(layout("Et*3|(tt|)*2,t|L"), 8, 1, 5, 1).layers, (Layers{3, 2, 2, 1, 0}));
  EXPECT_EQ(stage_layers(layout("E|(t|)*22L"), 22, 1, 8, 3).layers.size(), 24U);
  EXPECT_EQ(stage_layers(layout("E((t|)*2t|)*2L"), 6, 1, 7, 1).layers, (Layers{1, 1, 1, 1, 1, 1, 0}));
}

TEST(PipelineCut, ReportsProblemsOfALayout) {
  const auto problem = [](const char* text) { return text_of(stage_layers(layout(text), 4, 1, 2, 1)); };
  const auto has = [&](const char* text, const char* part) {
    EXPECT_NE(problem(text).find(part), std::string::npos) << text << ": " << problem(text);
  };
  has("Et|ttxL", "'x'");
  has("Ett|tt", "end with the one L");
  has("tt|ttL", "begin with the one E");
  has("Ett|(ttL", "')' is missing");
  has("Ett)|ttL", "')' without '('");
  has("Ett|t*L", "number");
  has("Ett|t*0ttL", "number");
  has("Ett|t|tL", "3 stages");
  has("Ett|tL", "3 layers");
  has("Ettt(((((((((t)))))))))|L", "too many parentheses");
  has("E(((((((t*99)*99)*99)*99)*99)*99)*99)|L", "longer than any pipeline");
  EXPECT_NE(text_of(stage_layers(layout("Et||tttL"), 4, 1, 3, 1)).find("stage 1 of 3 would have no layer"),
            std::string::npos);
}

TEST(PipelineCut, TakesAnLForEachPartOfTheHead) {
  const StageLayers stages = stage_layers(layout("Ett|tL|L|LL"), 3, 4, 4, 1);
  EXPECT_FALSE(stages.problem);
  EXPECT_EQ(stages.layers, (Layers{2, 1, 0, 0}));
  EXPECT_EQ(stages.heads, (Layers{0, 1, 1, 2}));
  for (const char* wrong : {"Ett|t|L|L", "EtL|tL|tL|L", "Ett|tL|LL|L|L"})
    EXPECT_NE(text_of(stage_layers(layout(wrong), 3, 4, 4, 1)).find("the 4 L of --pipeline-vocab-parts"),
              std::string::npos)
        << wrong;
}

TEST(PipelineCut, DividesTheLayersLeftByTheEnds) {
  EXPECT_EQ(numbers(1, 1, 10, 4).layers, (Layers{1, 4, 4, 1}));
  EXPECT_EQ(numbers(2, std::nullopt, 11, 4).layers, (Layers{2, 3, 3, 3}));
  EXPECT_EQ(numbers(2, 4, 14, 3, 2).layers, (Layers{1, 4, 2, 1, 4, 2}));
  EXPECT_NE(text_of(numbers(3, 1, 10, 4, 2)).find("not divisible by the 2 stages"), std::string::npos);
  EXPECT_NE(text_of(numbers(6, 5, 10, 2)).find("make 11 layers"), std::string::npos);
  EXPECT_NE(text_of(numbers(9, 1, 10, 4)).find("would have no layer"), std::string::npos);
}

TEST(PipelineCut, EndsCountAsLayersWhereAsked) {
  StageCutConfig cut;
  cut.account_for_embedding_in_pipeline_split = cut.account_for_loss_in_pipeline_split = true;
  EXPECT_EQ(stage_layers(cut, 22, 1, 8, 1).layers, (Layers{2, 3, 3, 3, 3, 3, 3, 2}));
  EXPECT_EQ(stage_layers(cut, 22, 1, 8, 3).layers.front(), 0);
  EXPECT_FALSE(stage_layers(cut, 22, 1, 8, 3).problem);
  for (const auto& [layers, ranks, chunks] :
       {std::array{30, 8, 4}, std::array{46, 16, 3}, std::array{62, 32, 2}, std::array{126, 16, 8}})
    EXPECT_FALSE(stage_layers(cut, layers, 1, ranks, chunks).problem) << layers;
  cut = {};
  cut.pipeline_cut = PipelineCut::Even;
  EXPECT_EQ(stage_layers(cut, 10, 1, 4, 1).layers, (Layers{3, 3, 2, 2}));
  EXPECT_EQ(stage_layers(cut, 3, 1, 4, 1).layers, (Layers{1, 1, 1, 0}));  // the last has the head
}

}  // namespace
}  // namespace trifold
