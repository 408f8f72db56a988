// A small GPT, also with losses of pairs, two small Llamas and a small BERT, with three heads, against PyTorch: ten
// losses, every gradient of the first step, and the weights after ten updates.
#include <gtest/gtest.h>

#include <numeric>

#include "ops/host_copy.h"
#include "support/compare.h"
#include "support/golden.h"
#include "support/training.h"

namespace trifold::test {
namespace {

constexpr int32_t kClasses = 3;

class GoldenTokens final : public DataSource {
 public:
  explicit GoldenTokens(const GoldenGpt& golden) : golden_(golden) {}
  int64_t seq_length() const override { return golden_.config.seq_length; }
  int64_t samples() const override { return golden_.config.train_iters * golden_.config.global_batch_size; }
  void read(Batch& batch, int64_t first) const override {
    batch.first_sample = first;
    for (int64_t b = 0; b < batch.samples(); ++b) {
      const int64_t index = first + b;
      const auto& sample = golden_.tokens[static_cast<size_t>(index / golden_.config.global_batch_size)]
                                         [static_cast<size_t>(index % golden_.config.global_batch_size)];
      for (int64_t t = 0; t < seq_length(); ++t)
        batch.positions.as<int32_t>()[b * seq_length() + t] = static_cast<int32_t>(t);
      if (golden_.config.bert)
        read_pair(batch, b, sample);
      else if (golden_.pairs)
        read_answer(batch, b, sample);
      else
        read_text(batch, b, sample);
    }
  }

 private:
  using Sample = std::vector<int32_t>;

  void read_text(const Batch& batch, int64_t b, const Sample& sample) const {
    const int64_t row = b * seq_length();
    std::copy(sample.begin(), sample.end() - 1, batch.tokens.as<int32_t>() + row);
    std::copy(sample.begin() + 1, sample.end(), batch.labels.as<int32_t>() + row);
    std::fill_n(batch.loss_weight.as<float>() + row, seq_length(), 1.0F);
  }
  // As dpo_torch.py packs it.
  void read_answer(const Batch& batch, int64_t b, const Sample& sample) const {
    const int64_t row = b * seq_length();
    const int32_t* from = sample.data();
    std::copy_n(from, seq_length(), batch.tokens.as<int32_t>() + row);
    std::copy_n(from + seq_length(), seq_length(), batch.labels.as<int32_t>() + row);
    const float weight =
        golden_.pairs->loss.loss == PairLossKind::Ipo
            ? 1.0F / static_cast<float>(std::accumulate(from + 2 * seq_length(), from + 3 * seq_length(), 0))
            : 1.0F;
    for (int64_t t = 0; t < seq_length(); ++t)
      batch.loss_weight.as<float>()[row + t] = weight * static_cast<float>(from[2 * seq_length() + t]);
    batch.pair_weight.as<float>()[b] = 1;
    const int64_t index = batch.first_sample + b;
    batch.sample_values.as<double>()[b] =
        golden_.pairs->reference[static_cast<size_t>(index / golden_.config.global_batch_size)]
                                [static_cast<size_t>(index % golden_.config.global_batch_size)];
  }
  // As bert_torch.py packs it.
  void read_pair(const Batch& batch, int64_t b, const Sample& sample) const {
    const int64_t row = b * seq_length();
    batch.lengths.as<int32_t>()[b] = sample[0];
    const bool classes = golden_.config.bert_head == HeadKind::Classes;
    const int32_t* label = sample.data() + 3 + seq_length();
    batch.pair_labels.as<int32_t>()[b] = classes ? label[1] % kClasses : sample[2];
    const int32_t begin = 1 + label[2] % (sample[0] - 1);
    batch.answer_begin.as<int32_t>()[b] = begin;
    batch.answer_end.as<int32_t>()[b] = std::min(sample[0] - 1, begin + label[3] % 3);
    batch.pair_weight.as<float>()[b] = 1;
    const int32_t* from = sample.data() + 3;
    std::copy_n(from, seq_length(), batch.tokens.as<int32_t>() + row);
    std::copy_n(from + seq_length(), seq_length(), batch.labels.as<int32_t>() + row);
    for (int64_t t = 0; t < seq_length(); ++t) {
      batch.token_types.as<int32_t>()[row + t] = sample[1] <= t && t < sample[0] ? 1 : 0;
      batch.loss_weight.as<float>()[row + t] = golden_.config.bert_head == HeadKind::Pretraining
                                                   ? static_cast<float>(from[2 * seq_length() + t])
                                                   : 0;
    }
  }

