// Which layers have experts, as Megatron-LM writes it.
#include "config/fields/layer_pattern.h"

#include <gtest/gtest.h>

#include <string>

#include "config/fields/layer_kinds.h"
#include "support/files.h"

namespace trifold::test {
namespace {

std::string layers(std::string_view text, int64_t count) {
  std::string shown;
  for (const bool experts : parse_layer_pattern(text, count)) shown += experts ? '1' : '0';
  return shown;
}

TEST(LayerPattern, ANumberIsEveryNthFromTheFirstOn) {
  EXPECT_EQ(layers("1", 4), "1111");
  EXPECT_EQ(layers("2", 5), "10101");
  EXPECT_EQ(layers("7", 3), "100");
}

TEST(LayerPattern, ListsAreJoinedAndRepeated) {
  EXPECT_EQ(layers("[0,1,1]", 3), "011");
  EXPECT_EQ(layers("([0]*3+[1]*4)", 7), "0001111");
  EXPECT_EQ(layers(" [ 1 , 0 ] * 2 + 2 * [0] ", 6), "101000");
  EXPECT_EQ(layers("(([0]+[1]*2)*2)+[0]", 7), "0110110");
  EXPECT_EQ(layers("[]+[1]*0+[0,1]", 2), "01");
}

TEST(LayerPattern, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"0", "'0' is not possible"},
      {"", "'' has no list at character 1"},
      {"[0,2]", "'[0,2]' has an entry other than 0 and 1 at character 4"},
      {"[0]*", "'[0]*' has no number at character 5"},
      {"[0", "'[0' has no comma or closing bracket at character 3"},
      {"([0]", "'([0]' has no closing parenthesis at character 5"},
      {"[0]x", "'[0]x' has more after its list at character 4"},
      {"3[0]", "'3[0]' has no * after a number at character 2"},
      {"[1]*2", "'[1]*2' has 2 entries for 3 layers"},
      {"[1]*4", "'[1]*4' has more entries than the 3 layers"},
      {"[1]*999999999", "has more entries than the 3 layers"},
      {"[]*999999999+[1]", "has 1 entries for 3 layers"},
      {"[1]*9999999999", "has too large a number at character 5"},
      {"(((((((((((((((((((((((([1]))))))))))))))))))))))))", "has too many parentheses"},
      {"-1", "'-1' has no list at character 1"}};
  for (const auto& [text, message] : cases) {
    const std::string said = error_of([text = text] { parse_layer_pattern(text, 3); });
    EXPECT_NE(said.find(message), std::string::npos) << text << ": " << said;
  }
}

TEST(LayerPattern, ModelsWithoutExpertsHaveNone) {
  ModelConfig model;
  model.num_layers = 3;
  EXPECT_EQ(count_expert_layers(model), 0);
  model.num_experts = 4;
  EXPECT_EQ(count_expert_layers(model), 3);
  model.moe_layer_freq = "[0]+[1]*2";
  EXPECT_EQ(expert_layers(model), (std::vector<bool>{false, true, true}));
  const LayerKinds layers = layer_kinds(model);
  EXPECT_EQ(layers.of_layer, (std::vector<size_t>{0, 1, 1}));
  ASSERT_EQ(layers.kinds.size(), 2U);
  EXPECT_EQ(layers.kinds[0].name, "layer without experts");
  EXPECT_FALSE(layers.kinds[0].model.num_experts);
  EXPECT_EQ(layers.kinds[1].name, "layer");
  EXPECT_TRUE(layers.kinds[1].model.num_experts);
}

}  // namespace
}  // namespace trifold::test
