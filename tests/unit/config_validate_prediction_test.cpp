// The rules of modules that predict further tokens.
#include <gtest/gtest.h>

#include "config/commands/validate.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

PretrainConfig with_modules() {
  PretrainConfig config;
  config.model.num_layers = 2;
  config.model.hidden_size = 64;
  config.model.num_attention_heads = 4;
  config.model.seq_length = 8;
  config.model.position_embedding_type = PositionEmbedding::Rope;
  config.model.mtp_num_layers = 2;
  config.batch.micro_batch_size = 2;
  config.batch.train_iters = 400;
  config.lr.lr = 1e-3;
  config.data.data_path = {"text"};
  return config;
}

TEST(PredictionRules, OneMessageForEachMistake) {
  using C = PretrainConfig;
  EXPECT_TRUE(problems(with_modules()).empty());
  struct Case {
    const char* expected;
    void (*change)(C&);
  };
  const Case cases[] = {
      {"--mtp-num-layers 4 leaves no token of --seq-length 4 to its last module: give at most 3 modules",
       [](C& c) { c.model.mtp_num_layers = c.model.seq_length = 4; }},
      {"--mtp-num-layers 5 is not possible", [](C& c) { c.model.mtp_num_layers = 5; }},
      {"because a module has no positions to add",
       [](C& c) { c.model.position_embedding_type = PositionEmbedding::LearnedAbsolute; }},
      {"because modules share the output layer", [](C& c) { c.mesh.pipeline_vocab_parts = 2; }}};
  for (const auto& [expected, change] : cases) {
    PretrainConfig config = with_modules();
    change(config);
    const std::vector<Problem> found = problems(config);
    ASSERT_EQ(found.size(), 1U) << expected;
    EXPECT_NE(text_of(found[0]).find(expected), std::string::npos) << text_of(found[0]);
  }
}

}  // namespace
}  // namespace trifold
