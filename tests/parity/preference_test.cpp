// Losses of pairs of samples: the same curve on every mesh, resumed exactly, and relative to a reference model whose
// log-likelihoods are computed once. torch_test.cpp compares them with PyTorch, gradient_test.cpp with differences.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "nn/samples/pair_loss.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/training.h"
#include "tasks/preference/pair_samples.h"
#include "train/tuning/reference_values.h"

namespace trifold::test {
namespace {

constexpr int64_t kPairs = 11;

// Random answers of several lengths to common prompts; preferred ones have fewer distinct tokens.
std::shared_ptr<PreferencePairs> few_pairs(int64_t seq_length, bool means = false) {
  auto pairs = std::make_shared<PreferencePairs>();
  pairs->seq_length = seq_length;
  pairs->means = means;
  const PhiloxKey key = philox_key(8, "pairs");
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(philox_word(key, drawn++) % static_cast<uint64_t>(below));
  };
  for (int64_t i = 0; i < kPairs; ++i) {
    const int64_t prompt = 1 + draw(seq_length / 2);
    EncodedPair pair;
    for (int64_t t = 0; t < prompt; ++t) pair[0].tokens.push_back(static_cast<int32_t>(draw(40)));
    pair[0].learned.assign(static_cast<size_t>(prompt), 0);
    pair[1] = pair[0];
    for (size_t place = 0; place < 2; ++place)
      for (int64_t left = 1 + draw(seq_length - prompt); left > 0; --left) {
        pair[place].tokens.push_back(static_cast<int32_t>(draw(place == 0 ? 5 : 40)));
        pair[place].learned.push_back(1);
      }
    pairs->pairs.push_back(pair);
  }
  return pairs;
}

PretrainConfig pair_run(PairLossKind loss = PairLossKind::Sigmoid) {
  PretrainConfig config = small_run();
  config.model.num_layers = 4;
  config.model.hidden_dropout = 0.1;
  config.model.pair_loss = PairLossConfig{loss, 0.3, loss == PairLossKind::Sigmoid ? 0.1 : 0.0};
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.precision.f64 = true;
  return config;
}

PairSamples samples_of(const PretrainConfig& config) {
  const bool means = config.model.pair_loss->loss == PairLossKind::Ipo;
  const auto values = std::make_shared<PairValues>();
  std::vector<double> reference;
  for (int64_t i = 0; i < 2 * kPairs; ++i)
    reference.push_back((means ? 1.0 : 5.0) *
                        (philox_normal(philox_key(9, "reference"), static_cast<uint64_t>(i)) - 4));
  values->set(std::move(reference));
  return {few_pairs(config.model.seq_length, means), values, 10, true, 7};
}

struct PairCurve {
  std::vector<double> losses, grad_norms;
  std::vector<double> terms;  // all of a step, step by step, without accuracies
  std::vector<double> accuracies;
  double valid_loss = 0;
};

PairCurve train_pairs(const PretrainConfig& asked, int64_t stop_after = 0, const std::string& load = "",
                      const std::string& save = "", LoadPart part = LoadPart::All) {
  const PretrainConfig config = on_test_device(asked);
  const PairSamples data = samples_of(config);
  PairCurve curve;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, &data);
    if (!load.empty()) trainer.load(load, part);
    while (trainer.steps_done() < (stop_after > 0 ? stop_after : config.batch.train_iters))
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        curve.losses.push_back(step.loss);
        curve.grad_norms.push_back(step.grad_norm);
        for (const auto& [name, mean] : step.terms)
          (name == PairLoss::kAccuracy ? curve.accuracies : curve.terms).push_back(mean);
      }
    if (!save.empty()) trainer.save(save);
    const EvalReport report = trainer.evaluate();
    if (world.rank() == 0) curve.valid_loss = report.loss;
  });
  return curve;
}

