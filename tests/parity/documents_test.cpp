// Documents packed into samples: they train as they would one by one, on every mesh, and after a restart.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ops/host_copy.h"
#include "parity/whole.h"
#include "support/compare.h"
#include "support/training.h"
#include "text/samples.h"

namespace trifold::test {
namespace {

constexpr int64_t kLength = 16;    // tokens of a sample
constexpr int64_t kDocuments = 4;  // in each of them
constexpr int32_t kEndOfText = 0;

// Samples of four documents; the fourth is cut off or ends with the sample.
class FourDocuments final : public Samples {
 public:
  int64_t count() const override { return int64_t{1} << 20; }
  void read(int64_t index, std::span<int32_t> out) const override {
    const auto sample = static_cast<uint64_t>(index);
    size_t at = 0;
    for (uint64_t document = 0; document + 1 < kDocuments; ++document) {
      for (uint32_t left = word(sample, 20 + document) % 5; left > 0; --left, ++at)
        out[at] = token(sample, at);
      out[at++] = kEndOfText;
    }
    for (; at < out.size(); ++at) out[at] = token(sample, at);
    if (index % 2 == 0) out[kLength - 1] = kEndOfText;
  }

 private:
  uint32_t word(uint64_t sample, uint64_t at) const { return philox_word(key_, sample * 32 + at); }
  int32_t token(uint64_t sample, uint64_t at) const { return 1 + static_cast<int32_t>(word(sample, at) % 6); }

  PhiloxKey key_ = philox_key(5, "documents");
};

SampleSource packed_documents(bool separate = true) {
  return {
      std::make_unique<FourDocuments>(),
      kLength,
      {.end = kEndOfText, .mask_loss = true, .restart_positions = separate, .separate_attention = separate}};
}

// The same documents, each with a sample to itself that ends in padding.
class OneByOne final : public DataSource {
 public:
  int64_t seq_length() const override { return kLength; }
  int64_t samples() const override { return documents_.count() * kDocuments; }
  void read(Batch& batch, int64_t first) const override {
    batch.first_sample = first;
    for (int64_t b = 0; b < batch.samples(); ++b) read_document(batch, b, first + b);
  }

 private:
  void read_document(const Batch& batch, int64_t b, int64_t index) const {
    std::vector<int32_t> text(kLength + 1);
    documents_.read(index / kDocuments, text);
    auto begin = text.begin();
    const auto end = text.end() - 1;
    for (int64_t before = index % kDocuments; before > 0; --before)
      begin = std::find(begin, end, kEndOfText) + 1;
    for (int64_t t = 0; t < kLength; ++t) {
      const int64_t row = b * kLength + t;
      const bool inside = begin < end;
      batch.tokens.as<int32_t>()[row] = inside ? *begin : 1;
      batch.labels.as<int32_t>()[row] = inside ? begin[1] : 1;
      batch.loss_weight.as<float>()[row] = inside && *begin != kEndOfText ? 1.0F : 0.0F;
      batch.positions.as<int32_t>()[row] = static_cast<int32_t>(t);
      if (inside) begin = *begin == kEndOfText ? end : begin + 1;
    }
  }

