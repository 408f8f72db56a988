// What a walk counts: flops against the formulas of the models, and what is written down besides.
#include "models/model_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "config/subjects/model_family.h"
#include "models/gpt.h"
#include "models/language_model.h"
#include "ops/counting.h"

namespace trifold {
namespace {

ModelConfig small_model() {
  ModelConfig config;
  config.num_layers = 1;
  config.hidden_size = 24;
  config.num_attention_heads = 4;
  config.seq_length = 20;
  config.max_position_embeddings = 20;
  config.ffn_hidden_size = 40;
  config.vocab_size = 130;
  return config;
}

// ---- Flops of one sample by formula ----

struct Flops {
  double forward = 0, input = 0, weight = 0;
  double shared = 0;  // of input and weight, what a whole backward does once
};

// Weights of the products around attention.
double attention_weights(const ModelConfig& config) {
  const auto c = static_cast<double>(config.hidden_size);
  const auto heads = static_cast<double>(config.num_attention_heads);
  if (!config.multi_latent_attention) {
    const double query = heads * static_cast<double>(head_width(config));
    const auto key_value = static_cast<double>(2 * key_heads(config) * head_width(config));
    return c * (2 * query + key_value);
  }
  const auto rank = static_cast<double>(config.kv_lora_rank);
  const double queries = heads * static_cast<double>(key_width(config));
  const double of_queries =
      config.q_lora_rank ? static_cast<double>(*config.q_lora_rank) * (c + queries) : c * queries;
  return of_queries + c * (rank + static_cast<double>(config.qk_pos_emb_head_dim)) +
         rank * heads * static_cast<double>(config.qk_head_dim + config.v_head_dim) +
         heads * static_cast<double>(config.v_head_dim) * c;
}

Flops flops_of_layer(const ModelConfig& config, const MeshConfig& layout) {
  const auto t = static_cast<double>(config.seq_length);
  const auto c = static_cast<double>(config.hidden_size);
  const auto f = static_cast<double>(config.num_experts ? expert_width(config) : inner_width(config));
  const auto networks = static_cast<double>(config.num_experts ? config.moe_router_topk : 1);  // of a token
  const auto shared = static_cast<double>(config.moe_shared_expert_intermediate_size.value_or(0));
  // Logits of a token: of the router, and the gate of the shared network.
  const auto router =
      static_cast<double>(config.num_experts.value_or(0) + (config.moe_shared_expert_gate ? 1 : 0));
  const double mlp = config.swiglu ? 3 : 2;
  const double seen = family_of_model(config).causal ? 0.5 : 1;
  const double projections =
      2 * t * (attention_weights(config) + mlp * c * (networks * f + shared) + c * router);
  // Queries with keys, probabilities with values.
  const double attention =
      seen * 2 * t * t *
      static_cast<double>(config.num_attention_heads * (key_width(config) + value_width(config)));
  Flops flops{projections + attention, projections + 2 * attention, projections};
  // Selective recomputation repeats norms and activations, no products.
  if (layout.recompute_granularity == RecomputeGranularity::Full) flops.input += flops.forward;
  if (layout.tiled_mlp == 1) return flops;
  // Both parts of a tiled network's backward need the first product again, and the gradient of its result.
  const double second = 2 * t * c * f;
  const double first = (mlp - 1) * second;
  flops.input += first;
  flops.shared = first + second;
  flops.weight += flops.shared;
  // A layer that is repeated leaves out its tiled network, of which it keeps the input alone, unless a norm reads the sum.
  if (layout.recompute_granularity == RecomputeGranularity::Full && !normalizes_sums(config))
    flops.input -= first + second;
  return flops;
}

double vocabulary_flops(const ModelConfig& config) {
  return 2 * static_cast<double>(config.seq_length * config.hidden_size * padded_vocab_size(config, 1));
}

// The loss computes the gradients of its logits in forward. BERT has a dense layer before it, and a pooler and a
// classifier on one row of a sample; the heads of tasks have these, or two columns.
Flops flops_of_head(const ModelConfig& config) {
  if (config.model_type == ModelType::Gpt) return {3 * vocabulary_flops(config), 0, 0};
  const auto c = static_cast<double>(config.hidden_size);
  const auto rows = static_cast<double>(config.seq_length);
  const auto layer = [](double each) { return Flops{each, each, each}; };
  const auto pooled = [&](double classes) { return 2 * c * c + 2 * c * classes; };
  if (config.bert_head == HeadKind::Classes)
    return layer(pooled(static_cast<double>(config.class_names.size())));
  if (config.bert_head == HeadKind::Span) return layer(2 * rows * c * 2);
  Flops flops = layer(2 * rows * c * c + (config.bert_no_binary_head ? 0 : pooled(2)));
  flops.forward += 3 * vocabulary_flops(config);
  return flops;
}

// ---- Walks ----

WalkedModel walk(const Model& model, const Mesh& mesh, const ModelConfig& config,
                 FusedOps fused = FusedOps::All) {
  return walk_work(model, mesh, batch_without_memory(1, config.seq_length), DType::F32, counting_ops(fused));
}

void expect_flops(const Flops& stated, const WalkedBlock& walked) {
  EXPECT_EQ(stated.forward, flops_of(walked.forward));
  EXPECT_EQ(stated.input, flops_of(walked.input));
  EXPECT_EQ(stated.weight, flops_of(walked.weight));
  EXPECT_EQ(stated.input + stated.weight - stated.shared, flops_of(walked.backward));
}

void expect_counted(const ModelConfig& config, const MeshConfig& layout = {}) {
  const Mesh mesh({}, {});
  const Model model = make_model(config, mesh, 1, layout);
  for (const FusedOps fused : {FusedOps::None, FusedOps::Rows, FusedOps::All}) {
    const WalkedModel work = walk(model, mesh, config, fused);
    ASSERT_EQ(work.blocks(), 3U);
    expect_flops({}, work.of_block(0));  // the embedding has no products
    expect_flops(flops_of_layer(config, layout), work.of_block(1));
    expect_flops(flops_of_head(config), work.of_block(2));
  }
}

TEST(ModelWalk, FlopsOfAGptIsCausal) {
  expect_counted(small_model());
  for (const auto granularity : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
    MeshConfig layout;
    layout.recompute_granularity = granularity;
    expect_counted(small_model(), layout);
  }
}

// A whole backward has the products of I and W, without those that both of them repeat.
TEST(ModelWalk, FlopsOfTilesCountsWhatIsComputedAgain) {
  for (const auto type : {ModelType::Gpt, ModelType::Bert})
    for (const bool gated : {false, true})
      for (const auto granularity :
           {RecomputeGranularity::None, RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
        ModelConfig config = small_model();
        config.model_type = type;
        config.swiglu = gated && type == ModelType::Gpt;
        MeshConfig layout;
        layout.tiled_mlp = 3;
        layout.recompute_granularity = granularity;
        expect_counted(config, layout);
      }
}

TEST(ModelWalk, FlopsOfALlamaHasSharedKeysAndThreeInnerProducts) {
  ModelConfig config = small_model();
  config.group_query_attention = true;
  config.num_query_groups = 2;
  config.swiglu = true;
  expect_counted(config);
}

// Those of the experts that tokens choose, however many there are, and of the router.
TEST(ModelWalk, FlopsOfExpertsIsThatOfTheChosen) {
  ModelConfig config = small_model();
  config.swiglu = config.disable_bias_linear = true;
  config.num_experts = 9;
  config.moe_router_topk = 3;
  expect_counted(config);
  config.moe_ffn_hidden_size = 16;
  config.moe_shared_expert_intermediate_size = 28;
  MeshConfig layout;
  layout.recompute_granularity = RecomputeGranularity::Full;
  expect_counted(config, layout);
  config.moe_shared_expert_gate = true;
  expect_counted(config);
}

// Products with latent vectors; of attention, those of keys and of values without the zeros behind them.
TEST(ModelWalk, FlopsOfLatentAttentionIsThatOfItsLatentVectors) {
  ModelConfig config = small_model();
  config.multi_latent_attention = config.disable_bias_linear = true;
  config.position_embedding_type = PositionEmbedding::Rope;
  config.kv_lora_rank = 12;
  config.qk_head_dim = 10;
  config.qk_pos_emb_head_dim = 6;
  config.v_head_dim = 16;  // as wide as keys, so that nothing is padded
  expect_counted(config);
  config.q_lora_rank = 20;
  MeshConfig layout;
  layout.recompute_granularity = RecomputeGranularity::Full;
  expect_counted(config, layout);
}

// Every position sees every other one: twice the attention of a causal model.
TEST(ModelWalk, FlopsOfABertSeesTheWholeSquare) {
  ModelConfig config = small_model();
  config.model_type = ModelType::Bert;
  expect_counted(config);
  config.bert_no_binary_head = true;
  expect_counted(config);
  MeshConfig layout;
  layout.recompute_granularity = RecomputeGranularity::Selective;
  expect_counted(config, layout);
}

TEST(ModelWalk, FlopsOfTaskHeadsIsThatOfTheirLayers) {
  ModelConfig config = small_model();
  config.model_type = ModelType::Bert;
  config.bert_head = HeadKind::Span;
  expect_counted(config);
  config.bert_head = HeadKind::Classes;
  config.class_names = {"a", "b", "c"};
  expect_counted(config);
}

// Values are as wide as keys for the operation; the zeros behind them are no flops.
TEST(ModelWalk, PaddingOfValuesDoesNotCount) {
  ModelConfig config = small_model();
  config.multi_latent_attention = config.disable_bias_linear = true;
  config.position_embedding_type = PositionEmbedding::Rope;
  config.kv_lora_rank = 12;
  config.qk_head_dim = 10;
  config.qk_pos_emb_head_dim = 6;
  config.v_head_dim = 8;
  expect_counted(config);
}

TEST(ModelWalk, FlopsOfASampleCountNoMesh) {
  ModelConfig config = small_model();
  config.num_layers = 3;
  const SampleFlops flops = sample_flops(config, 1);
  const Flops layer = flops_of_layer(config, {});
  EXPECT_EQ(flops.layers, std::vector<double>(3, layer.forward + layer.input + layer.weight));
  EXPECT_EQ(flops.head, 3 * vocabulary_flops(config));
  EXPECT_EQ(flops.all(), 3 * flops.layers[0] + flops.head);
  // Two tensor ranks pad the vocabulary of 130 to 256 tokens, as one does; 64 pad it further.
  EXPECT_GT(sample_flops(config, 64).head, flops.head);
}

TEST(ModelWalk, FlopsOfASampleCountEachLayerAsItIs) {
  ModelConfig mixed = small_model();
  mixed.num_layers = 3;
  const double dense = sample_flops(mixed, 1).layers[0];
  mixed.num_experts = 4;
  mixed.disable_bias_linear = true;
  const double experts = sample_flops(mixed, 1).layers[0];
  mixed.moe_layer_freq = "[0]*1+[1]*2";
  const std::vector<double> layers = sample_flops(mixed, 1).layers;
  ASSERT_EQ(layers.size(), 3U);
  EXPECT_NE(dense, experts);
  EXPECT_EQ(layers[1], experts);
  EXPECT_EQ(layers[2], experts);
  mixed.moe_layer_freq = "[0]*3";
  EXPECT_EQ(sample_flops(mixed, 1).layers, std::vector<double>(3, layers[0]));
}

// Of 20 x 20 scores a window of 5 keys leaves 5 for each query but the first four: 90.
TEST(ModelWalk, FlopsOfAWindowIsThatOfItsKeys) {
  ModelConfig config = small_model();
  config.num_layers = 2;
  const double causal = sample_flops(config, 1).layers[0];
  const double of_scores =
      3 * 2 * static_cast<double>(config.num_attention_heads * (key_width(config) + value_width(config)));
  config.window_size = WindowSize{4, 0};
  config.window_attn_skip_freq = "2";
  const std::vector<double> layers = sample_flops(config, 1).layers;
  EXPECT_DOUBLE_EQ(layers[0], causal - of_scores * (200 - 90));
  EXPECT_EQ(layers[1], causal);
}

// Blocks that are alike are walked once.
TEST(ModelWalk, LayersThatAreAlikeShareAWalk) {
  ModelConfig config = small_model();
  config.num_layers = 4;
  const Mesh mesh({}, {});
  const Model model = make_model(config, mesh, 1);
  const WalkedModel work = walk(model, mesh, config);
  EXPECT_EQ(&work.of_block(1), &work.of_block(4));
  EXPECT_NE(&work.of_block(0), &work.of_block(1));
}

// Records of one kind of collective of a list: how often, and the bytes sent.
std::pair<double, double> sent_over(const std::vector<Work>& list, AxisSet axes, std::string_view name) {
  std::pair<double, double> sum{0, 0};
  for (const Work& work : list)
    if (work.kind == Work::Kind::Collective && work.group == axes.bits() && name == work.name) {
      sum.first += work.times;
      sum.second += work.times * work.sent;
    }
  return sum;
}

// Two sums over the tensor axis in each direction; under sequence parallelism each is a gather and a scatter, and the
// inputs of both column-parallel layers are gathered once more.
TEST(ModelWalk, TensorRanksSumActivations) {
  const ModelConfig config = small_model();
  const Mesh mesh({{Axis::Tp, 2}}, {});
  MeshConfig layout;
  layout.tensor_model_parallel_size = 2;
  const double whole = 4.0 * 20 * 24;  // bytes of an activation
  using Sum = std::pair<double, double>;
  {
    const WalkedModel work = walk(make_model(config, mesh, 1, layout), mesh, config);
    EXPECT_EQ(sent_over(work.of_block(1).forward, {Axis::Tp}, "all_reduce"), Sum(2, 2 * whole));
    EXPECT_EQ(sent_over(work.of_block(1).input, {Axis::Tp}, "all_reduce"), Sum(2, 2 * whole));
    EXPECT_EQ(sent_over(work.of_block(1).weight, {Axis::Tp}, "all_reduce"), Sum(0, 0));
  }
  layout.sequence_parallel = true;
  const WalkedModel work = walk(make_model(config, mesh, 1, layout), mesh, config);
  EXPECT_EQ(sent_over(work.of_block(1).forward, {Axis::Tp}, "all_gather"), Sum(2, whole));
  EXPECT_EQ(sent_over(work.of_block(1).forward, {Axis::Tp}, "reduce_scatter"), Sum(2, whole));
  EXPECT_EQ(sent_over(work.of_block(1).weight, {Axis::Tp}, "all_gather"), Sum(2, whole));
}

// The busiest rank gets `load` times the rows, in as many rounds as there is memory for.
TEST(ModelWalk, RowsOfExpertsFollowTheLoad) {
  ModelConfig config = small_model();
  config.swiglu = config.disable_bias_linear = true;
  config.num_experts = 8;
  config.moe_router_topk = 2;
  const Mesh mesh({{Axis::Dp, 4}, {Axis::Ep, 4}}, {});
  MeshConfig layout;
  layout.data_parallel_size = layout.expert_model_parallel_size = 4;
  const auto forward = [&](double load) {
    const Model model = make_model(config, mesh, 1, layout);
    return walk_work(model, mesh, batch_without_memory(1, config.seq_length), DType::F32,
                     counting_ops(FusedOps::All), load)
        .of_block(1)
        .forward;
  };
  const auto rows_of = [](const std::vector<Work>& list) {
    double rows = 0;
    for (const Work& work : list)
      if (std::string_view(work.name) == "expert_product") rows += work.times * work.batch * work.rows;
    return rows / 2;  // of two products
  };
  EXPECT_EQ(rows_of(forward(1)), 40);
  EXPECT_EQ(rows_of(forward(1.5)), 60);
  // Rows to experts, gates with them, and outputs back: of the 40 rows that a rank has, 30 go to others.
  const double row = 4 * 24;
  EXPECT_EQ(sent_over(forward(1), kExpertShareAxes, "all_to_all").second, 2 * 30 * row + 30 * 4);
  EXPECT_GT(sent_over(forward(1.5), kExpertShareAxes, "all_to_all").second, 1.4 * 2 * 30 * row);
  layout.moe_buffer_factor = 1;
  EXPECT_EQ(sent_over(forward(1), kExpertShareAxes, "all_to_all").first, 3);
  EXPECT_EQ(sent_over(forward(1.5), kExpertShareAxes, "all_to_all").first, 6);
  EXPECT_EQ(rows_of(forward(1.5)), 60);
}

// The loss of a vocabulary goes over its rows in chunks, of which one is walked.
TEST(ModelWalk, ChunksOfTheLossCountInFull) {
  ModelConfig config = small_model();
  config.seq_length = config.max_position_embeddings.emplace(4000);
  config.vocab_size = 50000;
  const Mesh mesh({}, {});
  const WalkedModel work = walk(make_model(config, mesh, 1), mesh, config);
  const std::vector<Work>& forward = work.of_block(2).forward;
  EXPECT_EQ(flops_of(forward), 3 * vocabulary_flops(config));
  EXPECT_TRUE(std::any_of(forward.begin(), forward.end(), [](const Work& each) { return each.times > 1; }));
  EXPECT_LT(forward.size(), 40U);
}

}  // namespace
}  // namespace trifold
