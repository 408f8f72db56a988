// The search space: candidates, rules, and conversion to options and back.
#include "config/commands/search_axes.h"

#include <algorithm>

#include "config/commands/commands.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

// GPT of 24 layers and 16 heads on 16 ranks.
PretrainConfig run_of_16() {
  PretrainConfig run;
  run.model.num_layers = 24;
  run.model.hidden_size = 1024;
  run.model.num_attention_heads = 16;
  run.model.seq_length = 512;
  run.model.vocab_size = 1000;
  run.mesh.ranks = 16;
  run.batch.global_batch_size = 64;
  return run;
}

std::vector<int64_t> candidates(const PretrainConfig& run, SearchAxis axis, const Layout& before) {
  return search_axes()[static_cast<size_t>(axis)].candidates({run, 8, schedules_searched({})}, before);
}

Layout at(int64_t tensor, int64_t pipeline, Schedule schedule = Schedule::OneFOneB, int64_t stages = 1) {
  Layout layout;
  layout[SearchAxis::Tensor] = tensor;
  layout[SearchAxis::Context] = 1;
  layout[SearchAxis::Exchange] = -1;  // nothing to exchange
  layout[SearchAxis::Pipeline] = pipeline;
  layout[SearchAxis::Schedule] = static_cast<int64_t>(schedule);
  layout[SearchAxis::Expert] = layout[SearchAxis::ExpertTensor] = layout[SearchAxis::HeadParts] = 1;
  layout[SearchAxis::Stages] = stages;
  layout[SearchAxis::MicroBatch] = 1;
  return layout;
}

using Values = std::vector<int64_t>;

TEST(SearchAxes, TableIsInTheOrderOfTheEnum) {
  ASSERT_EQ(search_axes().size(), kSearchAxes);
  PretrainConfig run;
  const OptionTable table = options_of(run);
  for (size_t i = 0; i < kSearchAxes; ++i) {
    EXPECT_EQ(static_cast<size_t>(search_axes()[i].axis), i);
    for (const std::string_view option : search_axes()[i].options)
      EXPECT_NE(table.find(option), nullptr) << option;
  }
}

TEST(SearchAxes, TensorRanksShareANodeAndDivideTheLayer) {
  PretrainConfig run = run_of_16();
  EXPECT_EQ(candidates(run, SearchAxis::Tensor, at(1, 1)), (Values{1, 2, 4, 8}));
  run.model.num_attention_heads = 12;
  run.model.hidden_size = 768;
  EXPECT_EQ(candidates(run, SearchAxis::Tensor, at(1, 1)), (Values{1, 2, 4}));
  run.model.group_query_attention = true;
  run.model.num_query_groups = 3;
  EXPECT_EQ(candidates(run, SearchAxis::Tensor, at(1, 1)), (Values{1}));
}

TEST(SearchAxes, TensorRanksCutTheSharedExpertAndNoOther) {
  PretrainConfig run = run_of_16();
  run.model.num_experts = 8;
  run.model.ffn_hidden_size = 513;
  EXPECT_EQ(candidates(run, SearchAxis::Tensor, at(1, 1)), (Values{1, 2, 4, 8}));
  run.model.moe_shared_expert_intermediate_size = 510;
  EXPECT_EQ(candidates(run, SearchAxis::Tensor, at(1, 1)), (Values{1, 2}));
}

