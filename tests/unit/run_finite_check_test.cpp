// A number that is not finite, put into one place of one rank's step, is found there: the error names step,
// micro-batch, samples, rank and tensor, is the same on every rank, and leaves weights and optimizer alone.
#include "run/checks/finite_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <mutex>

#include "support/training.h"

namespace trifold::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The place of a bad number: a tensor that a layer shows, or the gradient of a parameter.
struct Place {
  std::string layer, what;  // or the parameter and ""
  bool in_backward;
  std::string block;  // prefix of the parameters of its block
};

void put(const Tensor& tensor, int64_t index, double value) {
  dispatch_float(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    tensor.as<T>()[index] = static_cast<T>(static_cast<float>(value));
  });
}

// Puts `value` there while the micro-batch with `sample` is computed.
class Fault final : public StepWatch {
 public:
  Fault(Trainer& trainer, Place place, int64_t sample, double value)
      : trainer_(trainer), place_(std::move(place)), sample_(sample), value_(value) {}

  void begin(const Action& action, int block, const Batch& batch, const ParamSource&, Stream&) override {
    const int64_t row = sample_ - batch.first_sample;
    hits_ = row >= 0 && row < batch.samples() && is_backward(action.kind) == place_.in_backward;
    block_ = block;
    kind_ = action.kind;
  }
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream&) override {
    if (hits_ && layer == place_.layer && what == place_.what) put(tensor, 5, value_);
  }
  void end(Stream&) override {
    if (!hits_ || !place_.what.empty() || kind_ == ActionKind::I) return;
    const ParamList& params = trainer_.replica().model().params;
    const ParamId id = params.find(place_.layer);
    if (params[id].block == block_) put(trainer_.grads().grad(id), 5, value_);
  }
  void after(const Action&) override {}

 private:
  Trainer& trainer_;
  Place place_;
  int64_t sample_;
  double value_;
  bool hits_ = false;
  int block_ = 0;
  ActionKind kind_ = ActionKind::F;
};

struct Case {
  std::string name;
  int dp, tp, pp;
  std::string schedule = "1f1b";
  int chunks = 1;
  int zero = 0;
  RecomputeGranularity recompute = RecomputeGranularity::None;
  bool sequence_parallel = false;
  DType dtype = DType::F32;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

PretrainConfig run_of(const Case& c) {
  PretrainConfig config = scheduled(on_mesh(small_run(), c.dp, c.tp, c.pp), c.schedule, c.chunks);
  config.model.num_layers = 4;
  config.model.hidden_dropout = 0.1;
  config.batch.micro_batch_size = 2;
  config.batch.global_batch_size = 8 * c.dp;
  config.mesh.recompute_granularity = c.recompute;
  config.mesh.sequence_parallel = c.sequence_parallel;
  config.mesh.distributed_timeout_minutes = 0.5;
  config.zero.zero_stage = c.zero;
  config.zero.zero_min_unit_params = 4000;
  config.precision.f64 = c.dtype == DType::F64;
  config.precision.bf16 = c.dtype == DType::BF16;
  config.precision.fp16 = c.dtype == DType::F16;
  config.precision.initial_loss_scale = config.precision.min_loss_scale = 1024;  // nothing left to try
  return config;
}

// The state of a rank's trainer that a failed step must not change.
std::vector<double> state_of(Trainer& trainer) {
  std::vector<double> values;
  for (const ShardedOptimizer::Piece& piece : trainer.optimizer().pieces())
    dispatch_wide_float(piece.values.dtype, [&](auto zero) {
      using T = decltype(zero);
      values.insert(values.end(), piece.values.as<T>(), piece.values.as<T>() + piece.values.elements());
    });
  return values;
}

struct Outcome {
  std::vector<std::string> texts;  // of each rank
  std::string thrown;              // out of run_on_ranks
  std::string rank;                // the one at fault, as the message should name it
};

// A good step, then one with a fault at `place` in micro-batch 1 of the last data-parallel rank, on the last
// tensor rank.
Outcome run_with_fault(const PretrainConfig& config, const Place& place, double value) {
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  const int64_t sample = 8 * *config.mesh.data_parallel_size + 2 * (2 * *config.mesh.data_parallel_size - 1);
  Outcome outcome;
  outcome.texts.resize(static_cast<size_t>(config.mesh.ranks));
  std::mutex mutex;
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      trainer.step();
      const Mesh& mesh = trainer.replica().mesh();
      Fault fault(trainer, place, sample + 1, value);
      if (mesh.coord(Axis::Tp) + 1 == mesh.size(Axis::Tp)) {
        trainer.watch(&fault);
        const ParamList& params = trainer.replica().layout().params();
        for (int i = 0; i < params.size(); ++i)
          if (params[{i}].shard.name.starts_with(place.block) && params.held({i}) &&
              mesh.coord(Axis::Dp) + 1 == mesh.size(Axis::Dp)) {
            const std::lock_guard lock(mutex);
            outcome.rank = fmt::format("rank {} ({})", world.rank(), label_of(mesh.coords()));
          }
      }
      const std::vector<double> before = state_of(trainer);
      try {
        trainer.step();
      } catch (const Error& error) {
        outcome.texts[static_cast<size_t>(world.rank())] = error.what();
        EXPECT_EQ(state_of(trainer), before) << "rank " << world.rank();
        throw;
      }
    });
  } catch (const Error& error) {
    outcome.thrown = error.what();
  }
  return outcome;
}