  FourDocuments documents_;
};

struct Trained {
  Curve curve;
  std::map<std::string, std::vector<double>> gradients;  // of the sum of the first step's losses
};

std::vector<double> gradient_values(Trainer& trainer, Tensor gradient, double factor) {
  const HostCopy copy(trainer.replica().ops(), trainer.replica().compute(), gradient);
  std::vector<double> values(static_cast<size_t>(gradient.elements()));
  dispatch_wide_float(gradient.dtype, [&](auto zero) {
    std::copy_n(copy.tensor().as<decltype(zero)>(), gradient.elements(), values.begin());
  });
  for (double& value : values) value *= factor;
  return values;
}

Trained train_on(const DataSource& data, const PretrainConfig& asked, const TrainOptions& options = {}) {
  const PretrainConfig config = on_test_device(asked);
  const int64_t last = options.stop_after == 0 ? config.batch.train_iters : options.stop_after;
  const auto places = static_cast<double>(*config.batch.global_batch_size * kLength);
  Trained trained;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, &data);
    if (!options.load.empty()) trainer.load(options.load);
    while (trainer.steps_done() < last) {
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        trained.curve.losses.push_back(step.loss);
        trained.curve.grad_norms.push_back(step.grad_norm);
      }
      const ParamList& params = trainer.replica().model().params;
      const bool whole = world.size() == trainer.replica().mesh().size(Axis::Cp);
      if (whole && world.rank() == 0 && trainer.steps_done() == 1)
        for (ParamId id : params.by_name())
          trained.gradients[params[id].shard.name] =
              gradient_values(trainer, trainer.grads().grad(id), places);
    }
    if (!options.save.empty()) trainer.save(options.save);
    const double loss = trainer.evaluate().loss;
    if (world.rank() == 0) trained.curve.valid_loss = loss;
  });
  return trained;
}

PretrainConfig documents_run(bool llama) {
  PretrainConfig config = small_run();
  if (llama) make_llama(config.model, 2);
  config.model.seq_length = config.model.max_position_embeddings.emplace(kLength);
  config.precision.f64 = true;
  config.batch.train_iters = 10;
  config.batch.micro_batch_size = 1;
  config.eval.eval_iters = 2;
  return config;
}

void expect_close(const Curve& a, const Curve& b, double tolerance) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_LT(relative_error(a.losses[i], b.losses[i]), tolerance) << "loss of step " << i + 1;
    EXPECT_LT(relative_error(a.grad_norms[i], b.grad_norms[i]), 20 * tolerance) << "norm of step " << i + 1;
  }
  EXPECT_LT(relative_error(*a.valid_loss, *b.valid_loss), tolerance) << "validation";
}

class Documents : public ::testing::TestWithParam<bool> {};

TEST_P(Documents, PackedTrainAsOneByOne) {
  const PretrainConfig config = documents_run(GetParam());
  const Trained packed = train_on(packed_documents(), config);
  PretrainConfig alone = config;
  alone.batch.global_batch_size = *config.batch.global_batch_size * kDocuments;
  alone.batch.micro_batch_size = 4;
  const Trained apart = train_on(OneByOne(), alone);
  expect_close(packed.curve, apart.curve, 1e-11);
  ASSERT_FALSE(packed.gradients.empty());
  for (const auto& [name, gradient] : packed.gradients)
    EXPECT_LT(relative_error(gradient, apart.gradients.at(name)), 1e-11) << name;
  struct {
    int cp;
    ContextExchange exchange;
  } const cuts[] = {{2, ContextExchange::AllGather},
                    {4, ContextExchange::Ring},
                    {4, ContextExchange::AllToAll},
                    {8, ContextExchange::AllGather}};
  for (const auto& [cp, exchange] : cuts) {
    SCOPED_TRACE(fmt::format("cp {} {}", cp, name_of(exchange)));
    PretrainConfig cut = on_mesh(config, 1, 1, 1, cp);
    cut.mesh.cp_comm_type = exchange;
    const Trained shared = train_on(packed_documents(), cut);
    expect_close(shared.curve, apart.curve, 1e-11);
    for (const auto& [name, gradient] : shared.gradients)
      EXPECT_LT(relative_error(gradient, apart.gradients.at(name)), 1e-11) << name;
  }
  // Documents that see each other are something else.
  EXPECT_GT(relative_error(train_on(packed_documents(false), config).curve.losses[0], apart.curve.losses[0]),
            1e-4);
}