TEST(SearchAxes, ContextRanksAreForLongSamples) {
  PretrainConfig run = run_of_16();
  EXPECT_EQ(candidates(run, SearchAxis::Context, at(2, 1)), (Values{1}));
  run.model.seq_length = 32768;
  EXPECT_EQ(candidates(run, SearchAxis::Context, at(1, 1)), (Values{1, 2, 4, 8}));
  EXPECT_EQ(candidates(run, SearchAxis::Context, at(4, 1)), (Values{1, 2, 4}));
  EXPECT_EQ(candidates(run, SearchAxis::Exchange, at(2, 1)), (Values{-1}));
  Layout cut = at(2, 1);
  cut[SearchAxis::Context] = 4;
  EXPECT_EQ(candidates(run, SearchAxis::Exchange, cut).size(), 3U);
  run.model.group_query_attention = true;  // four ranks share each of two key heads
  run.model.num_query_groups = 2;
  EXPECT_EQ(candidates(run, SearchAxis::Exchange, cut).size(), 3U);
  run.model.group_query_attention = false;
  cut[SearchAxis::Context] = 3;  // does not divide 8 heads
  EXPECT_EQ(candidates(run, SearchAxis::Exchange, cut).size(), 2U);
  cut[SearchAxis::Context] = 4;
  EXPECT_EQ(candidates(run, SearchAxis::Pipeline, cut), (Values{1, 2}));
  EXPECT_EQ(candidates(run, SearchAxis::Zero, cut), (Values{0, 1, 2, 3}));
  run.mesh.device = ComputeDevice::Cuda;  // where cuDNN takes whole sequences of some heads
  EXPECT_EQ(candidates(run, SearchAxis::Context, at(1, 1)), (Values{1, 2, 4, 8}));
  EXPECT_EQ(candidates(run, SearchAxis::Exchange, cut),
            (Values{static_cast<int64_t>(ContextExchange::AllToAll)}));
  cut[SearchAxis::Context] = 3;
  EXPECT_EQ(candidates(run, SearchAxis::Exchange, cut), Values{});
  cut[SearchAxis::Context] = 4;
  run.precision.bf16 = true;  // and blocks of whole tiles, without dropout
  run.model.attention_dropout = 0;
  EXPECT_EQ(candidates(run, SearchAxis::Exchange, cut).size(), 3U);
  run.model.attention_dropout = 0.1;
  EXPECT_EQ(candidates(run, SearchAxis::Exchange, cut).size(), 1U);
  run.mesh.device = ComputeDevice::Auto;
  run.model.num_experts = 8;
  EXPECT_EQ(candidates(run, SearchAxis::Context, at(1, 1)), (Values{1, 2, 4, 8}));
  run.model.num_experts.reset();
  run.model.model_type = ModelType::Bert;
  EXPECT_EQ(candidates(run, SearchAxis::Context, at(1, 1)), (Values{1}));
}

TEST(SearchAxes, OneContextRankExchangesNothing) {
  PretrainConfig run = run_of_16();
  run.mesh.cp_comm_type = ContextExchange::Ring;
  Layout layout = at(2, 4);
  layout[SearchAxis::Context] = 2;
  layout[SearchAxis::Exchange] = static_cast<int64_t>(ContextExchange::Ring);
  write_layout(layout, all_search_axes(), run);
  EXPECT_EQ(layout_of(run)[SearchAxis::Exchange], layout[SearchAxis::Exchange]);
  EXPECT_EQ(run.mesh.data_parallel_size, 1);
  const Words words = layout_words(layout, std::vector{SearchAxis::Context, SearchAxis::Exchange}, run);
  EXPECT_EQ(words, (Words{"--context-parallel-size", "2", "--cp-comm-type", "p2p"}));
  layout[SearchAxis::Context] = 1;
  write_layout(layout, std::vector{SearchAxis::Context}, run);
  EXPECT_FALSE(run.mesh.cp_comm_type);
  EXPECT_EQ(run.mesh.data_parallel_size, 2);
}

// What context ranks exchange is not lost where only their number is searched.
TEST(SearchAxes, AGivenExchangeIsKept) {
  PretrainConfig run = run_of_16();
  run.mesh.context_parallel_size = 4;
  run.mesh.cp_comm_type = ContextExchange::AllToAll;
  PretrainConfig open = run;
  open_axes(open, std::vector{SearchAxis::Context});
  Layout layout = layout_of(open);
  layout[SearchAxis::Context] = 2;
  write_layout(layout, std::vector{SearchAxis::Context}, open);
  EXPECT_EQ(open.mesh.cp_comm_type, ContextExchange::AllToAll);
  open_axes(run, all_search_axes());
  EXPECT_FALSE(run.mesh.cp_comm_type);
}

