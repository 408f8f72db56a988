// Asynchronous pipelines: the updates are those of the papers' formulas, computed here step by step on one
// rank.
#include <gtest/gtest.h>

#include <functional>

#include "optim/lr_schedule.h"
#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {
namespace {

// The weights after each update, and what a step of the delayed formula computes with them: parameter by
// parameter, version after version, on a model that is whole on one rank.
class DelayedUpdates {
 public:
  // `version(stage, step)`: the number of updates in the weights that `stage` uses for global batch `step`.
  DelayedUpdates(Communicator& world, const PretrainConfig& config, std::vector<int> stage_of_block,
                 std::function<int64_t(int, int64_t)> version)
      : config_(config),
        stage_of_block_(std::move(stage_of_block)),
        version_(std::move(version)),
        replica_(world, config.mesh, config.model, DType::F64, config.seed),
        grads_(replica_.layout().flat(), GradLayout::whole(replica_.layout().flat()), replica_.groups(),
               replica_.ops(), DType::F64, {}, replica_.comm()),
        optimizer_(replica_.layout().flat(), replica_.mesh(), replica_.weights(), grads_, replica_.ops(),
                   config.optimizer, DType::F64, config.seed, replica_.compute()) {
    add_version(0);
  }

  double step(int64_t step, const DataSource& data) {
    const auto micros = run_spec(config_).micros();
    for (int i = 0; i < params().size(); ++i) set(i, version_(stage(i), step));
    RankPlan row;
    for (int micro = 0; micro < micros; ++micro) {
      row.push_back({ActionKind::F, 0, Action::kAll, micro});
      row.push_back({ActionKind::B, 0, Action::kAll, micro});
    }
    row.push_back({ActionKind::ReduceGrad, 0, 0, Action::kAll});
    const ActivationMemory memory = Executor::measure(
        replica_.pipeline(), params(), replica_.mesh(), row,
        batch_without_memory(config_.batch.micro_batch_size, config_.model.seq_length), DType::F64);
    Executor executor(replica_.pipeline(), replica_.mesh(), replica_.ops(), replica_.weights(), &grads_,
                      replica_.compute(), replica_.compute(), DType::F64, memory);
    BatchBuffer buffer(config_.batch.micro_batch_size, config_.model.seq_length);
    const auto give = [&](int micro) {
      const int64_t first = step * *config_.batch.global_batch_size + micro * config_.batch.micro_batch_size;
      data.read(buffer.batch(), first);
      return buffer.batch();
    };
    const auto none = [](const Action&) {};
    const auto tokens = static_cast<double>(*config_.batch.global_batch_size * config_.model.seq_length);
    grads_.restart(replica_.compute());
    const LossSums sums = executor.run(row, {config_.seed, 1.0 / tokens, true, give, none}).front();
    for (int i = 0; i < params().size(); ++i) set(i, step);
    optimizer_.step(
        0,
        {learning_rate(config_.lr, *config_.batch.global_batch_size, config_.batch.train_iters, step),
         step + 1, 1.0},
        replica_.compute());
    add_version(step + 1);
    return sums.loss / sums.weight;
  }

 private:
  const ParamList& params() const { return replica_.model().params; }
  int stage(int param) const { return stage_of_block_[static_cast<size_t>(params()[{param}].block)]; }
  Tensor weight(int param) { return replica_.weights().weight({param}); }

  void add_version(int64_t version) {
    history_.resize(static_cast<size_t>(version) + 1);
    for (int i = 0; i < params().size(); ++i) {
      const double* data = weight(i).as<double>();
      history_.back().emplace_back(data, data + weight(i).elements());
    }
  }
  void set(int param, int64_t version) {
    const std::vector<double>& values = history_[static_cast<size_t>(version)][static_cast<size_t>(param)];
    std::copy(values.begin(), values.end(), weight(param).as<double>());
  }

