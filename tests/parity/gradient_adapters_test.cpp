// Blocks whose linear layers have low-rank adapters against central finite differences in f64, on one rank and on two, with
// and without sequence parallelism: the gradients of the input and of all that is trained.
#include <gtest/gtest.h>

#include <tuple>

#include "config/fields/model_config.h"
#include "nn/recompute.h"
#include "parity/gradient_cases.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

constexpr MeshCase kAdapterMeshes[] = {{"OneRank", 1, false}, {"Tp2", 2, false}, {"Tp2Sequence", 2, true}};

struct AdapterCase {
  const char* name;
  AdapterConfig adapters;
  TransformerShape shape;
  bool recompute = false;
};

AdapterConfig adapters_of_rank(int64_t rank, std::vector<std::string> targets = {}, double dropout = 0) {
  AdapterConfig adapters;
  adapters.lora_rank = rank;
  adapters.lora_alpha = 1.5;
  adapters.lora_dropout = dropout;
  adapters.lora_targets = std::move(targets);
  return adapters;
}

AdapterConfig with_magnitudes(AdapterConfig adapters) {
  adapters.dora = true;
  return adapters;
}

AdapterConfig with_quantized(BaseWeights type, AdapterConfig adapters) {
  adapters.quantize_base = type;
  return adapters;
}

TransformerShape with_norms_of_heads() {
  TransformerShape shape = llama_shape(2);
  shape.head_norm = true;
  return shape;
}

// One adapter for each part, for a packed layer, for some layers; dropout; key heads that two ranks share; norms and
// rotations between the adapter and the heads; recomputation.
std::vector<AdapterCase> adapter_cases() {
  AdapterConfig stabilized = adapters_of_rank(4);
  stabilized.lora_scaling = LoraScaling::RankStabilized;
  return {
      {"Block", adapters_of_rank(2), block_shape(0.2)},
      {"PackedLayer", adapters_of_rank(3, {"qkv", "mlp.down"}), block_shape(0.0)},
      {"Llama", adapters_of_rank(2), llama_shape(2)},
      {"SharedKeys", stabilized, llama_shape(1)},
      {"NormsOfHeads", adapters_of_rank(2), with_norms_of_heads()},
      {"GateAndUp", adapters_of_rank(2, {"gate_up", "block.attention.value"}), llama_shape(4)},
      {"Dropout", adapters_of_rank(2, {}, 0.3), llama_shape(2)},
      {"Selective", adapters_of_rank(2, {}, 0.3), llama_shape(2, true)},
      {"Recompute", adapters_of_rank(2, {}, 0.3), block_shape(0.2), true},
      {"Nf4", with_quantized(BaseWeights::Nf4, adapters_of_rank(2, {}, 0.3)), block_shape(0.2)},
      {"Int8OfLlama", with_quantized(BaseWeights::Int8, adapters_of_rank(2)), llama_shape(2)},
      {"Nf4Recomputed", with_quantized(BaseWeights::Nf4, adapters_of_rank(2, {"query", "gate_up"})),
       llama_shape(1), true},
      {"Nf4WithMagnitudes", with_quantized(BaseWeights::Nf4, with_magnitudes(adapters_of_rank(2))),
       llama_shape(2)},
      {"Magnitudes", with_magnitudes(adapters_of_rank(2)), block_shape(0.2)},
      {"MagnitudesOfLlama", with_magnitudes(adapters_of_rank(2)), llama_shape(2)},
      {"MagnitudesOfSomeParts", with_magnitudes(adapters_of_rank(2, {"key", "gate", "o_proj"})),
       llama_shape(1)},
      {"MagnitudesOfPackedLayer", with_magnitudes(adapters_of_rank(2, {"c_attn", "c_proj"})),
       block_shape(0.0, true)},
      {"SomeLayers", adapters_of_rank(2, {"q_proj", "v_proj"}), llama_shape(2)},
      {"SomeLayersSelective", adapters_of_rank(2, {"attention.out"}), llama_shape(2, true)},
      {"SomeLayersOfABlockWithBiases", adapters_of_rank(2, {"mlp.up"}), block_shape(0.2)},
      {"Latent", adapters_of_rank(2), latent_shape(6)},
      {"LatentDropout", adapters_of_rank(2, {}, 0.3), latent_shape(6, true)},
      {"LatentWithoutQueryRank", adapters_of_rank(2, {"kv_a_proj_with_mqa", "q_proj"}), latent_shape(0)},
      {"LatentOfUps", adapters_of_rank(2, {"q_b_proj", "kv_b_proj"}), latent_shape(6), true},
      {"LatentMagnitudes", with_magnitudes(adapters_of_rank(2)), latent_shape(6)},
      {"MagnitudesWithDropout", with_magnitudes(adapters_of_rank(2, {}, 0.3)), llama_shape(2)},
      {"MagnitudesRecomputed", with_magnitudes(adapters_of_rank(2)), with_norms_of_heads(), true},
  };
}

class Adapters : public ::testing::TestWithParam<std::tuple<size_t, MeshCase>> {};

TEST_P(Adapters, AgreeWithFiniteDifferences) {
  const AdapterCase c = adapter_cases()[std::get<0>(GetParam())];
  const MeshCase& mesh = std::get<1>(GetParam());
  GradientCase gradients;
  gradients.layer = c.name;
  gradients.make = [&](BlockBuilder& builder) -> std::unique_ptr<Layer> {
    builder.adapt(&c.adapters);
    std::unique_ptr<Layer> block = transformer(builder, c.shape);
    if (c.recompute) block = std::make_unique<Recompute>(builder, std::move(block));
    return block;
  };
  gradients.input = gradients.output = stream(kWidth);
  // The norms by which magnitudes are divided count as constants.
  if (c.adapters.dora) gradients.defined_otherwise = ".lora_";
  run_ranks(mesh.tp, [&](Communicator& world) { GradientCheck(gradients, mesh, world).run(); });
}

INSTANTIATE_TEST_SUITE_P(Gradients, Adapters,
                         ::testing::Combine(::testing::Range(size_t{0}, adapter_cases().size()),
                                            ::testing::ValuesIn(kAdapterMeshes)),
                         [](const auto& test) {
                           return std::string(adapter_cases()[std::get<0>(test.param)].name) +
                                  std::get<1>(test.param).name;
                         });

// Builds a block and returns its parameters.
ParamList parameters_of(const AdapterConfig& adapters, const TransformerShape& shape) {
  ParamList params;
  ReportList reports;
  const Mesh mesh{MeshSizes(), MeshCoords()};
  BlockBuilder builder(params, reports, mesh, 0, 1);
  builder.adapt(&adapters);
  transformer(builder, shape);
  return params;
}

TEST(AdaptersOfABlock, AreTheOnlyTrainedParameters) {
  const AdapterConfig adapters = adapters_of_rank(2, {"q_proj", "block.attention.value"});
  const ParamList params = parameters_of(adapters, llama_shape(2));
  std::vector<std::string> trained;
  for (const ParamSpec& spec : params.specs())
    if (!spec.frozen) trained.push_back(spec.shard.name);
  EXPECT_EQ(trained,
            (std::vector<std::string>{"block.attention.query.lora_a", "block.attention.query.lora_b",
                                      "block.attention.value.lora_a", "block.attention.value.lora_b"}));
  EXPECT_TRUE(params[params.find("block.norm1.gain")].frozen);
}

}  // namespace
}  // namespace trifold::test