TEST(SearchAxes, PipelineRanksHaveALayerEachAndDataRanksDivideTheBatch) {
  PretrainConfig run = run_of_16();
  EXPECT_EQ(candidates(run, SearchAxis::Pipeline, at(2, 1)), (Values{1, 2, 4, 8}));
  run.model.num_layers = 4;
  EXPECT_EQ(candidates(run, SearchAxis::Pipeline, at(2, 1)), (Values{1, 2, 4}));
  run.batch.global_batch_size = 4;
  EXPECT_EQ(candidates(run, SearchAxis::Pipeline, at(2, 1)), (Values{2, 4}));
}

TEST(SearchAxes, StagesAndMicroBatchesFollowTheSchedule) {
  PretrainConfig run = run_of_16();
  EXPECT_EQ(candidates(run, SearchAxis::Schedule, at(1, 1)).size(), 1U);
  EXPECT_EQ(candidates(run, SearchAxis::Schedule, at(1, 4)).size(), 5U);
  EXPECT_EQ(candidates(run, SearchAxis::Schedule, at(1, 16)).size(), 3U);  // 24 layers are not 32
  EXPECT_EQ(candidates(run, SearchAxis::Stages, at(1, 4)), (Values{1}));
  EXPECT_EQ(candidates(run, SearchAxis::Stages, at(1, 4, Schedule::ZbV)), (Values{2}));
  EXPECT_EQ(candidates(run, SearchAxis::Stages, at(1, 4, Schedule::Interleaved)), (Values{2, 3, 6}));
  // 4 data ranks have 16 samples each.
  EXPECT_EQ(candidates(run, SearchAxis::MicroBatch, at(1, 4)), (Values{1, 2, 4, 8, 16}));
  EXPECT_EQ(candidates(run, SearchAxis::MicroBatch, at(1, 4, Schedule::Interleaved, 2)), (Values{1, 2, 4}));
}

TEST(SearchAxes, ACutIntoEqualNumbersSaysWhatCountsAsALayer) {
  PretrainConfig run = run_of_16();
  const auto stages = [&] { return candidates(run, SearchAxis::Stages, at(1, 4, Schedule::Interleaved)); };
  run.model.num_layers = 30;
  EXPECT_EQ(stages(), (Values{2, 4}));  // 30 + 2 layers
  run.mesh.cut.pipeline_cut = PipelineCut::Even;
  EXPECT_EQ(stages(), Values{});
  run.mesh.cut.account_for_embedding_in_pipeline_split = true;
  EXPECT_EQ(stages(), Values{});
  run.mesh.cut.account_for_loss_in_pipeline_split = true;
  EXPECT_EQ(stages(), (Values{2, 4}));
  run.mesh.cut.pipeline_cut = PipelineCut::Cost;
  EXPECT_EQ(stages(), (Values{2, 4}));
  run.model.num_layers = 32;
  EXPECT_EQ(stages(), Values{});
}

TEST(SearchAxes, ZeroNeedsDataRanksAndStage3NoPipeline) {
  PretrainConfig run = run_of_16();
  EXPECT_EQ(candidates(run, SearchAxis::Zero, at(8, 2)), (Values{0}));
  EXPECT_EQ(candidates(run, SearchAxis::Zero, at(1, 4)), (Values{0, 1, 2}));
  EXPECT_EQ(candidates(run, SearchAxis::Zero, at(2, 1)), (Values{0, 1, 2, 3}));
  EXPECT_EQ(candidates(run, SearchAxis::SequenceParallel, at(1, 4)), (Values{0}));
  EXPECT_EQ(candidates(run, SearchAxis::SequenceParallel, at(2, 4)), (Values{0, 1}));
  run.model.num_experts = 8;  // whose rows tensor ranks must share
  EXPECT_EQ(candidates(run, SearchAxis::SequenceParallel, at(2, 4)), (Values{1}));
  EXPECT_EQ(candidates(run, SearchAxis::SequenceParallel, at(1, 4)), (Values{0}));
}

