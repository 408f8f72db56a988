// A whole small GPT, and a Llama, with weights and activations in 16 bits, against the same in f32 with the
// same (rounded) weights: losses and gradients agree within what rounding of activations makes, and no number
// of threads changes a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "data/read_ahead.h"
#include "models/gpt.h"
#include "models/language_model.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

using Values = std::vector<double>;

Values values_of(Tensor t) {
  Values values(static_cast<size_t>(t.elements()));
  dispatch_float(t.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(t.as<T>()[i]);
  });
  return values;
}

// Every parameter's weight, in memory of its own: the initial values rounded to bf16, which f32 and f16 hold
// too (but for the tiniest ones); and its gradient.
class PlainStore final : public ParamSource, public GradSink {
 public:
  PlainStore(const ParamList& params, DType dtype, Stream& stream) : params_(params) {
    for (const ParamSpec& spec : params.specs()) {
      const Shape& shape = spec.shard.local.extent;
      const auto bytes = static_cast<size_t>(shape.elements()) * sizeof(double);
      memory_.emplace_back(bytes);
      const Tensor exact = memory_.back().tensor(DType::F32, shape);
      memory_.emplace_back(bytes);
      const Tensor rounded = memory_.back().tensor(DType::BF16, shape);
      memory_.emplace_back(bytes);
      weights_.push_back(memory_.back().tensor(dtype, shape));
      memory_.emplace_back(bytes);
      grads_.push_back(memory_.back().tensor(accumulate_type(dtype), shape));
      initialise(spec, exact, 7, stream.pool());
      cpu_ops().convert(stream, rounded, exact);
      cpu_ops().convert(stream, exact, rounded);
      cpu_ops().convert(stream, weights_.back(), exact);
    }
  }
  Tensor weight(ParamId id) const override {
    const ParamSpec& spec = params_[id];
    return weights_[static_cast<size_t>(spec.tied_to ? spec.tied_to->index : id.index)];
  }
  Tensor grad(ParamId id) const override { return grads_[static_cast<size_t>(id.index)]; }
  void reduce(int, Stream&) override {}
  void reduce_tied(Stream&) override {}

 private:
  const ParamList& params_;
  std::vector<Buffer> memory_;
  std::vector<Tensor> weights_, grads_;
};

ModelConfig small_gpt() {
  ModelConfig model;
  model.num_layers = 3;
  model.hidden_size = 48;
  model.num_attention_heads = 4;
  model.ffn_hidden_size = 192;
  model.seq_length = 40;
  model.max_position_embeddings = 40;
  model.vocab_size = 250;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

ModelConfig small_llama() {
  ModelConfig model = small_gpt();
  model.hidden_dropout = model.attention_dropout = 0;
  model.ffn_hidden_size = 128;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.group_query_attention = true;
  model.num_query_groups = 2;
  model.qk_layernorm = true;
  model.normalization = Normalization::RmsNorm;
  model.swiglu = true;
  model.disable_bias_linear = true;
  model.untie_embeddings_and_output_weights = true;
  return model;
}

struct Outcome {
  double loss = 0;
  std::map<std::string, Values> grads;  // of the local boxes, summed over the axes they are partial over
};

void fill(Batch& batch) {
  const PhiloxKey key = philox_key(6, "tokens");
  for (int64_t i = 0; i < batch.tokens.elements(); ++i) {
    const auto word = [&](uint64_t at) { return static_cast<int32_t>(philox_word(key, at) % 250); };
    batch.tokens.as<int32_t>()[i] = word(static_cast<uint64_t>(i));
    batch.labels.as<int32_t>()[i] = word(static_cast<uint64_t>(i + 1));
    batch.positions.as<int32_t>()[i] = static_cast<int32_t>(i % batch.seq_length());
    batch.loss_weight.as<float>()[i] = i % 5 == 4 ? 0.0F : 1.0F;
  }
}

struct Setting {
  DType dtype;
  int threads = 1;
  RecomputeGranularity recompute = RecomputeGranularity::None;
  bool llama = false;
};

// Forward and backward of one micro-batch on this rank's part of the model. f16 needs a loss scale: without
// one, small gradients fall below its smallest number. It is a power of two and is taken out again.
Outcome train_once(Communicator& world, const Setting& setting) {
  constexpr double kLossScale = 4096;
  const Mesh mesh(world, {{Axis::Tp, world.size()}});
  MeshConfig layout;
  layout.sequence_parallel = world.size() > 1;
  layout.recompute_granularity = setting.recompute;
  const Model model = make_model(setting.llama ? small_llama() : small_gpt(), mesh, 7, layout);
  OwnStream own(Stream::Mode::Inline, setting.threads);
  Stream& stream = own.get();
  PlainStore store(model.params, setting.dtype, stream);
  BatchBuffer batch(2, 40);
  fill(batch.batch());
  Arena keep(size_t{1} << 24), flow(size_t{1} << 24), scratch(size_t{1} << 24);
  double sums[2] = {0, 0};
  Run run{stream,
          stream,
          cpu_ops(),
          mesh,
          store,
          &store,
          &keep,
          &flow,
          scratch,
          &batch.batch(),
          setting.dtype,
          true,
          7,
          kLossScale / 64,
          {&sums[0], DType::F64, {1}},
          {&sums[1], DType::F64, {1}}};
  std::vector<Saved> saved;
  Tensor x;
  for (const Block& block : model.blocks) {
    saved.emplace_back(block.slots);
    x = block.layer->forward(run, x, saved.back());
  }
  Tensor dy;
  for (size_t i = model.blocks.size(); i-- > 0;) dy = model.blocks[i].layer->backward(run, dy, saved[i]);
  Outcome outcome;
  outcome.loss = sums[0] / sums[1];
  for (int i = 0; i < model.params.size(); ++i) {
    const ShardSpec& shard = model.params[{i}].shard;
    const Tensor grad = store.grad({i});
    if (shard.partial.has(Axis::Tp)) mesh.comm({Axis::Tp}).all_reduce(grad, Reduce::Sum, stream);
    Values values = values_of(grad);
    for (double& value : values) value /= kLossScale;
    outcome.grads[shard.name] = std::move(values);
  }
  return outcome;
}

Outcome alone(const Setting& setting) {
  Outcome outcome;
  run_ranks(1, [&](Communicator& world) { outcome = train_once(world, setting); });
  return outcome;
}

// The Euclidean length of the difference, relative to that of `expected`.
double relative_gap(const Values& got, const Values& expected) {
  double gap = 0;
  double length = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    gap += (got[i] - expected[i]) * (got[i] - expected[i]);
    length += expected[i] * expected[i];
  }
  return std::sqrt(gap / length);
}

