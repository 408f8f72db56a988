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
uint64_t hash_of(const Ids& ids) {
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

TEST(DocumentEncoder, CutsLongDocumentsWhereNothingChanges) {
  struct Case {
    const std::string& model;
    size_t count[3];
    uint64_t hash[3];
  };
  const std::string play = read_file(test::test_data() + "/../data/tinyshakespeare.txt");
  std::string signs;  // no place between words
  for (int i = 0; i < 60000; ++i) signs += "天地玄黃宇宙洪荒";
  const std::string texts[] = {play.substr(0, 900000), play + std::string(play.rbegin(), play.rend()), signs};
  for (const Case& expected : {Case{kPrefix,
                                    {582855, 1655930, 1440001},
                                    {0x8c686db557b19f11, 0xc25a1ec56871e5d0, 0x58067c37a7961876}},
                               Case{kKeeps,
                                    {601044, 1741540, 1440000},
                                    {0xf2d6cf52477b3e81, 0xb77d8e4292d83fd2, 0xf7f257595bef1ee5}}}) {
    const SentencePieceTokenizer tokenizer(expected.model);
    for (size_t i = 0; i < 3; ++i) {
      const Ids lines = by_lines(tokenizer, texts[i]);
      EXPECT_EQ(lines.size(), expected.count[i]) << expected.model << " " << i;
      EXPECT_EQ(hash_of(lines), expected.hash[i]) << expected.model << " " << i;
      EXPECT_EQ(at_once(tokenizer, texts[i]), lines) << expected.model << " " << i;
    }
  }
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
