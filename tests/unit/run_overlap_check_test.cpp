// Steps computed once with overlap and once without have the same bits on every mesh, the check does not change a
// curve, and a race is found.
#include "run/checks/overlap_check.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/training.h"

namespace trifold::test::overlap_check_test {
namespace {

struct Case {
  std::string name;
  int dp, tp, pp;
  std::string schedule = "1f1b";
  int chunks = 1;
  int zero = 0;
  bool sequence_parallel = false;
  bool bf16 = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

PretrainConfig run_of(const Case& c) {
  PretrainConfig config = scheduled(on_mesh(small_run(), c.dp, c.tp, c.pp), c.schedule, c.chunks);
  config.model.num_layers = 4;
  config.model.hidden_dropout = 0.1;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = 4;
  config.mesh.sequence_parallel = c.sequence_parallel;
  config.mesh.distributed_timeout_minutes = 0.5;
  config.zero.zero_stage = c.zero;
  config.zero.zero_min_unit_params = 4000;
  config.precision.bf16 = c.bf16;
  return config;
}

class Overlap : public ::testing::TestWithParam<Case> {};

TEST_P(Overlap, ChangesNoBit) {
  PretrainConfig config = run_of(GetParam());
  const Curve plain = train(config);
  config.log.check_overlap = 3;
  const Curve checked = train(config);
  EXPECT_EQ(checked.losses, plain.losses);
  EXPECT_EQ(checked.grad_norms, plain.grad_norms);
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, Overlap,
    ::testing::Values(Case{"one", 1, 1, 1}, Case{"dp", 4, 1, 1}, Case{"tp", 1, 2, 1, "1f1b", 1, 0, true},
                      Case{"pp_1f1b", 1, 1, 4}, Case{"pp_interleaved", 1, 1, 2, "interleaved", 2},
                      Case{"dp_tp_pp_zb", 2, 2, 2, "zb-h1"}, Case{"zb_v_zero1", 2, 1, 2, "zb-v", 2, 1},
                      Case{"zero2", 2, 1, 2, "gpipe", 1, 2}, Case{"zero3", 4, 1, 1, "1f1b", 1, 3},
                      Case{"zero3_pp_bf16", 2, 1, 2, "1f1b", 1, 3, false, true}),
    [](const auto& test) { return test.param.name; });

#if defined(__SANITIZE_THREAD__)  // gcc's
constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)  // clang's
constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kThreadSanitizer = false;
#endif

// A race: a gradient that was read before the last micro-batch added to it is written back by another stream,
// after that. Where the stream is waited for after every action, it writes back what is there.
class LateWriter final : public StepWatch {
 public:
  explicit LateWriter(Trainer& trainer) : trainer_(trainer) {}
  void begin(const Action& action, int block, const Batch&, const ParamSource&, Stream&) override {
    adds_ = action.kind == ActionKind::B && action.micro == 7 && block == 3;
  }
  void see(std::string_view, std::string_view, Tensor, Stream&) override {}
  void end(Stream&) override {
    if (adds_) added_ = true;
  }
  void after(const Action& action) override {
    if (action.kind != ActionKind::F || action.micro != 7) return;
    const ParamId id = trainer_.replica().model().params.find("block.2.mlp.up.weight");
    float* element = trainer_.grads().grad(id).as<float>() + 9;
    added_ = false;
    trainer_.replica().comm().run([this, element, early = *element] {
      for (int i = 0; i < 1000 && !added_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      *element = early;
    });
  }

 private:
  Trainer& trainer_;
  bool adds_ = false;
  std::atomic<bool> added_{false};
};

TEST(Overlap, FindsARace) {
  if (kThreadSanitizer) GTEST_SKIP() << "the sanitizer would find the race first";
  PretrainConfig config = run_of({"", 1, 1, 1});
  config.log.check_overlap = 1;
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  try {
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, data, nullptr);
      LateWriter race(trainer);
      trainer.watch(&race);
      trainer.step();
    });
    FAIL() << "a lost gradient was not noticed";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(
        text.find("rank 0: step 1, computed once with overlap and once without: element 9 of the gradient of "
                  "block.2.mlp.up.weight, in unit "),
        std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace trifold::test::overlap_check_test
