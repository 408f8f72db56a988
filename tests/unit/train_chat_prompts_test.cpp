// What ends an answer, by the text that a template writes after it.
#include <gtest/gtest.h>

#include "support/test_data.h"
#include "train/sampling/chat_prompts.h"

namespace trifold {
namespace {

std::unique_ptr<Tokenizer> golden_tokenizer(const std::string& name) {
  return make_tokenizer(TokenizerType::HuggingFace, test::test_data() + "/golden/hf_tokenizers/" + name);
}

TEST(EndOfTurn, IsASpecialToken) {
  const auto tokenizer = golden_tokenizer("gpt2.json");
  for (const char* after : {"<|endoftext|>", "<|endoftext|>\n", " <|endoftext|>\n", "<|endoftext|>\nUser:"}) {
    const TurnEnd end = end_of_turn(after, *tokenizer);
    EXPECT_EQ(end.token, tokenizer->eod()) << after;
    EXPECT_EQ(end.text, "") << after;
  }
}

TEST(EndOfTurn, IsAText) {
  const auto tokenizer = golden_tokenizer("gpt2.json");
  for (const auto& [after, text] :
       {std::pair("\n### End\n", "\n### End"), {"\n", "\n"}, {"", ""}, {"<end>\n", "<end>"}}) {
    const TurnEnd end = end_of_turn(after, *tokenizer);
    EXPECT_FALSE(end.token.has_value()) << after;
    EXPECT_EQ(end.text, text);
  }
  EXPECT_EQ(end_of_turn("\n", ByteTokenizer()).text, "\n");
  EXPECT_EQ(end_of_turn("@@@\n", ByteTokenizer()).text, "@@@");
}

}  // namespace
}  // namespace trifold