TEST(SearchAxes, ExpertsAreSharedOrCut) {
  PretrainConfig run = run_of_16();
  EXPECT_EQ(candidates(run, SearchAxis::Expert, at(2, 4)), (Values{1}));
  EXPECT_EQ(candidates(run, SearchAxis::ExpertTensor, at(2, 4)), (Values{1}));
  run.model.num_experts = 12;
  EXPECT_EQ(candidates(run, SearchAxis::Expert, at(2, 1)), (Values{1, 2, 4}));
  EXPECT_EQ(candidates(run, SearchAxis::ExpertTensor, at(2, 4)), (Values{1, 2}));
  Layout shared = at(2, 4);
  shared[SearchAxis::Expert] = 4;  // all ranks of a stage
  EXPECT_EQ(candidates(run, SearchAxis::ExpertTensor, shared), (Values{1}));
}

TEST(SearchAxes, ALargeHeadIsCut) {
  PretrainConfig run = run_of_16();
  run.model.vocab_size = 128000;  // 10 layers of width 1024
  EXPECT_EQ(candidates(run, SearchAxis::HeadParts, at(1, 4)), (Values{1, 8}));
  EXPECT_EQ(candidates(run, SearchAxis::HeadParts, at(1, 1)), (Values{1}));
  run.model.vocab_size = 1000;
  EXPECT_EQ(candidates(run, SearchAxis::HeadParts, at(1, 4)), (Values{1}));
  // Options appear where they are not those of every run.
  Layout layout = at(1, 4);
  const std::vector axis{SearchAxis::HeadParts};
  EXPECT_TRUE(layout_words(layout, axis, run).empty());
  layout[SearchAxis::HeadParts] = 4;
  EXPECT_EQ(layout_words(layout, axis, run), (Words{"--pipeline-vocab-parts", "4"}));
  run.mesh.pipeline_vocab_parts = 4;
  EXPECT_EQ(layout_words(at(1, 4), axis, run), (Words{"--pipeline-vocab-parts", "1"}));
}

TEST(SearchAxes, ALayoutIsReadAsItWasWritten) {
  Layout layout = at(2, 4, Schedule::Interleaved, 3);
  layout[SearchAxis::MicroBatch] = 2;
  layout[SearchAxis::SequenceParallel] = 1;
  layout[SearchAxis::Zero] = 2;
  layout[SearchAxis::Recompute] = static_cast<int64_t>(RecomputeGranularity::Selective);
  PretrainConfig run = run_of_16();
  write_layout(layout, all_search_axes(), run);
  EXPECT_EQ(layout_of(run), layout);
  EXPECT_EQ(run.mesh.data_parallel_size, 2);
  EXPECT_EQ(run.zero.zero_reduce, ReducePolicy::Each);
  EXPECT_EQ(
      layout_words(layout, all_search_axes(), run_of_16()),
      (Words{"--tensor-model-parallel-size", "2", "--context-parallel-size", "1",
             "--pipeline-model-parallel-size", "4", "--schedule", "interleaved",
             "--num-virtual-stages-per-pipeline-rank", "3", "--micro-batch-size", "2", "--sequence-parallel",
             "--zero-stage", "2", "--zero-reduce", "each", "--recompute-granularity", "selective"}));
  open_axes(run, all_search_axes());
  EXPECT_EQ(run.mesh.tensor_model_parallel_size, 1);
  EXPECT_FALSE(run.mesh.data_parallel_size || run.pipeline.schedule || run.zero.zero_reduce);
}

// Only one of the two options that say how many stages a rank has may be given.
TEST(SearchAxes, StagesAreSpelledAsTheyWereGiven) {
  PretrainConfig run = run_of_16();
  run.pipeline.num_layers_per_virtual_pipeline_stage = 3;
  write_layout(at(1, 4, Schedule::Interleaved, 3), all_search_axes(), run);
  EXPECT_EQ(run.pipeline.num_layers_per_virtual_pipeline_stage, 2);
  EXPECT_FALSE(run.pipeline.num_virtual_stages_per_pipeline_rank);
}

// ---- The options ----

