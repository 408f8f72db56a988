// Adapters of quantized frozen weights: the curve of a run whose frozen weights have the same values unquantized, bit by
// bit; the same curve on every mesh; exact resume; merged weights; memory as planned to the byte.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "checkpoint/reader.h"
#include "layout/checkpoint_boxes.h"
#include "models/adapters/dequantized.h"
#include "models/adapters/frozen_weights.h"
#include "models/folders/open_model.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/planned_memory.h"
#include "support/training.h"
#include "train/start/checkpoint_model.h"

namespace trifold::test {
namespace {

enum class Kind { Gpt, Llama, Experts, Latent };

// Rows of 96 and 144 elements, so that some blocks are shorter than others, and bands of rows too.
PretrainConfig base_of(Kind kind) {
  PretrainConfig config = small_run();
  set_four_steps(config);
  if (kind == Kind::Latent)
    make_latent(config.model, 10);
  else if (kind != Kind::Gpt)
    make_llama(config.model, 2);
  config.model.hidden_size = 96;
  config.model.ffn_hidden_size = 144;
  if (kind != Kind::Experts) return config;
  config.model.num_experts = 4;
  config.model.moe_ffn_hidden_size = 24;
  config.model.moe_shared_expert_intermediate_size = 16;
  return config;
}

PretrainConfig quantized(PretrainConfig config, BaseWeights type, bool dora = false) {
  AdapterConfig& adapters = config.model.adapters;
  adapters.lora_rank = 3;
  adapters.lora_alpha = 6;
  adapters.quantize_base = type;
  adapters.dora = dora;
  config.lr.lr = 0.01;
  config.lr.lr_warmup_iters = 0;
  return config;
}

PretrainConfig with_stage(PretrainConfig config, int stage) {
  config.zero.zero_stage = stage;
  config.zero.zero_min_unit_params = 1;
  return config;
}

struct AdaptedCurve {
  std::vector<double> losses, norms;
  bool operator==(const AdaptedCurve&) const = default;
};

// Trains from the weights in `from`, begun or resumed. With `values_of`, the frozen weights are set to the values that a
// run of that model would have.
AdaptedCurve adapted_curve(const PretrainConfig& config, const std::string& from,
                           LoadPart part = LoadPart::Weights, const std::string& save = "", int64_t until = 4,
                           const ModelConfig* values_of = nullptr) {
  AdaptedCurve curve;
  const auto data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    trainer.load(from, part);
    if (values_of != nullptr) {
      const ParamList& params = trainer.replica().layout().params();
      const std::vector<NamedTensor> frozen =
          stored_tensors(params, trainer.optimizer(), [&](ParamId id) { return params[id].frozen; });
      dequantized(open_weights(from), *values_of).load(frozen, FloatConversion::Allow);
    }
    while (trainer.steps_done() < until)
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        curve.losses.push_back(step.loss);
        curve.norms.push_back(step.grad_norm);
      }
    if (!save.empty()) trainer.save(save);
  });
  return curve;
}

void expect_close(const AdaptedCurve& run, const AdaptedCurve& one, const std::string& what) {
  ASSERT_EQ(run.losses.size(), one.losses.size()) << what;
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_LT(relative_error(run.losses[i], one.losses[i]), 1e-11) << what << ", step " << i + 1;
    EXPECT_LT(relative_error(run.norms[i], one.norms[i]), 1e-10) << what << ", norm of step " << i + 1;
  }
}

class QuantizedBase : public ::testing::TestWithParam<std::tuple<Kind, BaseWeights, bool>> {};

TEST_P(QuantizedBase, HasTheCurveOfItsValues) {
  const auto [kind, type, dora] = GetParam();
  const TempDir folder;
  const PretrainConfig base = base_of(kind);
  train(base, 2, "", folder.file("base"));
  const PretrainConfig config = quantized(base, type, dora);
  const AdaptedCurve curve = adapted_curve(config, folder.file("base"));
  EXPECT_LT(curve.losses.back(), curve.losses.front());
  PretrainConfig plain = config;
  plain.model.adapters.quantize_base = BaseWeights::AsRun;
  EXPECT_NE(adapted_curve(plain, folder.file("base")).losses, curve.losses);
  if (dora) return;  // magnitudes begin as the norms of the weights, which are not those of the values
  EXPECT_EQ(adapted_curve(plain, folder.file("base"), LoadPart::Weights, "", 4, &config.model), curve);
}

