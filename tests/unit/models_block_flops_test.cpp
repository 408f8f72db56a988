// BlockFlops against the matrix products that a block's layers request in a dry run.
#include <gtest/gtest.h>

#include "core/tensor.h"
#include "models/gpt.h"
#include "models/language_model.h"
#include "models/model_walk.h"
#include "nn/shapes_only.h"

namespace trifold {
namespace {

double counted = 0;  // flops asked for so far; operations are plain functions

void count(double rows, double columns, double inner) { counted += 2 * rows * columns * inner; }
void count(const Tensor& y, int64_t inner) {
  count(static_cast<double>(y.row_count()), static_cast<double>(y.last_dim()), static_cast<double>(inner));
}

// Products of queries with keys, and of probabilities with values.
void count_attention(const Attention& how, int products) {
  const double seen = how.causal ? 0.5 : 1;
  const auto heads = static_cast<double>(how.batch * how.heads);
  const auto positions = static_cast<double>(how.seq);
  count(products * seen * heads * positions, positions, static_cast<double>(how.head_dim));
}

// Operations that count instead of computing; the rest does nothing on a dry stream.
OpTable counting_ops() {
  OpTable ops = cpu_ops();
  ops.gemm = [](Stream&, Tensor c, Tensor a, bool transpose, Tensor, bool, double, double) {
    count(c, transpose ? a.row_count() : a.last_dim());
  };
  ops.affine = [](Stream&, Tensor y, Tensor x, Tensor, Tensor) { count(y, x.last_dim()); };
  ops.affine_add = [](Stream&, Tensor y, Tensor, Tensor x, Tensor, Tensor) { count(y, x.last_dim()); };
  ops.affine_gelu = [](Stream&, Tensor, Tensor z, Tensor x, Tensor, Tensor) { count(z, x.last_dim()); };
  ops.affine_backward_input = [](Stream&, Tensor dx, Tensor dy, Tensor, double) { count(dx, dy.last_dim()); };
  ops.affine_backward_gelu = [](Stream&, Tensor dz, Tensor dy, Tensor, Tensor) { count(dz, dy.last_dim()); };
  ops.affine_backward_weight = [](Stream&, Tensor dw, Tensor, Tensor dy, Tensor, bool) {
    count(dw, dy.row_count());
  };
  ops.expert_product = [](Stream&, Tensor y, Tensor x, Tensor, Tensor, bool) { count(y, x.last_dim()); };
  ops.expert_product_weight = [](Stream&, Tensor dw, Tensor dy, Tensor, Tensor, bool) {
    count(static_cast<double>(dw.dim(1)), static_cast<double>(dw.dim(2)),
          static_cast<double>(dy.row_count()));
  };
  ops.attention = [](Stream&, Tensor, Tensor, Tensor, const Attention& how) { count_attention(how, 2); };
  ops.attention_backward = [](Stream&, Tensor, Tensor, Tensor, Tensor, Tensor, const Attention& how) {
    count_attention(how, 4);
  };
  return ops;
}

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

// The counted work of each block, one after the other as a step with I and W apart runs them, or with a whole
// backward, which is counted as `input`.
std::vector<BlockFlops> walk(const Model& model, const Mesh& mesh, const ModelConfig& config, bool whole) {
  const OpTable ops = counting_ops();
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  ShapesOnly params(model.params, DType::F32);
  const Batch batch = batch_without_memory(1, config.seq_length);
  Arena keep = Arena::measuring(), flow = Arena::measuring(), scratch = Arena::measuring();
  const Tensor sum{nullptr, DType::F64, {1}};
  Run run{dry,     dry,    ops,        mesh, params, &params, keep, flow,
          scratch, &batch, DType::F32, true, 1,      1.0,     sum,  sum};
  std::vector<BlockFlops> work(model.blocks.size());
  std::vector<Saved> saved;
  const auto add = [](double& part, auto&& call) {
    counted = 0;
    const Tensor result = call();
    part += counted;
    return result;
  };
  Tensor x;
  for (size_t i = 0; i < work.size(); ++i) {
    saved.emplace_back(model.blocks[i].slots);
    x = add(work[i].forward, [&] { return model.blocks[i].layer->forward(run, x, saved[i]); });
  }
  Tensor dy;
  for (size_t i = work.size(); i-- > 0;) {
    const Layer& layer = *model.blocks[i].layer;
    if (whole) {
      dy = add(work[i].input, [&] { return layer.backward(run, dy, saved[i]); });
      continue;
    }
    dy = add(work[i].input, [&] { return layer.backward_input(run, dy, saved[i]); });
    add(work[i].weight, [&] { return layer.backward_weight(run, saved[i]), Tensor{}; });
  }
  return work;
}

void expect_counted(const ModelConfig& config, const MeshConfig& layout = {}, bool whole = false) {
  const Mesh mesh({}, {});
  const Model model = make_model(config, mesh, 1, layout);
  const std::vector<BlockFlops> work = walk(model, mesh, config, whole);
  ASSERT_EQ(work.size(), 3U);
  EXPECT_EQ(model.blocks[0].kind, BlockKind::Embedding);
  EXPECT_EQ(model.blocks[1].kind, BlockKind::Layer);
  EXPECT_EQ(model.blocks[2].kind, BlockKind::Head);
  for (size_t i = 1; i < 3; ++i) {  // the embedding has no products
    const BlockFlops& stated = model.blocks[i].parts;
    EXPECT_DOUBLE_EQ(stated.forward, work[i].forward) << "block " << i;
    if (whole) {
      EXPECT_DOUBLE_EQ(stated.input + stated.weight - stated.shared, work[i].input) << "block " << i;
      continue;
    }
    EXPECT_DOUBLE_EQ(stated.input, work[i].input) << "block " << i;
    EXPECT_DOUBLE_EQ(stated.weight, work[i].weight) << "block " << i;
  }
}

TEST(BlockFlops, OfAGptIsCausal) {
  expect_counted(small_model());
  for (const auto granularity : {RecomputeGranularity::Selective, RecomputeGranularity::Full}) {
    MeshConfig layout;
    layout.recompute_granularity = granularity;
    expect_counted(small_model(), layout);
  }
}

// A whole backward has the products of I and W, without those that both of them repeat.
TEST(BlockFlops, OfTilesCountsWhatIsComputedAgain) {
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
        expect_counted(config, layout, true);
      }
}

TEST(BlockFlops, OfALlamaHasSharedKeysAndThreeInnerProducts) {
  ModelConfig config = small_model();
  config.group_query_attention = true;
  config.num_query_groups = 2;
  config.swiglu = true;
  expect_counted(config);
}

// Those of the experts that tokens choose, however many there are, and of the router.
TEST(BlockFlops, OfExpertsIsThatOfTheChosen) {
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
TEST(BlockFlops, OfLatentAttentionIsThatOfItsLatentVectors) {
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
TEST(BlockFlops, OfABertSeesTheWholeSquare) {
  ModelConfig config = small_model();
  config.model_type = ModelType::Bert;
  expect_counted(config);
  config.bert_no_binary_head = true;
  expect_counted(config);
  MeshConfig layout;
  layout.recompute_granularity = RecomputeGranularity::Selective;
  expect_counted(config, layout);
}

TEST(BlockFlops, OfTaskHeadsIsThatOfTheirLayers) {
  ModelConfig config = small_model();
  config.model_type = ModelType::Bert;
  config.bert_head = HeadKind::Span;
  expect_counted(config);
  config.bert_head = HeadKind::Classes;
  config.class_names = {"a", "b", "c"};
  expect_counted(config);
}

}  // namespace
}  // namespace trifold
