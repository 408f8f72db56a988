// Samples that fill up the last global batch count nowhere in routing: a padded step is the step of its samples alone.
#include <gtest/gtest.h>

#include "checkpoint/reader.h"
#include "support/expert_runs.h"
#include "support/files.h"

namespace trifold::test {
namespace {

constexpr int64_t kBatch = 12;

// A run over so many samples of sigmoid routers with biases, groups and a capacity.
PretrainConfig short_step(int64_t samples, int64_t batch, RouterBalance balance) {
  PretrainConfig config = run_with_experts(8, true);
  config.model.moe_aux_loss_coeff = 0.5;
  config.model.moe_router_load_balancing_type = balance;
  config.model.moe_router_score_function = RouterScore::Sigmoid;
  config.model.moe_router_enable_expert_bias = true;
  config.model.moe_router_bias_update_rate = 0.01;
  config.model.moe_router_topk = config.model.moe_router_num_groups.emplace(4);
  config.model.moe_router_group_topk = 2;
  config.model.moe_expert_capacity_factor = 0.75;
  config.batch.global_batch_size = batch;
  config.eval.eval_iters = 7;
  config.batch.train_epochs = 1;
  config.batch.pass_samples = samples;
  config.batch.train_iters = (samples + batch - 1) / batch;
  config.lr.lr_warmup_iters = 0;
  config.lr.lr_decay_style = LrDecayStyle::Constant;
  config.lr.min_lr = 0;
  return config;
}

// The first samples of another source, so that all runs are evaluated on the same.
class First final : public DataSource {
 public:
  explicit First(const DataSource& source) : source_(source) {}
  int64_t seq_length() const override { return source_.seq_length(); }
  int64_t samples() const override { return 7; }
  void read(Batch& batch, int64_t first_sample) const override { source_.read(batch, first_sample); }

 private:
  const DataSource& source_;
};

// What a run counts of routing, and what comes of it.
struct Counted {
  Curve curve;  // valid_loss is that of the weights and biases after the last step
  std::vector<double> loads, dropped;
  nlohmann::json choices;  // of the last global batch
};

Counted counted(const PretrainConfig& config) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  const First valid(*data);
  const TempDir folder;
  Counted result;
  std::string saved;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, &valid);
    while (trainer.steps_done() < config.batch.train_iters)
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        result.curve.losses.push_back(step.loss);
        result.curve.grad_norms.push_back(step.grad_norm);
        result.curve.balances.push_back(*step.router_balance);
        result.curve.router_sizes.push_back(step.router_z);
        result.loads.insert(result.loads.end(), step.expert_loads.begin(), step.expert_loads.end());
        result.dropped.insert(result.dropped.end(), step.experts_dropped.begin(), step.experts_dropped.end());
      }
    const double loss = trainer.evaluate().loss;
    const std::string path = trainer.save(folder.path().string());
    if (world.rank() != 0) return;
    result.curve.valid_loss = loss;
    saved = path;
  });
  const CheckpointReader reader(saved);
  const nlohmann::json& state = reader.meta().state;
  if (state.contains("expert_choices")) result.choices = state.at("expert_choices");
  return result;
}

void expect_same(const Counted& padded, const Counted& alone) {
  expect_alike(padded.curve, alone.curve);
  EXPECT_EQ(padded.loads, alone.loads);
  EXPECT_EQ(padded.dropped, alone.dropped);
  EXPECT_EQ(padded.choices, alone.choices);
}

constexpr ExpertMesh kMeshes[] = {
    {},
    {.dp = 3},
    {.dp = 4, .ep = 4, .zero = 1},
    {.dp = 2, .ep = 2, .factor = 0.5, .recompute = RecomputeGranularity::Selective},
    {.tp = 2, .ep = 2, .recompute = RecomputeGranularity::Full},
    {.tp = 2, .cp = 2, .etp = 2},
    {.dp = 2, .cp = 2, .ep = 4, .zero = 2, .exchange = ContextExchange::Ring},
    {.dp = 2, .pp = 2, .ep = 2, .zero = 3, .schedule = "zb-h1"}};

TEST(ExpertPadding, CountsNowhereOnAnyMesh) {
  for (const RouterBalance balance : {RouterBalance::SequenceAuxLoss, RouterBalance::GlobalAuxLoss}) {
    const int64_t left = balance == RouterBalance::GlobalAuxLoss ? 5 : 1;
    const Counted alone = counted(short_step(left, left, balance));
    ASSERT_EQ(alone.loads.size(), 3U);
    EXPECT_EQ(alone.choices.is_null(), balance != RouterBalance::GlobalAuxLoss);
    for (const ExpertMesh& mesh : kMeshes) {
      SCOPED_TRACE(fmt::format("{} left of {}, {}", left, kBatch, mesh.name()));
      expect_same(counted(mesh.of(short_step(left, kBatch, balance))), alone);
    }
  }
}

// Whose micro-batches hold the same samples, but for padding.
TEST(ExpertPadding, CountsNotInAMicroBatch) {
  PretrainConfig base = short_step(3, 3, RouterBalance::AuxLoss);
  base.batch.micro_batch_size = 3;
  const Counted alone = counted(base);
  for (const int64_t micro : {4, 6})
    for (const ExpertMesh& mesh :
         {ExpertMesh{}, ExpertMesh{.dp = 2, .ep = 2}, ExpertMesh{.tp = 2, .ep = 2}, ExpertMesh{.cp = 2}}) {
      SCOPED_TRACE(fmt::format("micro-batches of {}, {}", micro, mesh.name()));
      PretrainConfig padded = mesh.of(short_step(3, kBatch, RouterBalance::AuxLoss));
      padded.batch.micro_batch_size = micro;
      expect_same(counted(padded), alone);
    }
}

// Real tokens that the loss leaves out are routed and counted.
TEST(ExpertPadding, MaskedTokensOfTheDataCount) {
  class Masked final : public DataSource {
   public:
    explicit Masked(const DataSource& source) : source_(source) {}
    int64_t seq_length() const override { return source_.seq_length(); }
    int64_t samples() const override { return source_.samples(); }
    void read(Batch& batch, int64_t first_sample) const override {
      source_.read(batch, first_sample);
      for (int64_t i = 0; i < batch.loss_weight.elements(); i += 3) batch.loss_weight.as<float>()[i] = 0;
    }

   private:
    const DataSource& source_;
  };
  const PretrainConfig config = short_step(5, kBatch, RouterBalance::SequenceAuxLoss);
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  const Masked masked(*data);
  const auto loads = [&](const DataSource& source) {
    std::vector<double> result;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, source, nullptr);
      const StepReport step = trainer.step();
      result.assign(step.expert_loads.begin(), step.expert_loads.end());
    });
    return result;
  };
  EXPECT_EQ(loads(masked), loads(*data));
}

}  // namespace
}  // namespace trifold::test
