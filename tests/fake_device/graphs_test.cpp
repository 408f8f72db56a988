// --enable-cuda-graph: steps with replayed blocks have the bits of the device's steps without. The fake device replays
// launches with their captured arguments, so a per-step number that is not read from device memory is found here.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "fake_device/runs.h"

namespace trifold::test {
namespace {

// Graphs that the fake device has launched so far; a real one does not count.
int64_t graph_launches() {
  return is_fake_device() ? fake_device_function<int64_t()>("fake_device_graph_launches")() : 0;
}

// For the calling thread (FakeDevice::refuse_capture).
void refuse_capture(int64_t capture, int64_t piece) {
  fake_device_function<void(int64_t, int64_t)>("fake_device_refuse_capture")(capture, piece);
}

PretrainConfig with_graphs(PretrainConfig config) {
  config = on_device(std::move(config));
  config.mesh.enable_cuda_graph = true;
  return config;
}

PretrainConfig with_dropout(PretrainConfig config) {
  config.model.hidden_dropout = config.model.attention_dropout = 0.1;
  return config;
}

// From the second step on every part of every block is a graph: `parts` of a block for each micro-batch,
// forward and backward. Of several ranks from before the first one.
void expect_launches(const PretrainConfig& config, int64_t launches, int parts) {
  if (!is_fake_device()) return;
  const int64_t blocks = config.model.num_layers + 2;
  const int64_t micros = *config.batch.global_batch_size / config.batch.micro_batch_size;
  const bool several = config.mesh.ranks > 1;
  const int64_t steps = config.batch.train_iters + (several ? 2 : 0);
  EXPECT_GE(launches, (steps - 1) * micros * blocks * parts);
  EXPECT_LT(launches, steps * micros * blocks * parts);
}

void expect_same_with_graphs(const PretrainConfig& config, int parts = 2) {
  const Curve without = train(on_device(config));
  const int64_t before = graph_launches();
  expect_same_bits(train(with_graphs(config)), without);
  expect_launches(config, graph_launches() - before, parts);
}

TEST(Graphs, OneRank) { expect_same_with_graphs(with_dropout(short_run())); }

TEST(Graphs, SixteenBitsAndRecomputation) {
  PretrainConfig config = with_dropout(short_run());
  config.precision.bf16 = true;
  for (const RecomputeGranularity recompute : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
    SCOPED_TRACE(static_cast<int>(recompute));
    config.mesh.recompute_granularity = recompute;
    expect_same_with_graphs(config);
  }
}

TEST(Graphs, DataRanksShareEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(stage);
    PretrainConfig config = with_dropout(on_mesh(short_run(), 2));
    config.zero.zero_stage = stage;
    expect_same_with_graphs(config);
  }
}

TEST(Graphs, PipelineRanks) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    SCOPED_TRACE(schedule);
    expect_same_with_graphs(scheduled(with_dropout(on_mesh(short_run(), 1, 1, 2)), schedule));
  }
  for (const char* schedule : {"zb-h1", "zb-v"}) {
    SCOPED_TRACE(schedule);
    PretrainConfig config = scheduled(with_dropout(on_mesh(short_run(), 1, 1, 2)), schedule);
    config.model.num_layers = 4;
    expect_same_with_graphs(config, 3);
  }
}

// Versions of the weights: their addresses come back after a while only.
TEST(Graphs, AsynchronousPipeline) {
  PretrainConfig config = scheduled(with_dropout(on_mesh(short_run(), 1, 1, 2)), "pipedream");
  config.batch.train_iters = 12;
  config.pipeline.async_window = 4;
  config.optimizer.clip_grad = 0;
  config.model.untie_embeddings_and_output_weights = true;
  const int64_t before = graph_launches();
  expect_same_bits(train(with_graphs(config)), train(on_device(config)));
  if (is_fake_device()) {
    EXPECT_GT(graph_launches(), before);
  }
}

TEST(Graphs, TwoAxes) {
  PretrainConfig config = with_dropout(on_mesh(short_run(), 2, 1, 2));
  config.zero.zero_stage = 2;
  expect_same_with_graphs(config);
}

// The scale of the loss starts so large that steps are skipped, and is halved until they are not.
TEST(Graphs, ALossScaleThatChanges) {
  PretrainConfig config = with_dropout(short_run());
  config.precision.fp16 = true;
  config.precision.initial_loss_scale = 1 << 22;
  config.precision.hysteresis = 1;
  config.batch.train_iters = 9;
  const Curve curve = train(on_device(config));
  size_t skipped = 0;
  for (const double norm : curve.grad_norms) skipped += std::isfinite(norm) ? 0 : 1;
  EXPECT_GT(skipped, 0U);
  EXPECT_LT(skipped, curve.grad_norms.size());
  expect_same_with_graphs(config);
}

// Its pairs are weighed by a number of each step, its attention sees lengths of each sample.
TEST(Graphs, Bert) {
  PretrainConfig config = with_dropout(short_run());
  config.model.model_type = ModelType::Bert;
  expect_same_with_graphs(config);
}

// A run of one rank: three steps, an evaluation, and two more.
struct Halves {
  Curve curve;                // with the evaluation's loss
  int64_t launches_then = 0;  // after the evaluation
};

void append_steps(Trainer& trainer, int64_t last, Curve& curve) {
  while (trainer.steps_done() < last) {
    const StepReport step = trainer.step();
    curve.losses.push_back(step.loss);
    curve.grad_norms.push_back(step.grad_norm);
  }
}

