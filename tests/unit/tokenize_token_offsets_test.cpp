#include "tokenize/token_offsets.h"

#include <gtest/gtest.h>

#include <string>

#include "support/test_data.h"
#include "tokenize/hugging_face_tokenizer.h"

namespace trifold {
namespace {

std::string offset_tokenizer(const char* name) {
  return test::test_data() + "/golden/hf_tokenizers/" + name + ".json";
}

// Byte-level tokens tile the text.
TEST(TokenOffsets, TileATextThatIsNotChanged) {
  const HuggingFaceTokenizer tokenizer(offset_tokenizer("gpt2"));
  const std::string text = " Zwölf\n\nBoxkämpfer 東京 <|endoftext|> x";
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  const auto places = find_tokens(text, ids, tokenizer);
  ASSERT_TRUE(places);
  int64_t at = 0;
  for (const Interval& place : *places) {
    EXPECT_EQ(place.begin, at);
    at = place.end;
  }
  EXPECT_EQ(at, std::ssize(text));
}

TEST(TokenOffsets, MarkTokensThatOverlapASpan) {
  const ByteTokenizer bytes;
  const std::string text = "question answer.";
  std::vector<int32_t> ids;
  bytes.encode(text, ids);
  const std::vector<uint8_t> mask = tokens_in_spans(text, ids, {{0, 1}, {9, 15}}, bytes);
  EXPECT_EQ(std::string(mask.begin(), mask.end()),
            (std::string{1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0}));

  // A span that begins inside a word takes the token that it cuts.
  const HuggingFaceTokenizer words(offset_tokenizer("gpt2"));
  std::vector<int32_t> word_ids;
  words.encode(text, word_ids);
  const auto places = find_tokens(text, word_ids, words);
  ASSERT_TRUE(places);
  const std::vector<uint8_t> cut = tokens_in_spans(text, word_ids, {{10, 16}}, words);
  for (size_t i = 0; i < word_ids.size(); ++i) EXPECT_EQ(cut[i] == 1, (*places)[i].end > 10) << i;
}

// Lower case: tokens are not found in the text, and a span ends where the tokens of the text up to there differ.
TEST(TokenOffsets, ReadTextsThatTheTokenizerChanges) {
  const HuggingFaceTokenizer tokenizer(offset_tokenizer("bert_uncased"));
  const std::string text = "What Is It? A Cat.";
  std::vector<int32_t> ids, before, inside;
  tokenizer.encode(text, ids);
  EXPECT_FALSE(find_tokens(text, ids, tokenizer));
  tokenizer.encode(text.substr(0, 12), before);
  tokenizer.encode(text.substr(12, 5), inside);
  std::vector<uint8_t> expected(ids.size(), 0);
  for (size_t i = 0; i < inside.size(); ++i) expected[before.size() + i] = 1;
  EXPECT_EQ(tokens_in_spans(text, ids, {{12, 17}}, tokenizer), expected);
}

}  // namespace
}  // namespace trifold