TEST_P(Documents, TrainTheSameOnEveryMesh) {
  const SampleSource data = packed_documents();
  for (const bool f64 : {true, false}) {
    PretrainConfig config = documents_run(GetParam());
    config.model.num_layers = 7;
    config.model.hidden_dropout = config.model.attention_dropout = 0.1;
    config.precision.f64 = f64;
    if (!kWhole) config.batch.train_iters = 5;
    const Trained one = train_on(data, config);
    struct {
      int dp, tp, pp;
      const char* schedule;
      int chunks;
      RecomputeGranularity recompute;
      int zero;
      int cp = 1;
      ContextExchange exchange = ContextExchange::AllGather;
      int64_t tiles = 1;
    } const cases[] = {{1, 1, 8, "1f1b", 1, RecomputeGranularity::None, 0},
                       {8, 1, 1, "1f1b", 1, RecomputeGranularity::Selective, 3},
                       {2, 2, 2, "zb-h1", 1, RecomputeGranularity::None, 2},
                       {2, 2, 2, "interleaved", 2, RecomputeGranularity::Full, 1},
                       {2, 1, 4, "zb-v", 2, RecomputeGranularity::Selective, 1},
                       {2, 1, 1, "1f1b", 1, RecomputeGranularity::None, 3, 4},
                       {1, 2, 2, "zb-h1", 1, RecomputeGranularity::Full, 1, 2},
                       {2, 1, 2, "1f1b", 1, RecomputeGranularity::None, 1, 2, ContextExchange::AllToAll},
                       {1, 1, 2, "zb-h1", 1, RecomputeGranularity::Selective, 1, 4, ContextExchange::Ring},
                       {2, 2, 1, "1f1b", 1, RecomputeGranularity::Full, 2, 2, ContextExchange::Ring, 3},
                       {1, 1, 1, "1f1b", 1, RecomputeGranularity::None, 3, 8},
                       {1, 1, 1, "1f1b", 1, RecomputeGranularity::Selective, 1, 8, ContextExchange::Ring}};
    bool next = f64 == GetParam();
    for (const auto& c : cases) {
      // In f64 for one of the models, in f32 for the other.
      if (next = !next; !kWhole && next) continue;
      SCOPED_TRACE(fmt::format("f64 {} dp {} cp {} tp {} pp {} {}", f64, c.dp, c.cp, c.tp, c.pp, c.schedule));
      const auto on = [&](int pp) {
        PretrainConfig cut = on_mesh(config, c.dp, c.tp, pp, c.cp);
        cut.mesh.sequence_parallel = c.tp > 1;
        cut.mesh.tiled_mlp = c.tiles;
        if (c.cp > 1) cut.mesh.cp_comm_type = c.exchange;
        return cut;
      };
      PretrainConfig cut = scheduled(on(c.pp), c.schedule, c.chunks);
      cut.mesh.recompute_granularity = c.recompute;
      cut.zero.zero_stage = c.zero;
      const Trained mesh = train_on(data, cut);
      expect_close(mesh.curve, one.curve, f64 ? 1e-11 : 2e-5);
      const Trained whole = train_on(data, on(1));
      EXPECT_EQ(first_difference<double>(mesh.curve.losses, whole.curve.losses), kSame);
      EXPECT_EQ(first_difference<double>(mesh.curve.grad_norms, whole.curve.grad_norms), kSame);
    }
  }
}

TEST_P(Documents, ResumeIsBitwiseExact) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("trifold_documents_{}", GetParam());
  std::filesystem::remove_all(folder);
  const SampleSource data = packed_documents();
  PretrainConfig config = on_mesh(documents_run(GetParam()), 2);
  config.precision.f64 = false;
  config.model.attention_dropout = 0.1;
  const Curve whole = train_on(data, config).curve;
  train_on(data, config, {.stop_after = 4, .save = folder.string()});
  const Curve rest = train_on(data, config, {.load = folder.string()}).curve;
  ASSERT_EQ(rest.losses.size(), 6U);
  EXPECT_EQ(first_difference(std::span(whole.losses).subspan(4), std::span<const double>(rest.losses)),
            kSame);
  EXPECT_EQ(whole.valid_loss, rest.valid_loss);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, Documents, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Llama" : "Gpt"; });

}  // namespace
}  // namespace trifold::test