  const GoldenGpt& golden_;
};

void make_golden_llama(ModelConfig& model, const GoldenGptConfig& g) {
  model.position_embedding_type = PositionEmbedding::Rope;
  model.rotary_base = g.rotary_base;
  model.rotary_percent = g.rotary_percent;
  model.use_rope_scaling = g.rope_scaling_factor > 1;
  if (model.use_rope_scaling) model.rope_scaling_factor = g.rope_scaling_factor;
  model.group_query_attention = true;
  model.num_query_groups = *g.num_query_groups;
  model.kv_channels = g.kv_channels;
  model.qk_layernorm = g.qk_layernorm;
  model.normalization = Normalization::RmsNorm;
  model.swiglu = true;
  model.disable_bias_linear = true;
  model.untie_embeddings_and_output_weights = true;
}

PretrainConfig config_of(const GoldenGptConfig& g) {
  PretrainConfig config;
  config.model.num_layers = g.num_layers;
  config.model.hidden_size = g.hidden_size;
  config.model.num_attention_heads = g.num_attention_heads;
  config.model.ffn_hidden_size = g.ffn_hidden_size;
  config.model.seq_length = g.seq_length;
  config.model.max_position_embeddings = g.max_position_embeddings;
  config.model.vocab_size = g.vocab_size;
  config.model.make_vocab_size_divisible_by = g.padded_vocab_size;
  config.model.norm_epsilon = g.norm_epsilon;
  if (g.num_query_groups) make_golden_llama(config.model, g);
  if (g.bert) config.model.model_type = ModelType::Bert;
  config.model.bert_head = g.bert_head;
  if (g.bert_head == HeadKind::Classes) config.model.class_names = {"0", "1", "2"};
  config.mesh.data_parallel_size = 1;
  config.mesh.threads_per_rank = 2;
  config.batch.micro_batch_size = g.micro_batch_size;
  config.batch.global_batch_size = g.global_batch_size;
  config.batch.train_iters = g.train_iters;
  config.lr.lr = g.lr;
  config.lr.min_lr = g.min_lr;
  config.lr.lr_decay_style = LrDecayStyle::Cosine;
  config.lr.lr_decay_iters = g.lr_decay_iters;
  config.lr.lr_warmup_iters = g.lr_warmup_iters;
  config.lr.lr_warmup_init = g.lr_warmup_init;
  config.optimizer.weight_decay = g.weight_decay;
  config.optimizer.clip_grad = g.clip_grad;
  config.optimizer.adam_beta1 = g.adam_beta1;
  config.optimizer.adam_beta2 = g.adam_beta2;
  config.optimizer.adam_eps = g.adam_eps;
  return config;
}

PretrainConfig config_of(const GoldenGpt& golden) {
  PretrainConfig config = config_of(golden.config);
  if (golden.pairs) config.model.pair_loss = golden.pairs->loss;
  return config;
}

std::vector<double> values_of(Trainer& trainer, Tensor t) {
  const HostCopy copy(trainer.replica().ops(), trainer.replica().compute(), t);
  std::vector<double> values(static_cast<size_t>(t.elements()));
  dispatch_wide_float(t.dtype, [&](auto zero) {
    std::copy_n(copy.tensor().as<decltype(zero)>(), t.elements(), values.begin());
  });
  return values;
}

void set_initial_weights(Trainer& trainer, const GoldenGpt& golden) {
  const ParamList& params = trainer.replica().model().params;
  ASSERT_EQ(params.by_name().size(), golden.parameters.size());
  for (ParamId id : params.by_name()) {
    const GoldenParameter& from = golden.parameter(params[id].shard.name);
    EXPECT_EQ(params[id].decay, from.decayed) << from.name;
    ASSERT_TRUE(params[id].shard.global == Shape(std::span<const int64_t>(from.shape))) << from.name;
    const Tensor w = trainer.replica().weights().weight(id);
    const Buffer made(w.bytes());
    const Tensor host = made.tensor(w.dtype, w.shape);
    dispatch_wide_float(w.dtype, [&](auto zero) {
      std::copy(from.initial.begin(), from.initial.end(), host.as<decltype(zero)>());
    });
    trainer.replica().ops().copy(trainer.replica().compute(), w, host);
    trainer.replica().compute().synchronize();
  }
}

// What the trainer's gradients, of the sum of the losses over all places of a batch, are multiplied with to
// be those of the mean over the labels that count: 1 where all do.
double places_per_label(const GoldenGpt& golden) {
  const auto length = golden.config.seq_length;
  if (golden.pairs) return static_cast<double>(2 * length);
  if (!golden.config.bert) return 1;
  if (golden.config.bert_head != HeadKind::Pretraining) return static_cast<double>(length);
  int64_t labels = 0;
  for (const std::vector<int32_t>& sample : golden.tokens[0])
    labels += std::accumulate(sample.end() - length, sample.end(), int64_t{0});
  return static_cast<double>(golden.config.global_batch_size * length) / static_cast<double>(labels);
}

std::vector<double> times(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

// What is added to every row is added to every logit of an end of a span, which softmax does not see: this
// gradient is zero but for rounding, and Adam makes steps of full size from that.
bool has_gradient(const GoldenGpt& golden, const std::string& name) {
  return golden.config.bert_head != HeadKind::Span || name != "block.0.norm2.bias";
}

// The rewards are differences of log-likelihoods of about 20. The model is the reference in the first step, so that the
// sign of a margin is that of its rounding.
void compare_rewards(const StepReport& step, const GoldenPairs& golden, double tolerance) {
  const auto at = static_cast<size_t>(step.step) - 1;
  ASSERT_EQ(step.terms.size(), golden.rewards.size());
  for (const auto& [name, mean] : step.terms) {
    const std::string theirs = name.substr(name.find('_') + 1);
    if (at == 0 && theirs == "accuracy") continue;
    EXPECT_NEAR(mean, golden.rewards.at(theirs).at(at), 10 * tolerance) << name << " of step " << step.step;
  }
}

// `tolerance` is relative: of losses and norms each, of a gradient to its largest element.
void compare_with_torch(const PretrainConfig& asked, const GoldenGpt& golden, double tolerance) {
  const PretrainConfig config = on_test_device(asked);
  const GoldenTokens data(golden);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    const ParamList& params = trainer.replica().model().params;
    set_initial_weights(trainer, golden);
    for (size_t i = 0; i < golden.losses.size(); ++i) {
      const StepReport step = trainer.step();
      EXPECT_LT(relative_error(step.loss, golden.losses[i]), tolerance) << "loss of step " << step.step;
      // In f32, later norms also carry the rounding of the updates before them, which Adam's division
      // enlarges and which depends on the width of the processor's vectors: 1.6e-5 with AVX2.
      const double norm_tolerance = i == 0 || config.precision.f64 ? tolerance : 3 * tolerance;
      EXPECT_LT(relative_error(step.grad_norm, golden.grad_norms[i]), norm_tolerance)
          << "norm of step " << step.step;
      EXPECT_NEAR(step.lr, golden.learning_rates[i], 1e-12 * golden.config.lr);
      if (golden.pairs) compare_rewards(step, *golden.pairs, tolerance);
      if (i != 0) continue;
      for (ParamId id : params.by_name()) {
        const std::string& name = params[id].shard.name;
        if (!has_gradient(golden, name) || golden.parameter(name).gradient.empty()) continue;
        EXPECT_LT(
            relative_error(times(values_of(trainer, trainer.grads().grad(id)), places_per_label(golden)),
                           golden.parameter(name).gradient),
            tolerance)
            << "gradient of " << name;
      }
    }
    // Not in f32: the gradient of a key's bias is zero but for rounding, and Adam makes steps of full size
    // from that.
    if (!config.precision.f64) return;
    for (ParamId id : params.by_name()) {
      if (!has_gradient(golden, params[id].shard.name)) continue;
      double squares = 0;
      for (double w : values_of(trainer, trainer.replica().weights().weight(id))) squares += w * w;
      const GoldenParameter& expected = golden.parameter(params[id].shard.name);
      EXPECT_LT(relative_error(squares, expected.final_sum_squares), 10 * tolerance) << expected.name;
    }
  });
}

class Torch : public ::testing::TestWithParam<const char*> {};

TEST_P(Torch, LossesAndGradientsInF64) {
  const GoldenGpt golden = load_golden_gpt(GetParam());
  PretrainConfig config = config_of(golden);
  config.precision.f64 = true;
  compare_with_torch(config, golden, 1e-10);
}

TEST_P(Torch, LossesAndGradientsInF32) {
  const GoldenGpt golden = load_golden_gpt(GetParam());
  compare_with_torch(config_of(golden), golden, 1e-5);
}

TEST_P(Torch, LossesOnTwoRanks) {
  const GoldenGpt golden = load_golden_gpt(GetParam());
  PretrainConfig config = on_mesh(config_of(golden), 2);
  config.precision.f64 = true;
  compare_with_torch(config, golden, 1e-10);
}

class TorchMuon : public ::testing::TestWithParam<const char*> {};

// On one rank, and with slices of state on two: the parts of a direction are gathered.
TEST_P(TorchMuon, LossesAndWeightsInF64) {
  const GoldenGpt golden = load_golden_muon(GetParam());
  PretrainConfig config = config_of(golden);
  config.optimizer.optimizer = OptimizerKind::Muon;
  config.precision.f64 = true;
  compare_with_torch(config, golden, 1e-10);
  for (const int stage : {0, 1, 2}) {
    SCOPED_TRACE(stage);
    config.zero.zero_stage = stage;
    compare_with_torch(on_mesh(config, 2), golden, 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TorchMuon, ::testing::Values("gpt", "llama"),
                         [](const auto& test) { return std::string(test.param); });

INSTANTIATE_TEST_SUITE_P(Models, Torch,
                         ::testing::Values("gpt_torch.json", "llama_torch.json", "llama_scaled_torch.json",
                                           "bert_torch.json", "bert_classes_torch.json",
                                           "bert_span_torch.json", "dpo_torch.json", "dpo_ipo_torch.json"),
                         [](const auto& test) {
                           const std::string name = test.param;
                           return name.substr(0, name.find("_torch"));
                         });

}  // namespace
}  // namespace trifold::test
