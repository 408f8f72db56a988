// A rank that is rehearsed alone holds the same memory, to the byte, and does the same, as among its peers.
#include <gtest/gtest.h>

#include "parity/rehearsal.h"
#include "support/expert_runs.h"
#include "support/run_mesh.h"
#include "support/training.h"

namespace trifold::test {
namespace {

PretrainConfig four_layer_run() {
  PretrainConfig config = small_run();
  config.model.num_layers = 4;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(6);
  config.zero.zero_min_unit_params = 4000;  // several units in a model this small
  return config;
}

PretrainConfig over(const RunMesh& mesh, PretrainConfig config = four_layer_run()) { return mesh.of(config); }

TEST(Rehearsal, HasTheRanksOfEverySchedule) {
  const std::pair<const char*, int> schedules[] = {
      {"gpipe", 1}, {"1f1b", 1},       {"interleaved", 2}, {"zb-h1", 1},         {"zb-h2", 1},
      {"zb-v", 2},  {"dualpipe-v", 2}, {"pipedream", 1},   {"pipedream-2bw", 1}, {"auto", 1}};
  for (const auto& [schedule, chunks] : schedules) {
    SCOPED_TRACE(schedule);
    PretrainConfig config = over({.dp = 2, .tp = 2, .pp = 2, .schedule = schedule, .chunks = chunks});
    config.batch.global_batch_size = 16;
    if (std::string_view(schedule).starts_with("pipedream")) config.optimizer.clip_grad = 0;
    expect_same_rehearsed(config);
  }
}

TEST(Rehearsal, HasTheRanksOfEveryZeroStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    expect_same_rehearsed(over({.dp = 4, .tp = 2, .sequence_parallel = true, .zero = stage}));
    expect_same_rehearsed(over({.dp = 2, .tp = 2, .pp = 2, .zero = stage}));
  }
}

TEST(Rehearsal, HasTheRanksOfZeroGroupsAndOfShortSums) {
  PretrainConfig groups = over({.dp = 8, .zero = 2});
  groups.zero.zero_group_size = GroupSize::parse("4");
  expect_same_rehearsed(groups);
  PretrainConfig brief = over({.dp = 4, .pp = 2, .zero = 1});
  brief.precision.bf16 = true;
  brief.precision.grad_reduce_in_bf16 = true;
  expect_same_rehearsed(brief);
}

TEST(Rehearsal, HasContextRanksWithEachExchange) {
  for (const ContextExchange exchange :
       {ContextExchange::AllGather, ContextExchange::Ring, ContextExchange::AllToAll}) {
    SCOPED_TRACE(name_of(exchange));
    expect_same_rehearsed(over({.dp = 2, .tp = 2, .cp = 2, .sequence_parallel = true, .exchange = exchange}));
    expect_same_rehearsed(over({.pp = 2, .cp = 4, .zero = 1, .exchange = exchange}));
  }
}

TEST(Rehearsal, HasRanksThatShareExperts) {
  for (const TokenDispatcher dispatch : {TokenDispatcher::AllToAll, TokenDispatcher::AllGather}) {
    SCOPED_TRACE(name_of(dispatch));
    for (const ExpertMesh& mesh :
         {ExpertMesh{.dp = 4, .pp = 2, .ep = 4}, ExpertMesh{.dp = 4, .tp = 2, .ep = 2, .etp = 2, .zero = 1},
          ExpertMesh{.dp = 2, .tp = 2, .pp = 2, .ep = 4, .zero = 2}}) {
      SCOPED_TRACE(mesh.name());
      PretrainConfig config = mesh.of(run_with_experts(8, false));
      config.mesh.moe_token_dispatcher_type = dispatch;
      expect_same_rehearsed(config, Depends::OnRows);
    }
  }
}

TEST(Rehearsal, HasRanksThatRecomputeAndOffload) {
  for (const RecomputeGranularity recompute : {RecomputeGranularity::Selective, RecomputeGranularity::Full})
    expect_same_rehearsed(over({.dp = 2, .tp = 2, .pp = 2, .recompute = recompute}));
  PretrainConfig state = over({.dp = 4, .tp = 2, .zero = 3});
  state.zero.offload = Offload::parse(std::filesystem::temp_directory_path().string());
  expect_same_rehearsed(state);
  PretrainConfig activations = over({.dp = 2, .tp = 2, .pp = 2});
  activations.model.num_layers = 8;
  activations.mesh.cpu_offloading_num_layers = 2;
  activations.mesh.cpu_offloading_folder = std::filesystem::temp_directory_path().string();
  expect_same_rehearsed(activations);
}

TEST(Rehearsal, HasRanksOfOtherModelsAndTypes) {
  PretrainConfig parts = over({.dp = 2, .pp = 4, .head_parts = 4});
  expect_same_rehearsed(parts);
  PretrainConfig llama = over({.dp = 2, .tp = 4});
  make_llama(llama.model, 2);
  llama.precision.bf16 = true;
  expect_same_rehearsed(llama);
  PretrainConfig half = over({.dp = 4, .pp = 2});
  half.precision.fp16 = true;
  half.precision.initial_loss_scale = 1024;  // no step overflows
  expect_same_rehearsed(half);
  PretrainConfig bert = over({.dp = 4, .pp = 2});
  bert.model.model_type = ModelType::Bert;
  expect_same_rehearsed(bert);
}

}  // namespace
}  // namespace trifold::test
