// Work that a walk counts, against the stated flops.
#include <gtest/gtest.h>

#include "models/model_walk.h"
#include "models/gpt.h"
#include "models/language_model.h"
#include "ops/counting.h"

namespace trifold {
namespace {

TEST(ModelWalk, Try) {
  ModelConfig config;
  config.num_layers = 2;
  config.hidden_size = 24;
  config.num_attention_heads = 4;
  config.seq_length = 20;
  config.max_position_embeddings = 20;
  config.ffn_hidden_size = 40;
  config.vocab_size = 130;
  const Mesh mesh({}, {});
  const Model model = make_model(config, mesh, 1);
  const WalkedModel work = walk_work(model, mesh, batch_without_memory(1, 20), DType::F32, counting_ops(FusedOps::None));
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const WalkedBlock& block = work.of_block(i);
    for (const auto& [name, list] : {std::pair{"F", &block.forward}, std::pair{"I", &block.input}, std::pair{"W", &block.weight}, std::pair{"B", &block.backward}})
      for (const Work& each : *list)
        printf("%zu %s %s %s %g x %g x %g * %g flops %g bytes %g stream %d\n", i, name, each.name, to_string(each.result).c_str(), each.rows, each.columns, each.inner, each.batch, each.flops, each.bytes, each.stream);
    if (model.blocks[i].kind == BlockKind::Embedding) continue;
    EXPECT_EQ(flops_of(block.forward), model.blocks[i].parts.forward);
    EXPECT_EQ(flops_of(block.input), model.blocks[i].parts.input);
    EXPECT_EQ(flops_of(block.weight), model.blocks[i].parts.weight);
  }
}

}  // namespace
}  // namespace trifold