TEST_P(QuantizedBase, HasTheCurveOfOneRankOnEveryMesh) {
  const auto [kind, type, dora] = GetParam();
  const TempDir folder;
  const PretrainConfig base = base_of(kind);
  train(base, 2, "", folder.file("base"));
  const PretrainConfig config = quantized(base, type, dora);
  const AdaptedCurve one = adapted_curve(config, folder.file("base"));
  const auto expect_same = [&](const PretrainConfig& mesh, const char* what) {
    expect_close(adapted_curve(mesh, folder.file("base")), one, what);
  };
  expect_same(with_stage(on_mesh(config, 2), 3), "ZeRO 3");
  expect_same(with_stage(on_mesh(config, 2), 1), "ZeRO 1");
  PretrainConfig sequence = on_mesh(config, 1, 2);
  sequence.mesh.sequence_parallel = true;
  expect_same(sequence, "tp 2");
  PretrainConfig all = with_stage(on_mesh(config, 2, 2, 2), 3);
  all.mesh.sequence_parallel = true;
  expect_same(all, "tp 2, pp 2, dp 2, ZeRO 3");
  expect_same(scheduled(on_mesh(config, 1, 1, 2), "zb-v"), "zb-v");
  if (kind == Kind::Gpt || kind == Kind::Llama) {
    expect_same(on_mesh(config, 1, 4), "tp 4");
    expect_same(on_mesh(config, 1, 1, 1, 2), "cp 2");
    PretrainConfig full = on_mesh(config, 1, 1, 2);
    full.mesh.recompute_granularity = RecomputeGranularity::Full;
    expect_same(full, "recomputed");
  }
  if (kind == Kind::Experts) {
    PretrainConfig shared = with_stage(on_mesh(config, 4), 3);
    shared.mesh.expert_model_parallel_size = 2;
    expect_same(shared, "ep 2, ZeRO 3");
    sequence.mesh.expert_tensor_parallel_size = 2;
    expect_same(sequence, "etp 2");
  }
}

using QuantizedCase = std::tuple<Kind, BaseWeights, bool>;
const QuantizedCase kQuantizedCases[] = {{Kind::Gpt, BaseWeights::Nf4, false},
                                         {Kind::Llama, BaseWeights::Nf4, false},
                                         {Kind::Llama, BaseWeights::Int8, true},
                                         {Kind::Experts, BaseWeights::Nf4, false},
                                         {Kind::Latent, BaseWeights::Int8, false}};
constexpr std::array kNamesOfKinds = {"Gpt", "Llama", "Experts", "Latent"};

INSTANTIATE_TEST_SUITE_P(Models, QuantizedBase, ::testing::ValuesIn(kQuantizedCases), [](const auto& test) {
  return std::string(kNamesOfKinds.at(static_cast<size_t>(std::get<0>(test.param)))) +
         (std::get<1>(test.param) == BaseWeights::Nf4 ? "Nf4" : "Int8") +
         (std::get<2>(test.param) ? "WithMagnitudes" : "");
});

// f32 and bf16; the adapters alone are saved, and the frozen weights are quantized anew from the same file.
TEST(QuantizedCheckpoints, ResumeExactly) {
  for (const bool bf16 : {false, true}) {
    const TempDir folder;
    PretrainConfig base = base_of(Kind::Llama);
    base.precision.f64 = false;
    base.precision.bf16 = bf16;
    train(base, 2, "", folder.file("base"));
    const PretrainConfig config = with_stage(on_mesh(quantized(base, BaseWeights::Nf4), 2, 2), 3);
    const AdaptedCurve whole = adapted_curve(config, folder.file("base"));
    adapted_curve(config, folder.file("base"), LoadPart::Weights, folder.file("saved"), 2);
    const AdaptedCurve rest = adapted_curve(config, folder.file("saved"), LoadPart::All);
    ASSERT_EQ(rest.losses.size(), 2U);
    EXPECT_EQ(rest.losses[0], whole.losses[2]);
    EXPECT_EQ(rest.losses[1], whole.losses[3]);
    const CheckpointReader saved(folder.file("saved"));
    for (const TensorInfo& tensor : saved.tensors())
      EXPECT_NE(tensor.name.find(".lora_"), std::string::npos) << tensor.name;
    const AdaptedCurve elsewhere =
        adapted_curve(quantized(base, BaseWeights::Nf4), folder.file("saved"), LoadPart::All);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_LT(relative_error(elsewhere.losses[i], rest.losses[i]), bf16 ? 2e-2 : 1e-5);

    // Other frozen weights would not be the run's.
    PretrainConfig other = config;
    other.model.adapters.quantize_base = BaseWeights::Int8;
    EXPECT_THROW(adapted_curve(other, folder.file("saved"), LoadPart::All), Error);
  }
}

std::vector<double> values_of(CheckpointReader& reader, const std::string& name, const Rect& box) {
  std::vector<double> values(static_cast<size_t>(box.elements()));
  NamedTensor tensor;
  tensor.spec.name = name;
  tensor.spec.global = reader.find(name)->global;
  tensor.spec.local = box;
  tensor.data = {values.data(), DType::F64, box.extent};
  reader.load({&tensor, 1}, FloatConversion::Allow);
  return values;
}