// Units in the last place of the type, by which ~30 roundings on the way to a gradient add up.
double tolerance_of(DType dtype) { return dtype == DType::BF16 ? 0x1p-6 : 0x1p-9; }
// The same for a gradient: those of gains that all heads share are sums in which most cancels.
double tolerance_of(DType dtype, const std::string& name) {
  const bool head_norm = name.find("y_norm") != std::string::npos;
  return tolerance_of(dtype) * (head_norm ? 2 : 1);
}

class Models16 : public ::testing::TestWithParam<bool> {};

TEST_P(Models16, LossAndGradientsAreNearThoseOfF32) {
  const Outcome exact = alone({.dtype = DType::F32, .llama = GetParam()});
  EXPECT_NEAR(exact.loss, std::log(250.0), 0.1);
  for (DType dtype : {DType::BF16, DType::F16}) {
    const Outcome got = alone({.dtype = dtype, .llama = GetParam()});
    EXPECT_NEAR(got.loss, exact.loss, tolerance_of(dtype) * exact.loss / 16) << name_of(dtype);
    EXPECT_NE(got.loss, exact.loss) << "nothing was rounded";
    for (const auto& [name, values] : exact.grads)
      EXPECT_LE(relative_gap(got.grads.at(name), values), tolerance_of(dtype, name))
          << name_of(dtype) << " " << name;
  }
}

TEST_P(Models16, ThreadsChangeNoBit) {
  for (DType dtype : {DType::BF16, DType::F16}) {
    const Outcome one = alone({dtype, 1, RecomputeGranularity::None, GetParam()});
    const Outcome three = alone({dtype, 3, RecomputeGranularity::None, GetParam()});
    EXPECT_EQ(one.loss, three.loss);
    EXPECT_TRUE(one.grads == three.grads) << name_of(dtype);
  }
}

TEST_P(Models16, RecomputationChangesNoBit) {
  const Outcome kept = alone({.dtype = DType::BF16, .llama = GetParam()});
  for (RecomputeGranularity recompute : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
    const Outcome again = alone({DType::BF16, 1, recompute, GetParam()});
    EXPECT_EQ(again.loss, kept.loss);
    EXPECT_TRUE(again.grads == kept.grads);
  }
}

TEST_P(Models16, TwoTensorRanksWithSequenceParallelism) {
  const Outcome whole = alone({.dtype = DType::F32, .llama = GetParam()});
  for (DType dtype : {DType::BF16, DType::F16})
    run_ranks(2, [&](Communicator& world) {
      const Outcome part = train_once(world, {.dtype = dtype, .llama = GetParam()});
      EXPECT_NEAR(part.loss, whole.loss, tolerance_of(dtype) * whole.loss / 16);
      for (const auto& [name, values] : part.grads) {
        const Values& expected = whole.grads.at(name);
        // Whole on both ranks, or cut by rows of the vocabulary into two halves.
        const bool cut = name.find("tokens") != std::string::npos;
        if (!cut && values.size() != expected.size()) continue;
        ASSERT_EQ(values.size() * (cut ? 2 : 1), expected.size()) << name;
        const auto begin = expected.begin() + (cut ? world.rank() * static_cast<int64_t>(values.size()) : 0);
        const Values mine(begin, begin + static_cast<int64_t>(values.size()));
        EXPECT_LE(relative_gap(values, mine), tolerance_of(dtype, name)) << name;
      }
    });
}

INSTANTIATE_TEST_SUITE_P(Models, Models16, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Llama" : "Gpt"; });

}  // namespace
}  // namespace trifold::test