class NotFinite : public ::testing::TestWithParam<Case> {};

TEST_P(NotFinite, IsFoundWhereItArises) {
  const PretrainConfig config = run_of(GetParam());
  const int dp = *config.mesh.data_parallel_size;
  const Place places[] = {{"block.2.attention", "output", false, "block.2"},
                          {"block.0.mlp.up", "input gradient", true, "block.0"},
                          {"block.1.attention.out.weight", "", true, "block.1"},
                          {"block.3.mlp.down", "output", false, "block.3"},
                          {"head", "logits", false, "final_norm"}};
  for (const Place& place : places) {
    const double value = place.in_backward ? -kInfinity : std::nan("");
    SCOPED_TRACE(place.layer + " " + place.what);
    const Outcome outcome = run_with_fault(config, place, value);
    const int64_t first = 8 * dp + 2 * (2 * dp - 1);
    const std::string micro = fmt::format("in micro-batch 1 (samples {} to {} of the training data) on {}, ",
                                          first, first + 1, outcome.rank);
    const std::string tensor =
        fmt::format("element 5 of the {} of {}, ", place.what.empty() ? "gradient" : place.what, place.layer);
    EXPECT_TRUE(outcome.thrown.starts_with("step 2: the ")) << outcome.thrown;
    EXPECT_NE(outcome.thrown.find(micro + tensor), std::string::npos)
        << outcome.thrown << "\nnot " << micro << tensor;
    EXPECT_NE(outcome.thrown.find(std::isnan(value) ? "is nan" : "is -inf"), std::string::npos);
    for (const std::string& text : outcome.texts) EXPECT_EQ(text, outcome.thrown);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, NotFinite,
    ::testing::Values(Case{"one", 1, 1, 1}, Case{"dp_tp_pp", 2, 2, 2}, Case{"zb_h1", 1, 1, 2, "zb-h1"},
                      Case{"interleaved", 1, 1, 2, "interleaved", 2}, Case{"zero3", 2, 1, 1, "1f1b", 1, 3},
                      Case{"zero1_pp", 2, 1, 2, "zb-v", 2, 1},
                      Case{"full", 1, 2, 1, "1f1b", 1, 0, RecomputeGranularity::Full},
                      Case{"selective_sequence", 2, 2, 1, "1f1b", 1, 2, RecomputeGranularity::Selective,
                           true},
                      Case{"bf16", 2, 1, 1, "1f1b", 1, 2, RecomputeGranularity::None, false, DType::BF16},
                      Case{"fp16", 1, 1, 2, "1f1b", 1, 0, RecomputeGranularity::None, false, DType::F16},
                      Case{"f64", 1, 2, 1, "1f1b", 1, 0, RecomputeGranularity::None, false, DType::F64}),
    [](const auto& test) { return test.param.name; });

// A weight that is bad already, on one data-parallel rank alone.
TEST(NotFinite, NamesAWeight) {
  const PretrainConfig config = run_of({"", 2, 1, 1});
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      const ParamId id = trainer.replica().model().params.find("block.1.mlp.up.weight");
      if (world.rank() == 1) put(trainer.replica().weights().weight(id), 7, kInfinity);
      trainer.step();
    });
    FAIL() << "an infinite weight was used";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("appears on rank 1 (dp1.pp0.tp0), element 7 of the weight block.1.mlp.up.weight, "
                        "[128, 32], is inf"),
              std::string::npos)
        << text;
  }
}

// Every rank's gradient is finite, their sum is not.
TEST(NotFinite, NamesASum) {
  PretrainConfig config = run_of({"", 2, 1, 1});
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      const int64_t sample = world.rank() == 0 ? 0 : 2;
      Fault fault(trainer, {"block.1.mlp.up.weight", "", true, "block.1"}, sample, 3e38);
      trainer.watch(&fault);
      trainer.step();
    });
    FAIL() << "an infinite gradient was used";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("element 5 of the gradient of block.1.mlp.up.weight, summed over the ranks, "),
              std::string::npos)
        << text;
  }
}

