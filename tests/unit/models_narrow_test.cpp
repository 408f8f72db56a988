// What products in 8 bits with scales of blocks move in a transformer layer: the bytes of passes that round factors, of
// the operations around the products, and of activations that are kept; counted by a walk, against sums by hand.
#include <gtest/gtest.h>

#include <string_view>

#include "models/language_model.h"
#include "models/model_walk.h"
#include "ops/counting.h"

namespace trifold::test {
namespace {

constexpr int64_t kRows = 256, kWidth = 256, kInner = 512;
constexpr double kRow = kRows;

ModelConfig layer_of(bool llama) {
  ModelConfig model;
  model.num_layers = 1;
  model.hidden_size = kWidth;
  model.num_attention_heads = 4;
  model.ffn_hidden_size = kInner;
  model.seq_length = model.max_position_embeddings.emplace(kRows);
  model.vocab_size = 64;
  model.make_vocab_size_divisible_by = 64;
  if (!llama) return model;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.normalization = Normalization::RmsNorm;
  model.swiglu = model.disable_bias_linear = true;
  return model;
}

struct Layer {
  WalkedBlock work;
  double rounded() const {
    double sum = 0;
    for (const auto* part : {&work.forward, &work.backward})
      for (const Work& each : *part) sum += each.rounded;
    return sum;
  }
  double bytes_of(std::string_view name) const {
    double sum = 0;
    for (const auto* part : {&work.forward, &work.backward})
      for (const Work& each : *part)
        if (each.name == name) sum += each.bytes;
    return sum;
  }
};

Layer walked(const ModelConfig& config, bool narrow) {
  const Mesh mesh({}, {});
  const Model model = make_model(config, mesh, 1);
  const WalkedModel work = walk_work(model, mesh, batch_without_memory(1, kRows), {DType::BF16, narrow},
                                     counting_ops(FusedOps::Rows));
  return {work.of_block(1)};
}

constexpr double scales(double columns) { return 4 * columns / 128; }  // bytes of a row
constexpr double codes(double columns) { return columns + scales(columns); }

// The four linear layers read a row of x: of two norms, attention and the activation; and of gradients.
struct Columns {
  double x[4], dy[4], weights;
};

// In products: three bytes an element for a pass over bf16, two for turning a narrow factor, none for one in the form that
// is read. Weights are rounded forward and backward.
TEST(NarrowFactors, AreRoundedByTheOperationsThatComputeThem) {
  for (const bool llama : {false, true}) {
    const double up = llama ? 2 * kInner : kInner;
    const Columns columns{{kWidth, kWidth, kWidth, kInner},
                          {3 * kWidth, kWidth, up, kWidth},
                          kWidth * (3.0 * kWidth + kWidth + up + kInner)};
    double wide = 6 * columns.weights;
    for (int i = 0; i < 4; ++i) wide += 6 * kRow * (columns.x[i] + columns.dy[i]);
    EXPECT_EQ(walked(layer_of(llama), false).rounded(), wide) << llama;
    // Only the outputs of norms, whose kernels have whole rows and no tile, are turned by products.
    const Layer narrow = walked(layer_of(llama), true);
    EXPECT_EQ(narrow.rounded(), 6 * columns.weights + 2 * kRow * 2 * kWidth) << llama;
    // One pass over what attention and products write in bf16 writes its rows and its turned form; with a bias, sums too.
    const double passed = columns.x[1] + columns.dy[0] + columns.dy[1] + columns.dy[3];
    const double summed = llama ? 0 : columns.dy[0] + columns.dy[1] + columns.dy[3];
    EXPECT_EQ(narrow.bytes_of("write_forms"), kRow * (2 * passed + 2 * codes(passed) + scales(summed)))
        << llama;
    EXPECT_EQ(narrow.bytes_of("column_sum"), 0) << llama;
  }
}

// Two codes of a byte are as large as a number of bf16: one for each product that reads them.
TEST(NarrowFactors, AreWrittenInTheFormsThatAreRead) {
  for (const bool llama : {false, true}) {
    const Layer wide = walked(layer_of(llama), false), narrow = walked(layer_of(llama), true);
    const char* norm = llama ? "rms_norm" : "layer_norm";
    EXPECT_EQ(wide.bytes_of(norm) - narrow.bytes_of(norm), 2 * kRow * (2 * kWidth - codes(kWidth)));
    const char* activation = llama ? "gated" : "gelu";
    EXPECT_EQ(wide.bytes_of(activation) - narrow.bytes_of(activation),
              kRow * (2 * kInner - 2 * codes(kInner)));
    // Kept from forward to backward: the outputs of the two norms and the turned one of the activation; attention's
    // output is kept turned too.
    const double kept = 2 * (2 * kWidth - codes(kWidth)) + 2 * kInner - codes(kInner) - codes(kWidth);
    EXPECT_NEAR(static_cast<double>(wide.work.kept) - static_cast<double>(narrow.work.kept), kRow * kept,
                2048);
    EXPECT_EQ(flops_of(wide.work.forward), flops_of(narrow.work.forward));
    EXPECT_EQ(flops_of(wide.work.backward), flops_of(narrow.work.backward));
  }
}

// Tables that count a product as parts count one of narrow factors whole.
TEST(NarrowFactors, HaveTheFlopsOfWideOnes) {
  const Mesh mesh({}, {});
  const Model model = make_model(layer_of(true), mesh, 1);
  for (const FusedOps fused : {FusedOps::None, FusedOps::Rows, FusedOps::All}) {
    const auto flops = [&](bool narrow) {
      const WalkedModel work =
          walk_work(model, mesh, batch_without_memory(1, kRows), {DType::BF16, narrow}, counting_ops(fused));
      return flops_of(work.of_block(1).forward) + flops_of(work.of_block(1).input) +
             flops_of(work.of_block(1).weight);
    };
    EXPECT_EQ(flops(true), flops(false));
  }
}

// Rows that are gathered over tensor ranks, and factors that adapters read too, stay wide.
TEST(NarrowFactors, StayWideWhereOthersReadThem) {
  ModelConfig config = layer_of(true);
  config.adapters.lora_rank = 4;
  const auto of_norms = [](const Layer& layer) {
    return layer.bytes_of("rms_norm") + layer.bytes_of("gated");
  };
  EXPECT_EQ(of_norms(walked(config, true)), of_norms(walked(config, false)));
}

}  // namespace
}  // namespace trifold::test
