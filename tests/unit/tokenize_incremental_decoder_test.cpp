// Decoding token by token gives whole characters, and in the end the text of all tokens.
#include "tokenize/incremental_decoder.h"

#include <nlohmann/json.hpp>
#include <random>

#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/hugging_face_tokenizer.h"
#include "tokenize/unicode/unicode.h"

namespace trifold::incremental_decoder_test {
namespace {

const std::string kFolder = test::test_data() + "/golden/hf_tokenizers/";

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// The pieces, each of which must be UTF-8, put together.
std::string in_pieces(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t before) {
  IncrementalDecoder decoder(tokenizer, ids.first(before));
  std::string all = replace_invalid_utf8(tokenizer.decode(ids.first(before)));
  all.resize(stable_size(all));
  const auto add = [&](const std::string& piece) {
    EXPECT_FALSE(invalid_utf8(piece)) << nlohmann::json(all);
    all += piece;
  };
  for (const int32_t id : ids.subspan(before)) add(decoder.add(id));
  add(decoder.finish());
  return all;
}

std::vector<std::unique_ptr<Tokenizer>> tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> all;
  all.push_back(std::make_unique<ByteTokenizer>());
  all.push_back(std::make_unique<HuggingFaceTokenizer>(kFolder + "gpt2.json"));
  all.push_back(std::make_unique<SentencePieceTokenizer>(test::test_data() + "/data/shakespeare_400.model"));
  return all;
}

TEST(IncrementalDecoder, HoldsBackACharacterUntilItIsWhole) {
  const ByteTokenizer bytes;
  const HuggingFaceTokenizer pairs(kFolder + "gpt2.json");
  for (const Tokenizer* tokenizer :
       {static_cast<const Tokenizer*>(&bytes), static_cast<const Tokenizer*>(&pairs)}) {
    const std::vector<int32_t> ids = encode(*tokenizer, "a\U0001F460b");
    ASSERT_EQ(ids.size(), 6u);
    IncrementalDecoder decoder(*tokenizer, {});
    EXPECT_EQ(decoder.add(ids[0]), "a");
    for (size_t i = 1; i < 4; ++i) EXPECT_EQ(decoder.add(ids[i]), "") << i;
    EXPECT_EQ(decoder.add(ids[4]), "\U0001F460");
    EXPECT_EQ(decoder.add(ids[1]), "");
    EXPECT_EQ(decoder.add(ids[2]), "");
    EXPECT_EQ(decoder.add(ids[0]), "\uFFFDa");  // an invalid sequence
    EXPECT_EQ(decoder.add(ids[4]), "");
    EXPECT_EQ(decoder.add(ids[5]), "\uFFFDb");
    EXPECT_EQ(decoder.add(ids[1]), "");
    EXPECT_EQ(decoder.add(ids[2]), "");
    EXPECT_EQ(decoder.finish(), "\uFFFD");  // an incomplete one
    EXPECT_EQ(decoder.finish(), "");
  }
}

TEST(IncrementalDecoder, APromptThatEndsInsideACharacterIsCompleted) {
  const ByteTokenizer bytes;
  const std::vector<int32_t> ids = encode(bytes, "x\u6F22");
  IncrementalDecoder decoder(bytes, std::span(ids).first(3));
  EXPECT_EQ(decoder.add(ids[3]), "\u6F22");
}

TEST(IncrementalDecoder, ThePiecesAreTheTextOfAllTokens) {
  const auto texts = nlohmann::json::parse(test::read_file(kFolder + "cases.json"))
                         .at("texts")
                         .get<std::vector<std::string>>();
  std::mt19937 random(3);
  for (const auto& tokenizer : tokenizers()) {
    for (const std::string& text : texts) {
      const std::vector<int32_t> ids = encode(*tokenizer, text);
      if (ids.size() > 100) continue;
      EXPECT_EQ(in_pieces(*tokenizer, ids, ids.size() / 3), replace_invalid_utf8(tokenizer->decode(ids)));
    }
    for (int round = 0; round < 50; ++round) {
      std::vector<int32_t> ids(60);
      for (int32_t& id : ids)
        id = static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer->vocab_size()));
      EXPECT_EQ(in_pieces(*tokenizer, ids, static_cast<size_t>(round)),
                replace_invalid_utf8(tokenizer->decode(ids)))
          << nlohmann::json(ids);
    }
  }
}

}  // namespace
}  // namespace trifold::incremental_decoder_test
