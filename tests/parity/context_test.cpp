// The positions of samples cut over context ranks: the same curve, and where only attention's gradients of keys
// and the sums of parameters' gradients have another order, the same bits.
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "ops/ops.h"
#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

struct ContextModel {
  std::string name;
  bool llama;
  double dropout;
  ContextExchange exchange = ContextExchange::AllGather;
};

PretrainConfig context_run(const ContextModel& model, bool f64) {
  PretrainConfig config = small_run();
  if (model.llama) make_llama(config.model, 2);
  config.mesh.cp_comm_type = model.exchange;
  config.model.seq_length = config.model.max_position_embeddings.emplace(64);
  config.model.hidden_dropout = config.model.attention_dropout = model.dropout;
  config.precision.f64 = f64;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(6);
  config.eval.eval_iters = 2;
  return config;
}

// What travels round a ring is merged in another order on every rank.
bool keeps_bits(const ContextModel& model) { return model.exchange != ContextExchange::Ring; }

class Context : public ::testing::TestWithParam<ContextModel> {};

// The first loss needs no gradient. Its sum over the tokens is of f32 numbers in f64, so that its order is of
// no matter. (Products of fewer than 16 rows have other bits than those of more, and so has attention where a
// run of positions is no multiple of 8. Without AVX-512, the bits of a row depend on the number of rows of other
// sizes too, so the losses are merely close.)
TEST_P(Context, TheFirstLossHasTheBitsOfOneRank) {
  PretrainConfig config = context_run(GetParam(), false);
  config.model.num_attention_heads = 8;
  config.model.seq_length = config.model.max_position_embeddings.emplace(128);
  const bool has_avx512 = std::string_view(cpu_ops().name) == "x86-64-v4";
  const Curve one = train(config, 1);
  for (const int cp : {2, 4, 8}) {
    const Curve cut = train(on_mesh(config, 1, 1, 1, cp), 1);
    if (keeps_bits(GetParam()) && has_avx512)
      EXPECT_EQ(cut.losses, one.losses) << "cp " << cp;
    else
      EXPECT_LT(relative_error(cut.losses, one.losses), 1e-6) << "cp " << cp;
    EXPECT_LT(relative_error(cut.grad_norms[0], one.grad_norms[0]), 1e-5) << "cp " << cp;
  }
}

TEST_P(Context, EightRanksShareASample) {
  for (const bool f64 : {true, false}) {
    PretrainConfig config = context_run(GetParam(), f64);
    config.model.num_attention_heads = 8;
    const Curve one = train_and_evaluate(config);
    const Curve eight = train_and_evaluate(on_mesh(config, 1, 1, 1, 8));
    EXPECT_LT(relative_error(eight.losses, one.losses), f64 ? 1e-11 : 2e-5);
    EXPECT_LT(relative_error(*eight.valid_loss, *one.valid_loss), f64 ? 1e-11 : 2e-5);
  }
}

TEST_P(Context, StagesOfZeroChangeNoBit) {
  for (const int dp : {1, 2}) {
    const PretrainConfig config = on_mesh(context_run(GetParam(), false), dp, 1, 1, 4);
    const Curve plain = train_and_evaluate(config);
    for (const int stage : {1, 2, 3}) {
      PretrainConfig sharded = config;
      sharded.zero.zero_stage = stage;
      sharded.zero.zero_min_unit_params = 4000;
      const Curve curve = train_and_evaluate(sharded);
      EXPECT_EQ(first_difference<double>(curve.losses, plain.losses), kSame) << "stage " << stage;
      EXPECT_EQ(first_difference<double>(curve.grad_norms, plain.grad_norms), kSame) << "stage " << stage;
      EXPECT_EQ(curve.valid_loss, plain.valid_loss) << "stage " << stage;
    }
  }
}

TEST_P(Context, ReducingEachMicroBatchAgreesWithOneRank) {
  PretrainConfig config = context_run(GetParam(), true);
  const Curve one = train(config);
  config = on_mesh(config, 2, 1, 1, 2);
  config.zero.zero_stage = 2;
  config.zero.zero_group_size = GroupSize{2};
  config.zero.zero_reduce = ReducePolicy::Each;
  EXPECT_LT(relative_error(train(config).losses, one.losses), 1e-11);
}