Halves train_evaluate_and_train(const PretrainConfig& config) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  Halves result;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, data.get());
    append_steps(trainer, 3, result.curve);
    result.curve.valid_loss = trainer.evaluate().loss;
    result.launches_then = graph_launches();
    append_steps(trainer, config.batch.train_iters, result.curve);
  });
  return result;
}

// Work between steps uses its own buffers and workspaces; earlier graphs stay valid.
TEST(Graphs, EvaluationBetween) {
  PretrainConfig config = with_dropout(short_run());
  config.eval.eval_iters = 2;
  const Halves graphs = train_evaluate_and_train(with_graphs(config));
  if (is_fake_device()) {
    EXPECT_GT(graph_launches(), graphs.launches_then);
  }
  const Curve plain = train_evaluate_and_train(on_device(config)).curve;
  EXPECT_EQ(plain.losses.size(), 5U);
  expect_same_bits(graphs.curve, plain);
}

struct Noted {
  Curve curve;       // both of rank 0
  std::string note;  // Trainer::capture_note
};

// With capture number `capture` of rank `rank` refused at piece `piece`; 0: none.
Noted train_and_note(const PretrainConfig& config, int rank, int64_t capture, int64_t piece) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  Noted result;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    refuse_capture(world.rank() == rank ? capture : 0, piece);
    Trainer trainer(world, config, *data, nullptr);
    Curve mine;
    append_steps(trainer, config.batch.train_iters, mine);
    if (world.rank() == 0) result = {std::move(mine), trainer.capture_note()};
  });
  return result;
}

// Whatever part is refused, and wherever: what it had done is taken back, it is done plainly from then on,
// and the note gives the first failure.
TEST(Graphs, ARefusedCapture) {
  if (!is_fake_device()) GTEST_SKIP() << "refusals are asked of the fake device";
  const PretrainConfig config = with_dropout(short_run());
  const Curve plain = train(on_device(config));
  const int64_t parts = 2 * (config.model.num_layers + 2);
  const int64_t before = graph_launches();
  train_and_note(with_graphs(config), 0, 0, 0);
  const int64_t all = graph_launches() - before;
  for (const int64_t piece : {0, 1}) {
    std::set<std::string> notes;
    // Of a part that writes gradients there are two: of a step's first micro-batch, which assigns them, and
    // of others.
    for (int64_t capture = 1; capture <= 2 * parts && static_cast<int64_t>(notes.size()) < parts; ++capture) {
      SCOPED_TRACE(fmt::format("capture {} at {}", capture, piece));
      const int64_t start = graph_launches();
      const Noted run = train_and_note(with_graphs(config), 0, capture, piece);
      expect_same_bits(run.curve, plain);
      EXPECT_NE(run.note.find(" is launched kernel by kernel: a test asked for a refusal at "),
                std::string::npos)
          << run.note;
      EXPECT_TRUE(run.note.ends_with(piece == 0 ? "at the end" : "at piece 1")) << run.note;
      EXPECT_LT(graph_launches() - start, all);
      EXPECT_GT(graph_launches() - start, all / 2);
      notes.insert(run.note);
    }
    EXPECT_EQ(static_cast<int64_t>(notes.size()), parts);  // a note for each part of each block
  }
}

// All micro-batches of a step are under way at a time, each at addresses of its own.
TEST(Graphs, MoreAddressesThanGraphsAreKept) {
  if (!is_fake_device()) GTEST_SKIP() << "a real device does not count launches";
  PretrainConfig config = scheduled(with_dropout(on_mesh(short_run(), 1, 1, 2)), "gpipe");
  config.batch.train_iters = 3;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 66;
  const int64_t before = graph_launches();
  const Noted run = train_and_note(with_graphs(config), 0, 0, 0);
  EXPECT_EQ(graph_launches() - before, (1 + 3) * 64 * (config.model.num_layers + 2) * 2);
  expect_same_bits(run.curve, train(on_device(config)));
  EXPECT_NE(run.note.find(" is called with more than 64 sets of addresses"), std::string::npos) << run.note;
}

// Whichever rank has the failure, all get the note; it replaces a note about addresses.
TEST(Graphs, ARefusalOfAnyRankIsReported) {
  if (!is_fake_device()) GTEST_SKIP() << "refusals are asked of the fake device";
  PretrainConfig config = scheduled(on_mesh(short_run(), 1, 1, 2), "gpipe");
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = 3;
  for (const int64_t batch : {8, 66}) {
    config.batch.global_batch_size = batch;
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(fmt::format("rank {} of samples {}", rank, batch));
      const std::string note = train_and_note(with_graphs(config), rank, 1, 0).note;
      EXPECT_TRUE(note.starts_with(fmt::format("rank {}: ", rank))) << note;
      EXPECT_TRUE(note.ends_with(" is launched kernel by kernel: a test asked for a refusal at the end"))
          << note;
    }
  }
}

TEST(Graphs, NoMemoryIsAllocatedByAThreadThatCaptures) {
  if (!is_fake_device()) GTEST_SKIP() << "is about the fake device";
  Device& device = *cuda_ops(0).device;
  const std::unique_ptr<DeviceQueue> queue = device.make_queue();
  queue->begin_capture();
  EXPECT_THROW(Buffer(64, &device), Error);
  EXPECT_THROW(device.allocate_shared(64), Error);
  std::thread([&] { EXPECT_NO_THROW(Buffer(64, &device)); }).join();
  queue->end_capture();
  EXPECT_NO_THROW(Buffer(64, &device));
}

}  // namespace
}  // namespace trifold::test