// A number that is bad once but not when repeated does not come from arithmetic.
TEST(NotFinite, ThatDoesNotComeAgainIsAFailureOfTheMachine) {
  class Once final : public StepWatch {
   public:
    void begin(const Action&, int, const Batch&, const ParamSource&, Stream&) override {}
    void see(std::string_view layer, std::string_view, Tensor tensor, Stream&) override {
      if (layer == "block.0.norm1" && !done_) put(tensor, 0, kInfinity);
      done_ = done_ || layer == "block.0.norm1";
    }
    void end(Stream&) override {}
    void after(const Action&) override {}

   private:
    bool done_ = false;
  };
  const PretrainConfig config = run_of({"", 1, 1, 1});
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      Once once;
      trainer.watch(&once);
      trainer.step();
    });
    FAIL() << "an infinite output was used";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("when computed again, every number of the step was finite"), std::string::npos)
        << text;
  }
}

// Stages update at different times, so nothing can be repeated: the error says which gradient of which stage.
TEST(NotFinite, InAnAsynchronousScheduleNamesStageAndGradient) {
  PretrainConfig config = run_of({"", 1, 1, 2, "pipedream"});
  config.optimizer.clip_grad = 0;
  config.pipeline.async_window = 5;
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      // Global batches of 8: sample 17 is of the third, and block 3 on the second stage.
      Fault fault(trainer, {"block.3.mlp.down", "output", false, "block.3"}, 17, kInfinity);
      trainer.watch(&fault);
      trainer.advance();
    });
    FAIL() << "an infinite output was used";
  } catch (const Error& error) {
    const std::string text = error.what();
    // The gradient spoils both stages, and either may come to its update first.
    const std::string stage = text.substr(5, 1);
    EXPECT_TRUE(text.starts_with(fmt::format("rank {0}: {0}STEP: step 3: stage {0} skips its update", stage)))
        << text;
    EXPECT_NE(text.find("of the gradient of "), std::string::npos) << text;
  }
}

// Rows that reach an expert are of samples of all ranks that share experts: none of them is named, but the ranks are
// counted.
TEST(NotFinite, BehindAnExchangeOfExpertsNamesNoSamples) {
  PretrainConfig config = run_of({"", 2, 1, 1});
  config.model.num_experts = 4;
  config.model.disable_bias_linear = true;
  config.mesh.expert_model_parallel_size = 2;
  const auto expect_text = [&](const Place& place, const std::string& tensor) {
    const Outcome outcome = run_with_fault(config, place, kInfinity);
    const std::string expected = fmt::format(
        "appears in micro-batch 1, in rows of the training data from 2 ranks on {}, element 5 of the {}, ",
        outcome.rank, tensor);
    EXPECT_NE(outcome.thrown.find(expected), std::string::npos) << outcome.thrown << "\nnot " << expected;
  };
  expect_text({"block.2.mlp.experts.up", "output", false, "block.2"}, "output of block.2.mlp.experts.up");
  expect_text({"block.1.mlp.experts.down.weight", "", true, "block.1"},
              "gradient of block.1.mlp.experts.down.weight");
  const Outcome outcome = run_with_fault(config, {"block.2.mlp", "output", false, "block.2"}, kInfinity);
  EXPECT_NE(
      outcome.thrown.find("in micro-batch 1 (samples 22 to 23 of the training data) on " + outcome.rank),
      std::string::npos)
      << outcome.thrown;
}

// The state after a failed step can be saved, and continues with the bits of a run without the failure.
TEST(NotFinite, LeavesAStateToContinueFrom) {
  const PretrainConfig config = run_of({"", 2, 1, 1, "1f1b", 1, 3});
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "trifold_finite_check_test";
  std::filesystem::remove_all(folder);
  const Curve whole = train(config, 3);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    {
      Trainer trainer(world, config, data, nullptr);
      trainer.step();
      Fault fault(trainer, {"block.2.attention", "output", false, "block.2"}, 17, kInfinity);
      trainer.watch(&fault);
      EXPECT_THROW(trainer.step(), Error);
      EXPECT_EQ(trainer.steps_done(), 1);
      trainer.save(folder.string());
    }
    Trainer trainer(world, config, data, nullptr);
    trainer.load(folder.string());
    for (size_t i = 1; i < 3; ++i) EXPECT_EQ(trainer.step().loss, whole.losses[i]);
  });
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trifold::test