void expect_close(const PairCurve& mesh, const PairCurve& one, double tolerance) {
  EXPECT_LT(relative_error(mesh.losses, one.losses), tolerance);
  EXPECT_LT(relative_error(mesh.grad_norms, one.grad_norms), 20 * tolerance);
  EXPECT_LT(relative_error(mesh.terms, one.terms), 20 * tolerance);
  EXPECT_EQ(mesh.accuracies, one.accuracies);
  EXPECT_LT(relative_error(mesh.valid_loss, one.valid_loss), tolerance);
}

struct PairMesh {
  int dp = 1, tp = 1, pp = 1, cp = 1;
  const char* schedule = "1f1b";
  int zero = 0;
  bool sequence_parallel = false;
  int head_parts = 1;
  ContextExchange exchange = ContextExchange::AllGather;

  PretrainConfig of(const PretrainConfig& config) const {
    PretrainConfig run = scheduled(on_mesh(config, dp, tp, pp, cp), schedule);
    run.zero.zero_stage = zero;
    run.mesh.sequence_parallel = sequence_parallel;
    run.mesh.pipeline_vocab_parts = head_parts;
    if (cp > 1) run.mesh.cp_comm_type = exchange;
    run.mesh.distributed_timeout_minutes = 5;
    return run;
  }
};

constexpr PairMesh kPairMeshes[] = {
    {.tp = 2},
    {.tp = 2, .sequence_parallel = true},
    {.pp = 2, .schedule = "zb-h1"},
    {.cp = 2},
    {.dp = 2, .zero = 1},
    {.head_parts = 4},
    {.pp = 2, .cp = 2, .schedule = "zb-h1", .head_parts = 4},
    {.dp = 2, .tp = 2, .pp = 2, .zero = 2},
    {.tp = 2, .pp = 2, .cp = 2, .sequence_parallel = true, .head_parts = 2},
    {.dp = 2, .pp = 2, .cp = 2, .zero = 1, .exchange = ContextExchange::Ring},
    {.dp = 4, .cp = 2, .zero = 3},
    {.dp = 2, .tp = 2, .cp = 2, .zero = 3, .exchange = ContextExchange::AllToAll},
};

TEST(Preferences, HaveTheSameCurveOnEveryMesh) {
  for (const PairLossKind loss : {PairLossKind::Sigmoid, PairLossKind::Ipo}) {
    const PretrainConfig run = pair_run(loss);
    const PairCurve one = train_pairs(run);
    ASSERT_EQ(one.losses.size(), 4U);
    ASSERT_EQ(one.terms.size(), 12U);
    for (const PairMesh& mesh : kPairMeshes) {
      SCOPED_TRACE(fmt::format("dp {} tp {} pp {} cp {} {} zero {} parts {}", mesh.dp, mesh.tp, mesh.pp,
                               mesh.cp, mesh.schedule, mesh.zero, mesh.head_parts));
      expect_close(train_pairs(mesh.of(run)), one, 1e-11);
    }
  }
}

// Adapters in all layers, and in the upper ones alone, below which nothing is computed backward, with and without
// further stages that look up tokens.
TEST(Preferences, TrainAdaptersOnEveryMesh) {
  const TempDir folder;
  const PretrainConfig base = pair_run();
  train_pairs(base, 1, "", folder.file("base"));
  for (const bool upper : {false, true}) {
    PretrainConfig run = base;
    run.model.adapters.lora_rank = 3;
    run.model.adapters.lora_dropout = 0.1;
    run.lr.lr = 0.03;
    if (upper) run.model.adapters.lora_targets = {"block.[23].*"};
    const PairCurve one = train_pairs(run, 0, folder.file("base"), "", LoadPart::Weights);
    ASSERT_EQ(one.losses.size(), 4U);
    for (const PairMesh& mesh : kPairMeshes) {
      SCOPED_TRACE(fmt::format("upper {} dp {} tp {} pp {} cp {} {} zero {} parts {}", upper, mesh.dp,
                               mesh.tp, mesh.pp, mesh.cp, mesh.schedule, mesh.zero, mesh.head_parts));
      expect_close(train_pairs(mesh.of(run), 0, folder.file("base"), "", LoadPart::Weights), one, 1e-11);
    }
  }
}