Words search_words() {
  return {
      "plan", "--num-layers",          "24", "--hidden-size", "1024", "--seq-length", "512",        "--ranks",
      "16",   "--num-attention-heads", "16", "--vocab-size",  "1000", "--search",     "--hardware", "h100"};
}

TEST(SearchOptions, NeedNoLayout) {
  const auto plan =
      std::get<PlanConfig>(read(search_words() + Words{"--global-batch-size", "64", "--tp", "8"}));
  EXPECT_TRUE(plan.search);
  EXPECT_EQ(plan.run.mesh.tensor_model_parallel_size, 1);  // open
  EXPECT_EQ(axes_searched(plan).size(), kSearchAxes);
  const auto part = std::get<PlanConfig>(
      read(search_words() + Words{"--global-batch-size", "64", "--tp", "8", "--micro-batch-size", "2",
                                  "--search-over", "pipeline,schedule,stages"}));
  EXPECT_EQ(part.run.mesh.tensor_model_parallel_size, 8);
  EXPECT_EQ(axes_searched(part),
            (std::vector<SearchAxis>{SearchAxis::Pipeline, SearchAxis::Schedule, SearchAxis::Stages}));
}

TEST(SearchOptions, RejectsOptionsThatASearchCannotUse) {
  expect_contains(refusal_of(search_words()), "--search needs --global-batch-size");
  const Words complete_words = search_words() + Words{"--global-batch-size", "64"};
  expect_contains(refusal_of(complete_words + Words{"--schedule-csv", "a.csv"}),
                  "--schedule-csv a.csv has no effect with --search");
  expect_contains(refusal_of(complete_words + Words{"--schedule", "a.csv"}), "a.csv");
  expect_contains(refusal_of(complete_words + Words{"--decoder-first-pipeline-num-layers", "3"}),
                  "--search-over");
  expect_contains(refusal_of(complete_words + Words{"--search-over", "tensor"}), "--micro-batch-size");
  expect_contains(refusal_of(complete_words + Words{"--search-over", "width"}), "micro-batch");
  Words no_search = complete_words + Words{"--micro-batch-size", "1", "--search-over", "zero"};
  no_search.erase(std::find(no_search.begin(), no_search.end(), "--search"));
  expect_contains(refusal_of(no_search), "--search-over zero has no effect without --search");
  Words no_device = complete_words;
  no_device.resize(no_device.size() - 4);
  expect_contains(refusal_of(no_device + Words{"--global-batch-size", "64"}), "--search needs --hardware");
}

TEST(SearchOptions, SchedulesAreNamed) {
  const auto plan = std::get<PlanConfig>(
      read(search_words() + Words{"--global-batch-size", "64", "--search-schedules", "1f1b,dualpipe-v"}));
  EXPECT_EQ(schedules_searched(plan), (std::vector<Schedule>{Schedule::OneFOneB, Schedule::DualPipeV}));
  const Words words = search_words() + Words{"--global-batch-size", "64", "--search-schedules"};
  expect_contains(refusal_of(words + Words{"pipedream"}), "zb-h2");
  expect_contains(refusal_of(words + Words{"1f1b", "--search-over", "zero", "--micro-batch-size", "1"}),
                  "--search-schedules has no effect");
}

TEST(SearchOptions, ReportsProblemsOfTheModel) {
  expect_contains(refusal_of(search_words() + Words{"--global-batch-size", "64", "--hidden-dropout", "2"}),
                  "--hidden-dropout");
}

TEST(AutoLayout, NeedsNoLayoutAndAGlobalBatch) {
  Words words = complete() + Words{"--auto-layout", "h100", "--ranks", "4"};
  const auto micro = std::find(words.begin(), words.end(), "--micro-batch-size");
  words.erase(micro, micro + 2);
  expect_contains(refusal_of(words), "--auto-layout needs --global-batch-size");
  const auto run = std::get<PretrainConfig>(read(words + Words{"--global-batch-size", "8"}));
  EXPECT_EQ(run.auto_layout, "h100");
  EXPECT_FALSE(run.mesh.data_parallel_size);  // still to be chosen
}

}  // namespace
}  // namespace trifold
