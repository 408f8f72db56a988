// The search for a layout: its results agree with their plans, fit, and are in order.
#include "plan/layout_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/commands/commands.h"
#include "support/planned_runs.h"
#include "support/plans.h"
#include "support/refusal.h"

namespace trifold::test {
namespace {

constexpr double kBytesOfGib = 1024.0 * 1024.0 * 1024.0;

// 100 million parameters on a node of H100s.
PlanConfig search_of_8() {
  PlanConfig config;
  PretrainConfig& run = config.run;
  run = gpt_of({8, 1024, 16, 1024, 8192}, 8);
  run.precision.bf16 = true;
  run.batch.global_batch_size = 32;
  config.hardware = "h100";
  config.search = true;
  return config;
}

std::string refusal_of_search(const PlanConfig& config) {
  return refusal([&] { search_layouts(resolve(config)); });
}

TEST(LayoutOrder, TiesGoToLessMemoryThenToFewerTensorRanks) {
  constexpr double kLimit = 100;
  // 1.00 and 1.01 tie; 1.03 does not, and 1.04 ties with it.
  const std::vector<LayoutRank> ranks = {
      {1.04, 10, 1}, {1.00, 50, 1}, {1.01, 30, 8}, {1.03, 90, 1}, {1.015, 30.5, 4}};
  EXPECT_EQ(order_of_layouts(ranks, kLimit), (std::vector<size_t>{4, 2, 1, 0, 3}));
  EXPECT_TRUE(order_of_layouts({}, kLimit).empty());
}

TEST(LayoutSearch, AgreesWithPlans) {
  const LayoutSearch search = search_layouts(resolve(search_of_8()));
  ASSERT_FALSE(search.best.empty());
  EXPECT_LE(search.best.size(), 10U);
  EXPECT_GT(search.layouts, 200);
  EXPECT_LE(search.fitting, search.layouts);
  EXPECT_EQ(search.simulated, 20);
  std::vector<LayoutRank> ranks;
  for (const FoundLayout& found : search.best) {
    EXPECT_LE(static_cast<double>(found.bytes), search.limit);
    EXPECT_NEAR(static_cast<double>(found.estimate.bytes), static_cast<double>(found.bytes),
                0.1 * static_cast<double>(found.bytes));
    EXPECT_NEAR(found.estimate.time.all(), found.step_seconds, 0.25 * found.step_seconds);
    EXPECT_FALSE(found.bound.empty());
    ranks.push_back(
        {found.step_seconds, static_cast<double>(found.bytes), found.estimate.layout[SearchAxis::Tensor]});
    PlanConfig alone;
    alone.run = found.run;
    alone.hardware = "h100";
    const PlanOutcome outcome = outcome_of(resolve(alone));
    EXPECT_EQ(outcome.step_seconds, found.step_seconds);
    EXPECT_EQ(outcome.most_bytes(), found.bytes);
  }
  const std::vector<size_t> order = order_of_layouts(ranks, search.limit);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(LayoutSearch, FindsTensorRanksForExperts) {
  PlanConfig config = search_of_8();
  config.run.model.num_experts = 8;
  config.run.model.disable_bias_linear = true;
  const LayoutSearch search = search_layouts(resolve(config));
  std::set<int64_t> tensor;
  for (const EstimatedLayout& mesh : search.meshes) tensor.insert(mesh.layout[SearchAxis::Tensor]);
  EXPECT_EQ(tensor, (std::set<int64_t>{1, 2, 4, 8}));
  config.run.mesh.tensor_model_parallel_size = 2;
  config.run.mesh.sequence_parallel = true;
  config.search_over = {SearchAxis::MicroBatch, SearchAxis::SequenceParallel};
  const LayoutSearch two = search_layouts(resolve(config));
  ASSERT_FALSE(two.best.empty());
  for (const FoundLayout& found : two.best) {
    EXPECT_EQ(found.run.mesh.tensor_model_parallel_size, 2);
    EXPECT_TRUE(found.run.mesh.sequence_parallel);
  }
}

// Adapters in some layers alone. The layers below them have no backward.
TEST(LayoutSearch, TakesAdaptersOfSomeLayers) {
  PlanConfig config = search_of_8();
  config.run.model.disable_bias_linear = true;
  config.search_over = {SearchAxis::Tensor, SearchAxis::Pipeline};
  config.run.batch.micro_batch_size = 1;
  config.run.model.adapters.lora_rank = 8;
  const auto best = [&](std::vector<std::string> targets) {
    config.run.model.adapters.lora_targets = std::move(targets);
    const LayoutSearch search = search_layouts(resolve(config));
    for (const FoundLayout& found : search.best) {
      EXPECT_NEAR(found.estimate.time.all(), found.step_seconds, 0.05 * found.step_seconds);
      EXPECT_NEAR(static_cast<double>(found.estimate.bytes), static_cast<double>(found.bytes),
                  0.1 * static_cast<double>(found.bytes));
    }
    return search.best.front().step_seconds;
  };
  const double all = best({}), upper = best({"block.[4-7].*"}), last = best({"block.7.*"});
  EXPECT_LT(upper, all);
  EXPECT_LT(last, upper);
  EXPECT_GT(upper, all / 2);
  // Layers with experts alone have no such module.
  config.run.model.num_experts = 4;
  config.run.model.moe_layer_freq = "2";
  EXPECT_GT(best({"mlp.down"}), 0);
}

// Halves of pairs that take turns need memory of their own and less time.
TEST(LayoutSearch, CountsHalvesThatTakeTurns) {
  PlanConfig config = search_of_8();
  config.run.model.num_experts = 8;
  config.run.model.disable_bias_linear = true;
  config.run.mesh.overlap_moe_expert_parallel_comm = true;
  const LayoutSearch search = search_layouts(resolve(config));
  ASSERT_FALSE(search.best.empty());
  for (const FoundLayout& found : search.best) {
    EXPECT_EQ(found.run.pipeline.schedule->schedule, Schedule::DualPipeV);
    EXPECT_TRUE(found.run.mesh.overlap_moe_expert_parallel_comm);
    EXPECT_GT(found.run.mesh.expert_ranks(), 1);
    EXPECT_NEAR(static_cast<double>(found.estimate.bytes), static_cast<double>(found.bytes),
                0.05 * static_cast<double>(found.bytes));
    EXPECT_NEAR(found.estimate.time.all(), found.step_seconds, 0.25 * found.step_seconds);
  }
}

// On this engine's H100 the small kernels for 128 rows of a part at a time would take longer than they save.
TEST(LayoutSearch, CutsALargeHeadIntoParts) {
  PlanConfig config = search_of_8();
  config.hardware_set = {"kernel-floor=0", "launch=4"};
  config.run.model.vocab_size = 128000;
  config.run.model.untie_embeddings_and_output_weights = true;
  config.run.mesh.pipeline_model_parallel_size = 8;
  config.search_over = {SearchAxis::Schedule, SearchAxis::HeadParts, SearchAxis::MicroBatch};
  const FoundLayout best = search_layouts(resolve(config)).best.front();
  EXPECT_GT(best.run.mesh.pipeline_vocab_parts, 1);
  EXPECT_EQ(std::count(best.words.begin(), best.words.end(), "--pipeline-vocab-parts"), 1);
  config.search_over = {SearchAxis::Schedule, SearchAxis::MicroBatch};
  EXPECT_LT(best.step_seconds, 0.8 * search_layouts(resolve(config)).best.front().step_seconds);
}

TEST(LayoutSearch, ChoosesTheRanksThatShareExperts) {
  PlanConfig config = search_of_8();
  config.run.model.num_experts = 16;
  config.run.model.disable_bias_linear = true;
  config.search_over = {SearchAxis::Expert, SearchAxis::ExpertTensor, SearchAxis::MicroBatch};
  const LayoutSearch all = search_layouts(resolve(config));
  std::set<int64_t> sharing;
  size_t most = 0;
  for (const EstimatedLayout& mesh : all.meshes) {
    sharing.insert(mesh.layout[SearchAxis::Expert]);
    most = std::max(most, mesh.bytes);
  }
  EXPECT_EQ(sharing, (std::set<int64_t>{1, 2, 4, 8}));
  config.run.mesh.memory_limit = 0.4 * static_cast<double>(most) / kBytesOfGib;
  config.run.mesh.moe_buffer_factor = 2;  // only with several
  EXPECT_GT(search_layouts(resolve(config)).best.front().run.mesh.expert_model_parallel_size, 1);
}

// Which one rank has no use for.
TEST(LayoutSearch, KeepsWhatIsSaidOfSharedExperts) {
  PlanConfig config = search_of_8();
  config.run.model.num_experts = 16;
  config.run.model.disable_bias_linear = true;
  config.search_over = {SearchAxis::Expert, SearchAxis::MicroBatch};
  const auto seconds_of = [](const LayoutSearch& search, int64_t sharing) {
    for (const EstimatedLayout& mesh : search.meshes)
      if (mesh.layout[SearchAxis::Expert] == sharing) return mesh.time.all();
    return 0.0;
  };
  const LayoutSearch even = search_layouts(resolve(config));
  config.moe_load_imbalance = 4;
  const LayoutSearch uneven = search_layouts(resolve(config));
  EXPECT_EQ(seconds_of(uneven, 2), 0) << "four times the mean is more than all rows";
  EXPECT_GT(seconds_of(uneven, 8), seconds_of(even, 8));
  config.moe_load_imbalance = 1;
  config.run.mesh.expert_model_parallel_size = 4;
  config.run.mesh.moe_token_dispatcher_type = TokenDispatcher::AllGather;
  const LayoutSearch gathered = search_layouts(resolve(config));
  EXPECT_EQ(seconds_of(gathered, 1), 0);
  EXPECT_GT(seconds_of(gathered, 8), 0);
}

TEST(LayoutSearch, NamesTheExchangeOfExperts) {
  PlanConfig config = search_of_8();
  config.run.model.num_experts = 8;
  config.run.model.disable_bias_linear = true;
  config.run.mesh.expert_model_parallel_size = 8;
  config.run.mesh.tensor_model_parallel_size = 1;
  config.search_over = {SearchAxis::MicroBatch};
  config.hardware_set = {"nvlink-gbytes=1"};
  const LayoutSearch search = search_layouts(resolve(config));
  ASSERT_FALSE(search.best.empty());
  EXPECT_NE(search.best.front().bound.find("tensor and expert collectives"), std::string::npos)
      << search.best.front().bound;
}

TEST(LayoutSearch, ListsEachMeshOnce) {
  const LayoutSearch search = search_layouts(resolve(search_of_8()));
  std::set<std::pair<int64_t, int64_t>> seen;
  for (const EstimatedLayout& mesh : search.meshes) {
    const int64_t tensor = mesh.layout[SearchAxis::Tensor], pipeline = mesh.layout[SearchAxis::Pipeline];
    EXPECT_TRUE(seen.emplace(tensor, pipeline).second);
    EXPECT_EQ(tensor * pipeline * mesh.data, 8);
  }
  EXPECT_EQ(seen.size(), 10U);  // products of three powers of two that make 8
}

TEST(LayoutSearch, KeepsToTheMemoryLimit) {
  PlanConfig config = search_of_8();
  config.search_over = {SearchAxis::Tensor, SearchAxis::Pipeline, SearchAxis::MicroBatch};
  const LayoutSearch wide = search_layouts(resolve(config));
  const double needed = static_cast<double>(wide.best.front().bytes) / kBytesOfGib;
  config.run.mesh.memory_limit = 0.7 * needed;
  const LayoutSearch narrow = search_layouts(resolve(config));
  EXPECT_LT(narrow.fitting, wide.fitting);
  for (const FoundLayout& found : narrow.best)
    EXPECT_LE(static_cast<double>(found.bytes), 0.7 * needed * kBytesOfGib);
  config.run.mesh.memory_limit = 0.001;
  const std::string message = refusal_of_search(config);
  EXPECT_NE(message.find("the smallest"), std::string::npos) << message;
  EXPECT_NE(message.find("--micro-batch-size 1"), std::string::npos) << message;
  config.search_over = {SearchAxis::Exchange};  // of which one context rank has none
  config.run.batch.micro_batch_size = 1;
  const std::string alone = refusal_of_search(config);
  EXPECT_TRUE(alone.ends_with("GiB") || alone.ends_with("MiB")) << alone;
}

TEST(LayoutSearch, ChangesOnlyTheGivenAxes) {
  PlanConfig config = search_of_8();
  config.search_over = {SearchAxis::MicroBatch, SearchAxis::Recompute};
  config.run.mesh.tensor_model_parallel_size = 2;
  config.run.mesh.sequence_parallel = true;
  const LayoutSearch search = search_layouts(resolve(config));
  EXPECT_EQ(search.layouts, 4 * 3);  // 4 data ranks have 8 samples each: 1, 2, 4 and 8 at once
  for (const FoundLayout& found : search.best) {
    EXPECT_EQ(found.run.mesh.tensor_model_parallel_size, 2);
    EXPECT_TRUE(found.run.mesh.sequence_parallel);
    EXPECT_EQ(found.words.front(), "--micro-batch-size");
  }
  config.run.mesh.tensor_model_parallel_size = 3;  // the width does not divide
  EXPECT_NE(refusal_of_search(config).find("can run"), std::string::npos);
}

// Axes that are not searched may not fit the ranks.
TEST(LayoutSearch, SaysThatGivenRanksAreTooMany) {
  PlanConfig config = search_of_8();
  config.search_over = {SearchAxis::MicroBatch};
  config.run.mesh.ranks = 16;
  config.run.mesh.context_parallel_size = 4;
  config.run.mesh.pipeline_model_parallel_size = 8;
  EXPECT_NE(refusal_of_search(config).find("x context ranks x pipeline ranks"), std::string::npos);
}

// Three context ranks cannot exchange 8 heads, which is all that they can do on a GPU with dropout of attention.
TEST(LayoutSearch, SaysThatHeadsCannotBeExchanged) {
  PlanConfig config = search_of_8();
  config.run.model.num_attention_heads = 8;
  config.run.model.seq_length = 12288;
  config.run.model.attention_dropout = 0.1;
  config.run.mesh.ranks = 6;
  config.run.mesh.context_parallel_size = 3;
  config.run.mesh.device = ComputeDevice::Cuda;
  config.search_over = {SearchAxis::Exchange, SearchAxis::MicroBatch};
  const std::string message = refusal_of_search(config);
  EXPECT_NE(message.find("divide the query heads"), std::string::npos) << message;
}

// A search for another program counts that program's memory: where Trifold needs less, fewer layouts fit.
TEST(LayoutSearch, CountsTheMemoryOfTheDescribedProgram) {
  PlanConfig config = search_of_8();
  config.search_over = {SearchAxis::MicroBatch, SearchAxis::Recompute};
  config.run.mesh.memory_limit = 4;
  const LayoutSearch own = search_layouts(resolve(config));
  config.assume = {"attention=unfused", "activations=fused"};
  const LayoutSearch described = search_layouts(resolve(config));
  EXPECT_EQ(own.layouts, described.layouts);
  EXPECT_LT(described.fitting, own.fitting);
  for (const FoundLayout& found : described.best)
    EXPECT_NEAR(static_cast<double>(found.estimate.bytes), static_cast<double>(found.bytes),
                0.02 * static_cast<double>(found.bytes));
  config.run.model.num_experts = 4;
  config.run.model.disable_bias_linear = true;
  EXPECT_NE(refusal_of_search(config).find("dense layers"), std::string::npos);
}

// Long samples that hardly fit are cut over context ranks.
TEST(LayoutSearch, CutsLongSamples) {
  PlanConfig config = search_of_8();
  config.run.model.seq_length = 131072;
  config.run.model.group_query_attention = true;
  config.run.model.num_query_groups = 1;  // which no ranks can exchange
  config.run.batch.global_batch_size = 1;
  const LayoutSearch search = search_layouts(resolve(config));
  const FoundLayout& best = search.best.front();
  EXPECT_GT(best.run.mesh.context_parallel_size, 1);
  EXPECT_NE(best.run.mesh.context_exchange(), ContextExchange::AllToAll);
  EXPECT_EQ(best.estimate.layout[SearchAxis::Context], best.run.mesh.context_parallel_size);
  for (const FoundLayout& found : search.best) {
    EXPECT_EQ(ranks_of_copy(found.estimate.layout) * *found.run.mesh.data_parallel_size, 8);
    EXPECT_NEAR(static_cast<double>(found.estimate.bytes), static_cast<double>(found.bytes),
                0.1 * static_cast<double>(found.bytes));
    PlanConfig alone;
    alone.run = found.run;
    alone.hardware = "h100";
    const PlanOutcome outcome = outcome_of(resolve(alone));
    EXPECT_EQ(outcome.step_seconds, found.step_seconds);
    EXPECT_EQ(outcome.most_bytes(), found.bytes);
  }
}

TEST(AutoLayout, TakesTheBestOfTheSearch) {
  PlanConfig plan = search_of_8();
  plan.run.mesh.ranks = 2;
  PretrainConfig run = plan.run;
  run.auto_layout = "h100";
  run.batch.train_iters = 10;
  run.lr.lr = 1e-3;
  run.data.data_path = {"text.txt"};
  const ChosenLayout chosen = choose_layout(resolve(run));
  EXPECT_FALSE(chosen.run.auto_layout);
  EXPECT_EQ(layout_of(chosen.run), search_layouts(resolve(plan)).best.front().estimate.layout);
  EXPECT_TRUE(chosen.run.mesh.data_parallel_size && chosen.run.pipeline.schedule);
  EXPECT_EQ(chosen.run.batch.train_iters, 10);
  EXPECT_EQ(chosen.run.lr.lr_decay_iters, 10);
}

}  // namespace
}  // namespace trifold::test