// The order of every sum is kept by the cut into stages, the schedule and ZeRO.
TEST(Preferences, HaveTheBitsOfOneStage) {
  PretrainConfig run = pair_run();
  run.precision.f64 = false;
  const auto expect_bits = [](const PairCurve& cut, const PairCurve& whole) {
    EXPECT_EQ(cut.losses, whole.losses);
    EXPECT_EQ(cut.grad_norms, whole.grad_norms);
    EXPECT_EQ(cut.terms, whole.terms);
    EXPECT_EQ(cut.valid_loss, whole.valid_loss);
  };
  expect_bits(train_pairs(PairMesh{.pp = 4, .schedule = "zb-h1"}.of(run)), train_pairs(run));
  expect_bits(train_pairs(PairMesh{.pp = 2, .schedule = "1f1b", .head_parts = 4}.of(run)),
              train_pairs(PairMesh{.head_parts = 4}.of(run)));
  expect_bits(train_pairs(PairMesh{.dp = 2, .zero = 3}.of(run)), train_pairs(PairMesh{.dp = 2}.of(run)));
}

// Eleven pairs in batches of four: the last batch has three, and a rank has none.
TEST(Preferences, FillUpTheLastBatch) {
  PretrainConfig run = pair_run();
  run.batch.train_epochs = 1;
  run.batch.pass_samples = 2 * kPairs;
  run.batch.train_iters = 3;
  const PairCurve one = train_pairs(run);
  for (const PairMesh& mesh : {PairMesh{.dp = 2}, PairMesh{.dp = 4}, PairMesh{.dp = 2, .cp = 2}})
    expect_close(train_pairs(mesh.of(run)), one, 1e-11);
}

class PreferenceFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "preferences_" + std::to_string(getpid());
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(PreferenceFiles, ResumeExactly) {
  PretrainConfig run = pair_run();
  run.precision.f64 = false;
  const PairCurve whole = train_pairs(run);
  train_pairs(run, 2, "", folder_);
  const PairCurve after = train_pairs(run, 0, folder_);
  ASSERT_EQ(after.losses.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after.losses[i], whole.losses[i + 2]);
    EXPECT_EQ(after.grad_norms[i], whole.grad_norms[i + 2]);
  }
  EXPECT_EQ(after.valid_loss, whole.valid_loss);
}

// Other data, for a checkpoint.
SyntheticTokens few_text(const PretrainConfig& config) { return {config.model.seq_length, 7, 11}; }

// Log-likelihoods of the samples under the checkpoint in `folder`, computed on a mesh or read from `file`.
std::vector<double> values_on(const PretrainConfig& config, const ReferenceModel& reference,
                              const std::optional<std::string>& file) {
  const PairSamples samples(few_pairs(config.model.seq_length), std::make_shared<PairValues>(), 1, false, 0);
  std::vector<double> values;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    const auto mine = reference_values(world, config.mesh, config.zero, config.precision, reference, samples,
                                       2, file, nullptr);
    if (world.rank() == world.size() - 1) values = *mine;
  });
  return values;
}

