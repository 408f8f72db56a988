// Checks of the layout over ranks: each mistake alone, reported once, with what would be right.
#include "config/subjects/mesh.h"

#include <gtest/gtest.h>

#include <functional>

#include "config/commands/validate.h"
#include "config/fields/pipeline_choice.h"
#include "unit/config_testing.h"

namespace trifold::validate_mesh_test {
namespace {

// 8 layers on 8 ranks of which 4 are a pipeline and 2 copies of it; 8 micro-batches a step.
PretrainConfig sound() {
  PretrainConfig config;
  config.model.num_layers = 8;
  config.model.hidden_size = 128;
  config.model.num_attention_heads = 4;
  config.model.seq_length = 64;
  config.batch.micro_batch_size = 2;
  config.batch.global_batch_size = 32;
  config.batch.train_iters = 400;
  config.lr.lr = 1e-3;
  config.data.data_path = {"text"};
  config.mesh.ranks = 8;
  config.mesh.pipeline_model_parallel_size = 4;
  return config;
}

using Change = std::function<void(PretrainConfig&)>;

struct Case {
  const char* expected;  // part of the one problem that is reported
  Change change;
};

void tensor(PretrainConfig& c, int size) {
  c.mesh.tensor_model_parallel_size = size;
  c.mesh.ranks = size * 4;
}

void schedule(PretrainConfig& c, const char* name, std::optional<int> chunks = {}) {
  c.pipeline.schedule = ScheduleChoice::parse(name);
  c.pipeline.num_virtual_stages_per_pipeline_rank = chunks;
}

// Every copy of the model on one pipeline rank.
void context(PretrainConfig& c, int size) {
  c.mesh.context_parallel_size = size;
  c.mesh.pipeline_model_parallel_size = 1;
  c.pipeline = {};
}

const std::vector<Case>& cases() {
  using C = PretrainConfig;
  static const std::vector<Case> kCases = {
      {"--tiled-mlp 129 is more than the 128 rows of a micro-batch on a rank: give at most 128",
       [](C& c) { c.mesh.tiled_mlp = 129; }},
      {"--tiled-mlp 65 is more than the 64 rows of a micro-batch on a rank",
       [](C& c) { context(c, 2), c.mesh.tiled_mlp = 65; }},
      {"--tiled-mlp 2 is not possible with --num-experts 4, because experts take their rows at once",
       [](C& c) {
         c.model.num_experts = 4, c.model.disable_bias_linear = true;
         c.mesh.tiled_mlp = 2;
       }},
      {"--pipeline-vocab-parts 3 x --tensor-model-parallel-size 2 does not divide the padded vocabulary of 512 "
       "tokens: give another number, or --make-vocab-size-divisible-by 384",
       [](C& c) {
         tensor(c, 2), c.mesh.pipeline_vocab_parts = 3;
         c.model.vocab_size = 500;
       }},
      {"--pipeline-vocab-parts 2 is not possible with --optimizer lamb",
       [](C& c) { c.mesh.pipeline_vocab_parts = 2, c.optimizer.optimizer = OptimizerKind::Lamb; }},
      {"--pipeline-vocab-parts 2 is not possible with --optimizer lars",
       [](C& c) { c.mesh.pipeline_vocab_parts = 2, c.optimizer.optimizer = OptimizerKind::Lars; }},
      {"--pipeline-vocab-parts 2 is not possible with this --model-type",
       [](C& c) { c.mesh.pipeline_vocab_parts = 2, c.model.model_type = ModelType::Bert; }},
      {"--seq-length 66 is not a multiple of 2 x --context-parallel-size 2 = 4: each rank has positions from",
       [](C& c) { context(c, 2), c.model.seq_length = 66; }},
      {"--cp-comm-type a2a cuts the 4 query heads and 4 key heads of a tensor rank over "
       "--context-parallel-size 8, which must divide the query heads, and divide the key heads or be a multiple of "
       "them: give another size, or --cp-comm-type all_gather or p2p",
       [](C& c) { context(c, 8), c.mesh.cp_comm_type = ContextExchange::AllToAll; }},
      {"--seq-length 66 is not a multiple of --context-parallel-size 4, whose ranks share a sample evenly: 64 and 68",
       [](C& c) { context(c, 4), c.model.model_type = ModelType::Bert, c.model.seq_length = 66; }},
      {"--ranks 8 is not divisible by tensor 1 x context 3 x pipeline 1 = 3: 6 and 9 are",
       [](C& c) { context(c, 3), c.model.seq_length = 60, c.batch.global_batch_size.reset(); }},
      {"--ranks 8 is not tensor 1 x context 2 x pipeline 1 x data 8 = 16: give --ranks 16",
       [](C& c) { context(c, 2), c.mesh.data_parallel_size = 8; }},
      {"--sequence-parallel cuts the --seq-length 12 x --micro-batch-size 1 / --context-parallel-size 2 = 6 "
       "rows of a micro-batch over --tensor-model-parallel-size 4, which does not divide them: give a "
       "--seq-length that 8 divides",
       [](C& c) {
         context(c, 2), c.mesh.tensor_model_parallel_size = 4, c.mesh.sequence_parallel = true;
         c.model.seq_length = 12, c.batch.micro_batch_size = 1;
       }},
      {"--num-attention-heads 5 is not divisible by --tensor-model-parallel-size 2: 4 and 6 are",
       [](C& c) { tensor(c, 2), c.model.num_attention_heads = 5, c.model.hidden_size = 130; }},
      {"--num-query-groups 3 and --tensor-model-parallel-size 2 do not divide each other: one must",
       [](C& c) {
         tensor(c, 2), c.model.num_attention_heads = 6, c.model.hidden_size = 132;
         c.model.group_query_attention = true, c.model.num_query_groups = 3;
       }},
      {"--ffn-hidden-size 301 is not divisible by --tensor-model-parallel-size 2: 300 and 302 are",
       [](C& c) { tensor(c, 2), c.model.ffn_hidden_size = 301; }},
      {"--seq-length 63 x --micro-batch-size 1 = 63 rows of a micro-batch over --tensor-model-parallel-size "
       "4, which does not divide them: give a --seq-length that 4 divides",
       [](C& c) {
         tensor(c, 4), c.mesh.sequence_parallel = true, c.model.seq_length = 63, c.batch.micro_batch_size = 1;
       }},
      {"--ranks 6 is not divisible by tensor 1 x pipeline 4 = 4: 4 and 8 are",
       [](C& c) { c.mesh.ranks = 6; }},
      {"--ranks 8 is not divisible by --ranks-per-node 3", [](C& c) { c.mesh.ranks_per_node = 3; }},
      {"--zero-group-size 3 does not divide the data-parallel size 2",
       [](C& c) { c.zero.zero_group_size = GroupSize{3}; }},
      {"--ranks 8 is not tensor 1 x pipeline 4 x data 4 = 16: give --ranks 16 or --data-parallel-size 2",
       [](C& c) { c.mesh.data_parallel_size = 4; }},
      {"--num-layers 3 is less than the stages, --pipeline-model-parallel-size 4 x 1 stage a rank = 4: give "
       "at least 4 layers, or --pipeline-model-parallel-size 3 or less",
       [](C& c) { c.model.num_layers = 3; }},
      {"--num-layers 1 and --pipeline-vocab-parts 2 are together less than the stages, "
       "--pipeline-model-parallel-size 4 x 1 stage a rank = 4: give at least 2 layers, or "
       "--pipeline-model-parallel-size 3 or less",
       [](C& c) {
         c.model.num_layers = 1, c.mesh.pipeline_vocab_parts = 2;
         c.model.untie_embeddings_and_output_weights = true;
       }},
      {"--num-layers 6 is less than the stages, --pipeline-model-parallel-size 4 x "
       "--num-virtual-stages-per-pipeline-rank 2 = 8: give at least 8 layers, or at most 1 a rank",
       [](C& c) { schedule(c, "interleaved", 2), c.model.num_layers = 6; }},
      {"--num-layers 7 is less than the stages, --pipeline-model-parallel-size 4 x 2 stages a rank = 8",
       [](C& c) { schedule(c, "zb-v"), c.model.num_layers = 7; }},
      {"--num-layers 10 is not divisible by --pipeline-model-parallel-size 4 x "
       "--num-layers-per-virtual-pipeline-stage 1 = 4: 8 and 12 are",
       [](C& c) { c.model.num_layers = 10, c.pipeline.num_layers_per_virtual_pipeline_stage = 1; }},
      {"--num-layers-per-virtual-pipeline-stage 1 is not possible with --num-virtual-stages-per-pipeline-rank 2",
       [](C& c) { schedule(c, "interleaved", 2), c.pipeline.num_layers_per_virtual_pipeline_stage = 1; }},
      {"--schedule gpipe has one stage on each rank, not --num-virtual-stages-per-pipeline-rank 2: leave "
       "it out, or give --schedule interleaved, zb-v, dualpipe-v or auto",
       [](C& c) { schedule(c, "gpipe", 2); }},
      {"--schedule zb-h1 has one stage on each rank, not --num-layers-per-virtual-pipeline-stage 1 (that is "
       "2 stages a rank)",
       [](C& c) { schedule(c, "zb-h1"), c.pipeline.num_layers_per_virtual_pipeline_stage = 1; }},
      {"--schedule zb-v has 2 stages on each rank, not --num-virtual-stages-per-pipeline-rank 1",
       [](C& c) { schedule(c, "zb-v", 1); }},
      {"--schedule dualpipe-v has 2 stages on each rank, not --num-virtual-stages-per-pipeline-rank 3",
       [](C& c) { schedule(c, "dualpipe-v", 3), c.model.num_layers = 12; }},
      {"--schedule dualpipe-v on 4 pipeline ranks needs at least 8 micro-batches a step, but "
       "--global-batch-size 16 / (--micro-batch-size 2 x data parallel size 2) = 4: give --global-batch-size "
       "32 or a larger multiple of 4, or another schedule",
       [](C& c) { schedule(c, "dualpipe-v"), c.batch.global_batch_size = 16; }},
      {"--schedule pipedream-2bw on 4 pipeline ranks needs at least 4 micro-batches a step, but "
       "--global-batch-size 4 (the default) / (--micro-batch-size 2 x data parallel size 2) = 1: give "
       "--global-batch-size 16",
       [](C& c) {
         schedule(c, "pipedream-2bw"), c.optimizer.clip_grad = 0, c.batch.global_batch_size.reset();
       }},
      {"--schedule pipedream is not possible with --clip-grad 1, because each stage updates its "
       "weights by itself, before the norm over all stages is known",
       [](C& c) { schedule(c, "pipedream"); }},
      {"--fp16 needs --loss-scale X with --schedule pipedream, because updates inside the pipeline cannot be skipped",
       [](C& c) { schedule(c, "pipedream"), c.optimizer.clip_grad = 0, c.precision.fp16 = true; }},
      {"--schedule-costs mine.json has no effect without --schedule auto",
       [](C& c) { c.pipeline.schedule_costs = "mine.json"; }},
      {"--async-window 5 has no effect without --schedule pipedream or pipedream-2bw",
       [](C& c) { c.pipeline.async_window = 5; }},
      {"--schedule pipedream is not possible with --check-overlap 2, because updates inside the "
       "pipeline cannot be repeated",
       [](C& c) { schedule(c, "pipedream"), c.optimizer.clip_grad = 0, c.log.check_overlap = 2; }},
      {"--check-overlap 2 is not possible with --schedule mine.csv, because without overlap, "
       "messages in the order of a file may wait for each other",
       [](C& c) { schedule(c, "mine.csv"), c.log.check_overlap = 2; }},
      {"--eval-interval 150 is not a multiple of --async-window 100, after which the pipeline drains: "
       "100 and 200 are, or give --async-window 150",
       [](C& c) { schedule(c, "pipedream"), c.optimizer.clip_grad = 0, c.eval.eval_interval = 150; }},
      {"--save-interval 8 is not a multiple of --async-window 10",
       [](C& c) {
         schedule(c, "pipedream"), c.optimizer.clip_grad = 0, c.pipeline.async_window = 10;
         c.checkpoint.save = std::string("d"), c.checkpoint.save_interval = 8;
       }},
      {"--exit-interval 8 is not a multiple of --async-window 10",
       [](C& c) {
         schedule(c, "pipedream"), c.optimizer.clip_grad = 0, c.pipeline.async_window = 10;
         c.batch.exit_interval = 8;
       }},
  };
  return kCases;
}

TEST(ConfigValidateMesh, ReportsEachMistakeOnceWithARemedy) {
  for (const Case& test : cases()) {
    PretrainConfig config = sound();
    test.change(config);
    const Words list = texts_of(problems(config));
    ASSERT_EQ(list.size(), 1U) << test.expected << "\n" << testing::PrintToString(list);
    expect_contains(list[0], test.expected);
    expect_whole(config);
  }
}

TEST(ConfigValidateMesh, ReportsEverythingTogether) {
  PretrainConfig config = sound();
  tensor(config, 3);
  config.mesh.sequence_parallel = true;
  config.model.num_layers = 2;
  config.batch.global_batch_size = 8;
  config.eval.eval_interval = 7;
  schedule(config, "pipedream-2bw", 2);
  // heads, hidden size, rows; layers, stages of a rank, clipping, interval
  EXPECT_EQ(problems(config).size(), 7U) << testing::PrintToString(texts_of(problems(config)));
}

TEST(ConfigValidateMesh, AcceptsEverySchedule) {
  for (const std::string& name : known_schedules()) {
    PretrainConfig config = sound();
    config.pipeline.schedule = ScheduleChoice::parse(name);
    if (is_async(*find_schedule(name))) config.optimizer.clip_grad = 0;
    EXPECT_EQ(texts_of(problems(config)), Words{}) << name;
    const PipelineConfig full = resolve(config).pipeline;
    const bool several = name == "interleaved" || name == "zb-v" || name == "dualpipe-v";
    EXPECT_EQ(full.num_virtual_stages_per_pipeline_rank, several ? 2 : 1) << name;
    EXPECT_EQ(full.async_window.has_value(), is_async(*find_schedule(name))) << name;
  }
  PretrainConfig config = sound();
  config.pipeline.schedule = ScheduleChoice::parse("mine.csv");
  EXPECT_EQ(texts_of(problems(config)), Words{});
  EXPECT_TRUE(schedule_from_file(resolve(config).pipeline));
  config.mesh.tensor_model_parallel_size = 2;
  config.mesh.sequence_parallel = true;
  EXPECT_EQ(texts_of(problems(config)), Words{});
}

TEST(ConfigValidateMesh, DerivesTheScheduleAndItsStages) {
  PretrainConfig config = sound();
  EXPECT_EQ(resolve(config).pipeline.schedule->text(), "1f1b");
  config.pipeline.num_layers_per_virtual_pipeline_stage = 1;
  EXPECT_EQ(resolve(config).pipeline.schedule->text(), "interleaved");
  EXPECT_EQ(stages_per_rank(resolve(config).pipeline, 8, 4), 2);
  config.pipeline = {};
  config.pipeline.num_virtual_stages_per_pipeline_rank = 2;
  EXPECT_EQ(resolve(config).pipeline.schedule->text(), "interleaved");
  config.pipeline = {};
  config.pipeline.schedule = ScheduleChoice::parse("ZB_V");
  EXPECT_EQ(resolve(config).pipeline.schedule->text(), "zb-v");
  config.pipeline.schedule = ScheduleChoice::parse("PipeDream");
  config.optimizer.clip_grad = 0;
  EXPECT_EQ(resolve(config).pipeline.async_window, 100);
  config.batch.train_iters = 30;
  EXPECT_EQ(resolve(config).pipeline.async_window, 30);
}

TEST(ConfigValidateMesh, ReductionAfterEachMicroBatchNeedsSharedGradients) {
  const Words each = complete() + Words{"--ranks", "2", "--zero-reduce", "each"};
  EXPECT_EQ(std::get<PretrainConfig>(read(each + Words{"--zero-stage", "2"})).zero.zero_reduce,
            ReducePolicy::Each);
  expect_contains(
      refusal_of(each + Words{"--zero-stage", "2", "--schedule", "pipedream", "--clip-grad", "0"}),
      "--zero-reduce each is not possible with --schedule pipedream, which updates the weights inside the "
      "pipeline and reduces once an update: give --zero-reduce once");
}

TEST(ConfigValidateMesh, ReductionInBf16NeedsSomebodyToSendTo) {
  const Words bf16 = complete() + Words{"--grad-reduce-in-bf16"};
  expect_contains(refusal_of(bf16),
                  "--grad-reduce-in-bf16 has no effect with one data-parallel rank, which sends no "
                  "gradients: leave it out");
  EXPECT_TRUE(std::get<PretrainConfig>(read(bf16 + Words{"--ranks", "2"})).precision.grad_reduce_in_bf16);
  expect_contains(refusal_of(bf16 + Words{"--ranks", "2", "--f64"}),
                  "--grad-reduce-in-bf16 is not possible with --f64, "
                  "because f64 is for numerical checks, which rounding");
  const Words many = bf16 + Words{"--ranks", "1028", "--zero-group-size"};
  expect_contains(
      refusal_of(many + Words{"2"}),
      "--grad-reduce-in-bf16 with 514 groups of --zero-group-size 2 is not possible, because "
      "gradients are reduced in bf16 between at most 256 groups: give at least --zero-group-size 5");
  EXPECT_TRUE(std::get<PretrainConfig>(read(many + Words{"257"})).precision.grad_reduce_in_bf16);
}

TEST(ConfigValidateMesh, PrintedConfigurationsReadBack) {
  const std::string text =
      std::get<TextRequest>(
          read(complete() + Words{"--ranks", "2", "--pp", "2", "--num-layers-per-virtual-pipeline-stage", "1",
                                  "--print-config"}))
          .text;
  const TemporaryFile file(text);
  const auto config = std::get<PretrainConfig>(read({"pretrain", "--config", file.path()}));
  EXPECT_EQ(config.pipeline.schedule->text(), "interleaved");
  EXPECT_EQ(stages_per_rank(config.pipeline, 4, 2), 2);
}

TEST(ConfigValidateMesh, BenchTakesTheSameOptions) {
  const auto bench = std::get<BenchConfig>(
      read({"bench", "--ranks", "2", "--pp", "2", "--schedule", "pipedream", "--global-batch-size", "8"}));
  EXPECT_EQ(bench.run.pipeline.schedule->text(), "pipedream");
  expect_contains(
      refusal_of({"bench", "--ranks", "5", "--tp", "5"}),
      "--num-attention-heads 12 is not divisible by --tensor-model-parallel-size 5: 10 and 15 are");
}

}  // namespace
}  // namespace trifold::validate_mesh_test
