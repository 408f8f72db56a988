// Documents have the tokens that SentencePiece gives for the whole text, however they are passed and cut. Expected ids are
// those of the Python package sentencepiece 0.2.
#include "tokenize/document_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/text_lines.h"

namespace trifold {
namespace {

using test::read_file;

const std::string kPrefix = test::test_data() + "/data/shakespeare_prefix_400.model";
const std::string kKeeps = test::test_data() + "/data/shakespeare_400.model";

using Ids = std::vector<int32_t>;

// As plain text is passed.
Ids by_lines(const Tokenizer& tokenizer, std::string_view text) {
  DocumentEncoder encoder(tokenizer);
  Ids ids;
  for_each_line(text, kLongestLine, [&](std::string_view line) { encoder.add(line, ids); });
  encoder.finish(ids);
  return ids;
}

// As the field of a JSON line is passed.
Ids at_once(const Tokenizer& tokenizer, std::string_view text) {
  DocumentEncoder encoder(tokenizer);
  Ids ids;
  encoder.add(text, ids);
  encoder.finish(ids);
  return ids;
}

// FNV-1a over the ids.
uint64_t hash_of_ids(const Ids& ids) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int32_t id : ids) hash = (hash ^ static_cast<uint64_t>(id)) * 0x100000001b3;
  return hash;
}

TEST(DocumentEncoder, PutsOneSpaceBeforeADocument) {
  const SentencePieceTokenizer tokenizer(kPrefix);
  const std::string text = "Hear me.\n\n    indented\nFirst Citizen:\n  a  b\n";
  const Ids expected{329, 344, 288, 324, 367, 13,  13,  343, 343, 343, 313, 354, 286, 345, 321, 13,
                     391, 319, 298, 339, 278, 352, 399, 286, 366, 13,  343, 261, 343, 271, 13};
  EXPECT_EQ(by_lines(tokenizer, text), expected);
  EXPECT_EQ(at_once(tokenizer, text), expected);
}

// Texts of less and more than the longest piece, and one with no place between words. A unigram model adds up scores in f32,
// so its cut text may differ where two ways to write a word are nearly as good.
TEST(DocumentEncoder, CutsLongDocumentsWhereNothingChanges) {
  const std::string play = read_file(test::test_data() + "/../data/tinyshakespeare.txt");
  std::string signs;
  for (int i = 0; i < 45000; ++i) signs += "天地玄黃宇宙洪荒";
  const std::string few = play.substr(0, 200000), many = play + play.substr(0, 100000);
  ASSERT_GT(std::min(many.size(), signs.size()), DocumentEncoder::kLongestPiece);
  const auto expect = [](const Tokenizer& tokenizer, const std::string& text, size_t count, uint64_t hash) {
    const Ids lines = by_lines(tokenizer, text);
    EXPECT_EQ(lines.size(), count);
    EXPECT_EQ(hash_of_ids(lines), hash);
  };
  const SentencePieceTokenizer prefix(kPrefix), keeps(kKeeps);
  expect(prefix, few, 129401, 0x38ec7b5f8130c85d);
  expect(prefix, many, 787496, 0x9c54b2f6753cddb4);
  expect(prefix, signs, 1080001, 0x7e044b676da7b46);
  expect(keeps, few, 132851, 0x54c8abc633d12187);
  EXPECT_EQ(by_lines(keeps, many).size(), 812037U);
  expect(keeps, signs, 1080000, 0x16d05b0c6b3a0f95);
  EXPECT_EQ(at_once(prefix, few), by_lines(prefix, few));
}

TEST(DocumentEncoder, BeginsEachDocumentAnew) {
  const SentencePieceTokenizer tokenizer(kPrefix);
  DocumentEncoder encoder(tokenizer);
  Ids first, second;
  encoder.add("Hear me", first);
  encoder.finish(first);
  encoder.add("Hear me", second);
  encoder.finish(second);
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace trifold