TEST_F(PreferenceFiles, KeepTheReference) {
  PretrainConfig run = pair_run();
  train(run, few_text(run), {.stop_after = 1, .save = folder_});
  const ReferenceModel reference = reference_model(folder_, run.model, DType::F64);
  const std::vector<double> one = values_on(run, reference, std::nullopt);
  for (const double value : one) EXPECT_LT(value, 0);
  for (const PairMesh& mesh : kPairMeshes)
    EXPECT_LT(relative_error(values_on(mesh.of(run), reference, std::nullopt), one), 1e-11);

  const std::string file = reference_file(folder_ + "/kept", reference, "eleven pairs");
  EXPECT_NE(file, reference_file(folder_ + "/kept", reference, "other pairs"));
  EXPECT_NE(file, reference_file(folder_ + "/kept", reference_model(folder_, run.model, DType::F32),
                                 "eleven pairs"));
  EXPECT_EQ(values_on(run, reference, file), one);
  ReferenceModel gone = reference;
  gone.path = "/no/such/model";
  EXPECT_EQ(values_on(PairMesh{.dp = 2}.of(run), gone, file), one) << "it reads them from the file";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 8);
  EXPECT_THROW(values_on(run, reference, file), Error);
}

// The model that training starts from is the reference: every margin is exactly 0, and the loss log 2.
TEST_F(PreferenceFiles, BeginWithTheReference) {
  PretrainConfig run = pair_run();
  run.model.hidden_dropout = 0;
  run.precision.f64 = false;
  run_on_ranks(run.mesh, [&](Communicator& world) {
    const auto data = few_text(run);
    Trainer(world, run, data, nullptr).save(folder_);
  });
  const ReferenceModel reference = reference_model(folder_, run.model, DType::F32);
  const auto values = std::make_shared<PairValues>();
  values->set(values_on(run, reference, std::nullopt));
  const PairSamples data(few_pairs(run.model.seq_length), values, 10, true, 7);
  run_on_ranks(run.mesh, [&](Communicator& world) {
    Trainer trainer(world, run, data, nullptr);
    trainer.load(folder_, LoadPart::Weights);
    const StepReport first = trainer.step();
    EXPECT_DOUBLE_EQ(first.loss, std::log(2.0) * 0.9 + std::log(2.0) * 0.1);
    for (const auto& [name, mean] : first.terms) EXPECT_EQ(mean, 0) << name;
    StepReport last = first;
    while (trainer.steps_done() < run.batch.train_iters) last = trainer.step();
    EXPECT_LT(last.loss, first.loss);
  });
}

// The reference of adapters to quantized weights has the same quantized weights.
TEST_F(PreferenceFiles, BeginWithTheQuantizedReference) {
  PretrainConfig run = pair_run();
  run.model.hidden_dropout = 0;
  run.precision.f64 = false;
  train(run, few_text(run), {.stop_after = 2, .save = folder_});
  std::set<std::string> files;
  for (const BaseWeights type : {BaseWeights::AsRun, BaseWeights::Int8, BaseWeights::Nf4}) {
    run.model.adapters.lora_rank = 2;
    run.model.adapters.quantize_base = type;
    const ReferenceModel reference = reference_model(folder_, run.model, DType::F32);
    files.insert(reference_file(folder_, reference, "eleven pairs"));
    for (const PairMesh& mesh : {PairMesh{}, PairMesh{.tp = 2}, PairMesh{.dp = 2, .zero = 3},
                                 PairMesh{.dp = 2, .tp = 2, .pp = 2, .zero = 2}}) {
      SCOPED_TRACE(fmt::format("{} tp {} zero {}", name_of(type), mesh.tp, mesh.zero));
      const PretrainConfig config = mesh.of(run);
      const auto values = std::make_shared<PairValues>();
      values->set(values_on(config, reference, std::nullopt));
      const PairSamples data(few_pairs(run.model.seq_length), values, 10, true, 7);
      run_on_ranks(config.mesh, [&](Communicator& world) {
        Trainer trainer(world, config, data, nullptr);
        trainer.load(folder_, LoadPart::Weights);
        const StepReport first = trainer.step();
        if (world.rank() != 0) return;
        for (const auto& [name, mean] : first.terms) EXPECT_EQ(mean, 0) << name;
        EXPECT_DOUBLE_EQ(first.loss, std::log(2.0));
      });
    }
  }
  EXPECT_EQ(files.size(), 3U) << "a kept file would be read by a run with other weights";
}

}  // namespace
}  // namespace trifold::test