TEST_P(Context, ACheckpointKnowsNothingOfIt) {
  const auto folder = std::filesystem::temp_directory_path() / ("trifold_context_" + GetParam().name);
  const PretrainConfig one = context_run(GetParam(), true);
  const PretrainConfig two = on_mesh(one, 1, 1, 1, 2);
  const Curve whole = train(one);
  const std::pair<PretrainConfig, PretrainConfig> ways[] = {{one, two}, {two, one}};
  for (const auto& [first, second] : ways) {
    std::filesystem::remove_all(folder);
    train(first, 3, "", folder.string());
    const Curve rest = train(second, 0, folder.string());
    ASSERT_EQ(rest.losses.size(), 3U);
    for (size_t i = 0; i < 3; ++i) EXPECT_LT(relative_error(rest.losses[i], whole.losses[i + 3]), 1e-11);
  }
  std::filesystem::remove_all(folder);
}

// On the same ranks a restart loses no bit.
TEST_P(Context, ResumeIsBitwiseExact) {
  const auto folder = std::filesystem::temp_directory_path() / ("trifold_context_bits_" + GetParam().name);
  std::filesystem::remove_all(folder);
  PretrainConfig config = on_mesh(context_run(GetParam(), false), 2, 1, 1, 2);
  config.zero.zero_stage = 1;
  const Curve whole = train(config);
  train(config, 3, "", folder.string());
  const Curve rest = train(config, 0, folder.string());
  EXPECT_EQ(first_difference(std::span(whole.losses).subspan(3), std::span<const double>(rest.losses)),
            kSame);
  std::filesystem::remove_all(folder);
}

TEST_P(Context, In16BitsItAgreesWithinTheirRounding) {
  PretrainConfig config = context_run(GetParam(), false);
  config.precision.bf16 = true;
  const Curve one = train(config);
  const Curve cut = train(on_mesh(config, 1, 2, 1, 2));
  EXPECT_LT(relative_error(cut.losses, one.losses), 2e-3);
}

// Bytes that a rank sends over the context axis in actions of each kind.
class ContextTraffic final : public StepWatch {
 public:
  explicit ContextTraffic(const Communicator& context) : context_(context) {}
  void before(const Action&) override { before_ = context_.bytes_sent(); }
  void after(const Action& action) override { sent_[action.kind] += context_.bytes_sent() - before_; }
  const std::map<ActionKind, int64_t>& sent() const { return sent_; }

 private:
  const Communicator& context_;
  int64_t before_ = 0;
  std::map<ActionKind, int64_t> sent_;
};

// Gradients of keys and values are complete when I is, so a zero-bubble schedule may place W anywhere.
TEST_P(Context, NothingIsExchangedForTheGradientsOfWeights) {
  for (const bool recompute : {false, true}) {
    PretrainConfig config = scheduled(on_mesh(context_run(GetParam(), false), 1, 1, 2, 2), "zb-h1");
    if (recompute) config.mesh.recompute_granularity = RecomputeGranularity::Full;
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, nullptr);
      ContextTraffic traffic(trainer.replica().mesh().comm({Axis::Cp}));
      trainer.watch(&traffic);
      trainer.step();
      EXPECT_GT(traffic.sent().at(ActionKind::F), 0);
      EXPECT_GT(traffic.sent().at(ActionKind::I), 0);
      EXPECT_EQ(traffic.sent().at(ActionKind::W), 0);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Context,
                         ::testing::Values(ContextModel{"Gpt", false, 0.0},
                                           ContextModel{"GptDropout", false, 0.2},
                                           ContextModel{"Llama", true, 0.1},
                                           ContextModel{"LlamaHeads", true, 0.1, ContextExchange::AllToAll},
                                           ContextModel{"GptRing", false, 0.2, ContextExchange::Ring},
                                           ContextModel{"LlamaRing", true, 0.1, ContextExchange::Ring}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace trifold::test