// The merged model of adapters that are zeros has the values with which the run computes; so has every part of it.
TEST(QuantizedMerge, HasTheValuesOfTheRun) {
  const TempDir folder;
  PretrainConfig base = base_of(Kind::Experts);
  train(base, 2, "", folder.file("base"));
  const PretrainConfig config = quantized(base, BaseWeights::Nf4);
  adapted_curve(config, folder.file("base"), LoadPart::Weights, folder.file("saved"), 0);
  CheckpointReader plain(folder.file("base"));
  CheckpointReader merge = merged(open_weights(folder.file("saved")));
  for (const auto& [name, part] : std::vector<std::pair<std::string, Rect>>{
           {"param/block.0.attention.query.weight", {{70, 30}, {5, 60}}},
           {"param/block.0.attention.out.weight", {{60, 5}, {20, 3}}},
           {"param/block.0.mlp.experts.down.weight", {{1, 60, 7}, {2, 10, 9}}},
           {"param/block.0.mlp.experts.up.weight", {{1, 1, 3, 60}, {2, 1, 9, 30}}}}) {
    ASSERT_NE(plain.find(name), nullptr) << name;
    const Shape& global = plain.find(name)->global;
    const auto all = values_of(merge, name, Rect::whole(global));
    const auto before = values_of(plain, name, Rect::whole(global));
    EXPECT_NE(all, before) << name;
    EXPECT_LT(relative_error(all, before), 0.5) << name;
    std::vector<double> expected(static_cast<size_t>(part.elements()));
    copy_rect(expected.data(), part, all.data(), Rect::whole(global), part, sizeof(double));
    EXPECT_EQ(values_of(merge, name, part), expected) << name;
  }
}

// What evaluates and generates reads the same bits as what trains, on any mesh.
TEST(QuantizedWeights, AreReadAsTheyAreTrained) {
  const TempDir folder;
  const PretrainConfig base = base_of(Kind::Llama);
  train(base, 2, "", folder.file("base"));
  const PretrainConfig config = quantized(base, BaseWeights::Int8);
  adapted_curve(config, folder.file("base"), LoadPart::Weights, folder.file("saved"), 2);
  const auto data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    trainer.load(folder.file("saved"));
    Replica replica(world, config.mesh, config.model, DType::F64, 5);
    load_weights(replica, folder.file("saved"));
    const ParamList& params = replica.layout().params();
    int quantized = 0;
    for (int i = 0; i < params.size(); ++i) {
      const Tensor here = replica.weights().weight({i}), there = trainer.replica().weights().weight({i});
      ASSERT_EQ(here.bytes(), there.bytes());
      EXPECT_EQ(std::memcmp(here.data, there.data, here.bytes()), 0) << params[{i}].shard.name;
      quantized += here.dtype == DType::U8 ? 1 : 0;
    }
    EXPECT_EQ(quantized, 10);  // queries, keys with values, the output, gate with up, and down, of two layers
  });
}

TEST(QuantizedMemory, IsAsPlanned) {
  for (const bool bf16 : {false, true})
    for (int stage = 0; stage <= 3; ++stage) {
      PretrainConfig config =
          with_stage(on_mesh(quantized(base_of(Kind::Llama), BaseWeights::Nf4), 2, 2, 2), stage);
      config.precision.f64 = false;
      config.precision.bf16 = bf16;
      compare_with_plan(config, expect_planned_memory);
    }
  compare_with_plan(quantized(base_of(Kind::Experts), BaseWeights::Int8), expect_planned_memory);
}

// 4.25 and 8.25 bits for an element of rows whose blocks are full, beside 16.
TEST(QuantizedMemory, IsThatOfTheCodesAndScales) {
  PretrainConfig config = base_of(Kind::Llama);
  config.model.hidden_size = 128;
  config.model.ffn_hidden_size = 256;
  config.precision.f64 = false;
  config.precision.bf16 = true;
  const auto bytes = [&](BaseWeights type) {
    return static_cast<double>(plan_of(quantized(config, type)).memory[0].parameters);
  };
  const double elements = 2 * (128 * 128 + 2 * 64 * 128 + 128 * 128 + 3 * 128 * 256);
  EXPECT_NEAR(bytes(BaseWeights::AsRun) - bytes(BaseWeights::Nf4), elements * (16 - 4.25) / 8, 8 * 256);
  EXPECT_NEAR(bytes(BaseWeights::AsRun) - bytes(BaseWeights::Int8), elements * (16 - 8.25) / 8, 8 * 256);
}

}  // namespace
}  // namespace trifold::test