  PretrainConfig config_;
  std::vector<int> stage_of_block_;
  std::function<int64_t(int, int64_t)> version_;
  Replica replica_;
  GradientBuffer grads_;
  ShardedOptimizer optimizer_;
  std::vector<std::vector<std::vector<double>>> history_;  // [version][parameter]
};

PretrainConfig async_run(const std::string& schedule, int ranks, int micros, int window) {
  PretrainConfig config = scheduled(on_mesh(small_run(), 1, 1, ranks), schedule);
  config.model.num_layers = 4;
  config.model.untie_embeddings_and_output_weights = true;
  config.precision.f64 = true;
  config.optimizer.clip_grad = 0;
  config.optimizer.adam_eps = 1e-4;  // Adam's quotient of tiny moments would magnify the last bits
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = micros;
  config.pipeline.async_window = window;
  return config;
}

std::vector<int> stages_of_blocks(const PretrainConfig& config) {
  PretrainConfig one = config;
  std::vector<int> stages;
  run_on_ranks(on_mesh(one, 1).mesh, [&](Communicator& world) {
    const Replica replica(world, on_mesh(one, 1).mesh, config.model, DType::F64, 1);
    const auto cut = cut_stages(replica.cut().block_costs(), config.mesh.pipeline_model_parallel_size);
    for (size_t stage = 0; stage < cut.size(); ++stage)
      stages.insert(stages.end(), static_cast<size_t>(cut[stage].size()), static_cast<int>(stage));
  });
  return stages;
}

Curve reference(const PretrainConfig& config, const std::function<int64_t(int, int64_t)>& version) {
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  const std::vector<int> stages = stages_of_blocks(config);
  const PretrainConfig one = on_mesh(config, 1);
  Curve curve;
  run_on_ranks(one.mesh, [&](Communicator& world) {
    DelayedUpdates updates(world, one, stages, version);
    for (int64_t step = 0; step < config.batch.train_iters; ++step)
      curve.losses.push_back(updates.step(step, data));
  });
  return curve;
}

void expect_same(const Curve& expected, const Curve& seen) {
  ASSERT_EQ(seen.losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_LT(relative_error(seen.losses[i], expected.losses[i]), 1e-12) << "step " << i + 1;
}

// PipeDream with one micro-batch a global batch: stage s of p lags p - 1 - s updates behind, and a window
// starts without lag.
TEST(PipeDream, IsTheFormulaOfDelayedUpdates) {
  for (int ranks : {2, 4})
    for (int window : {20, 8}) {
      const PretrainConfig config = async_run("pipedream", ranks, 1, window);
      const auto version = [&](int stage, int64_t step) {
        const int64_t start = step / window * window;
        return std::max(start, step - (ranks - 1 - stage));
      };
      expect_same(reference(config, version), train(config));
    }
}

// 2BW: every stage computes global batch t with the weights after t - 1 updates.
TEST(PipeDream2BW, IsTheFormulaOfOneDelay) {
  for (int ranks : {2, 4})
    for (int window : {20, 8}) {
      const PretrainConfig config = async_run("pipedream-2bw", ranks, 4, window);
      const auto version = [&](int, int64_t step) {
        const int64_t start = step / window * window;
        return std::max(start, step - 1);
      };
      expect_same(reference(config, version), train(config));
    }
}

// The delay is not there by accident: without it the curve is another.
TEST(PipeDream, DiffersFromTheSynchronousCurve) {
  const PretrainConfig config = async_run("pipedream", 4, 1, 20);
  const Curve delayed = train(config);
  const Curve prompt = train(scheduled(config, "1f1b"));
  EXPECT_EQ(delayed.losses[0], prompt.losses[0]);
  EXPECT_GT(relative_error(delayed.losses[5], prompt.losses[5]), 1e-6);
}

// 2BW's delay does not depend on the mesh, so tensor ranks, sequence parallelism and more stages change
// nothing.
TEST(PipeDream2BW, IsOneCurveOnEveryMesh) {
  PretrainConfig config = async_run("pipedream-2bw", 2, 4, 5);
  config.model.untie_embeddings_and_output_weights = false;
  config.model.hidden_dropout = 0.1;
  const Curve two = train(config);
  for (const auto& [pp, tp] : {std::pair(4, 1), {2, 2}, {4, 2}, {1, 2}}) {
    PretrainConfig mesh = on_mesh(config, 1, tp, pp);
    mesh.mesh.sequence_parallel = tp > 1;
    const Curve curve = train(mesh);
    ASSERT_EQ(curve.losses.size(), two.losses.size());
    for (size_t i = 0; i < two.losses.size(); ++i)
      EXPECT_LT(relative_error(curve.losses[i], two.losses[i]), 1e-11) << "pp " << pp << " tp " << tp;
  }
}

// A backward recomputes with the weights of its forward.
TEST(Async, RecomputationChangesNoBit) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    PretrainConfig config = async_run(schedule, 4, 4, 10);
    config.model.hidden_dropout = config.model.attention_dropout = 0.2;
    const Curve none = train(config);
    for (const auto mode : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
      config.mesh.recompute_granularity = mode;
      const Curve again = train(config);
      EXPECT_EQ(again.losses, none.losses) << schedule;
      EXPECT_EQ(again.grad_norms, none.grad_norms) << schedule;
    }
  }
}

TEST(Async, TrainsWithDataParallelRanksAndTiedWeights) {
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    PretrainConfig config = async_run(schedule, 2, 2, 10);
    config.model.untie_embeddings_and_output_weights = false;
    const Curve one = train(config);
    PretrainConfig wide = scheduled(on_mesh(config, 2, 1, 2), schedule);
    wide.batch.global_batch_size = 4;
    PretrainConfig base = config;
    base.batch.global_batch_size = 4;
    const Curve two = train(wide);
    EXPECT_LT(one.losses.back(), 0.95 * one.losses.front());
    EXPECT_LT(two.losses.back(), 0.95 * two.losses.front());
    // The same global batches in twice the micro-batches on one data-parallel rank, where the delay does not
    // depend on their number.
    if (std::string(schedule) != "pipedream-2bw") continue;
    const Curve narrow = train(base);
    for (size_t i = 0; i < two.losses.size(); ++i)
      EXPECT_LT(relative_error(two.losses[i], narrow.losses[i]), 1e-11) << "step " << i + 1;
  }
}

}  // namespace
}  // namespace trifold::test
