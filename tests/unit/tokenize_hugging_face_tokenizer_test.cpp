// Tokenizers of Hugging Face against their library: tools/reference/hugging_face_tokenizers.py wrote the
// golden files.
#include "tokenize/hugging_face_tokenizer.h"

#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/sanitizer.h"
#include "support/test_data.h"
#include "tokenize/document_encoder.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::read_file;
using test::TempDir;
using test::write_file;

const std::string kFolder = test::test_data() + "/golden/hf_tokenizers/";

const nlohmann::json& cases() {
  static const nlohmann::json kCases = nlohmann::json::parse(read_file(kFolder + "cases.json"));
  return kCases;
}

std::string fnv(const void* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ULL;
  return fmt::format("{:016x}", hash);
}

std::string hash_of(const std::vector<int32_t>& ids) { return fnv(ids.data(), ids.size() * sizeof(int32_t)); }

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// As a stream would give it: in parts of odd sizes, which end between characters.
std::vector<int32_t> encode_parts(const Tokenizer& tokenizer, std::string_view text) {
  DocumentEncoder encoder(tokenizer);
  std::vector<int32_t> ids;
  while (!text.empty()) {
    size_t size = std::min<size_t>(text.size(), 3001);
    while (size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) ++size;
    encoder.add(text.substr(0, size), ids);
    text.remove_prefix(size);
  }
  encoder.finish(ids);
  return ids;
}

class Golden : public testing::TestWithParam<const char*> {
 protected:
  const nlohmann::json& golden_ = cases().at("tokenizers").at(GetParam());
  const HuggingFaceTokenizer tokenizer_{kFolder + GetParam() + ".json"};
};

TEST_P(Golden, OddTextsAreTokenizedAndDecodedAlike) {
  EXPECT_EQ(tokenizer_.vocab_size(), golden_.at("vocab_size").get<int64_t>());
  const auto texts = cases().at("texts").get<std::vector<std::string>>();
  for (const auto& [index, ids] : golden_.at("some").items())
    EXPECT_EQ(encode(tokenizer_, texts.at(std::stoul(index))), ids.get<std::vector<int32_t>>())
        << nlohmann::json(texts.at(std::stoul(index)));
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int32_t> ids = encode(tokenizer_, texts[i]);
    EXPECT_EQ(hash_of(ids), golden_.at("ids").at(i)) << i << ": " << nlohmann::json(texts[i]);
    const std::string text = tokenizer_.decode(ids);
    EXPECT_EQ(fnv(text.data(), text.size()), golden_.at("decoded").at(i))
        << i << ": " << nlohmann::json(text);
  }
}

TEST_P(Golden, ADocumentInPiecesIsTokenizedAsAWhole) {
  std::string document;
  for (const auto& text : cases().at("texts")) document += text.get<std::string>() + "\n";
  std::string long_one;
  for (int i = 0; i < 8; ++i) long_one += document;
  ASSERT_GT(long_one.size(), 5 * DocumentEncoder::kPiece);
  EXPECT_EQ(hash_of(encode_parts(tokenizer_, long_one)), golden_.at("document"));
  const std::string play = read_file(test::test_data() + "/../data/tinyshakespeare.txt");
  EXPECT_EQ(hash_of(encode_parts(tokenizer_, play)), golden_.at("play"));
}

TEST_P(Golden, EveryCharacterIsTokenizedAlike) {
  if (golden_.at("sweep").empty()) GTEST_SKIP() << "another tokenizer has the same tables";
  std::vector<std::string> texts;
  int in_last = 4096;
  for (const auto& run : cases().at("runs")) {
    for (char32_t c = run.at(0).get<uint32_t>(); c <= run.at(1).get<uint32_t>(); ++c, ++in_last) {
      if (in_last == 4096) {
        texts.emplace_back();
        in_last = 0;
      }
      std::string character;
      append_character(character, c);
      texts.back() += fmt::format("{0} a{0}b {0}{0}\n", character);
    }
  }
  ASSERT_EQ(texts.size(), golden_.at("sweep").size());
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(hash_of(encode(tokenizer_, texts[i])), golden_.at("sweep").at(i))
        << "block " << i << " from " << texts[i].substr(0, texts[i].find(' '));
}

INSTANTIATE_TEST_SUITE_P(HuggingFaceTokenizer, Golden,
                         testing::Values("gpt2", "prefixed", "llama3", "digits", "bert_uncased", "bert_cased",
                                         "stripped", "words"),
                         [](const auto& tokenizer) { return std::string(tokenizer.param); });

// Line ends that begin a word, a text that is one word, and spaces put before the words of another cut.
TEST(HuggingFaceTokenizer, PiecesAreCutWhereThePreTokenizerCuts) {
  const TempDir dir;
  const std::string play = read_file(test::test_data() + "/../data/tinyshakespeare.txt");
  const auto split = [](const std::string& behavior) {
    return nlohmann::json{{"type", "Split"}, {"pattern", {{"String", "\n"}}}, {"behavior", behavior}};
  };
  const auto bytes = [](bool space) {
    return nlohmann::json{{"type", "ByteLevel"}, {"add_prefix_space", space}, {"use_regex", false}};
  };
  nlohmann::json json = nlohmann::json::parse(read_file(kFolder + "prefixed.json"));
  // Arrays by name: braces around one element are a copy to one compiler and an array to another.
  const auto array = [](std::initializer_list<nlohmann::json> parts) {
    return nlohmann::json(nlohmann::json::array_t(parts));
  };
  for (const nlohmann::json& parts :
       {array({split("MergedWithNext"), bytes(false)}), array({bytes(true)}),
        array({split("MergedWithNext"), bytes(true)}), array({split("Isolated"), bytes(true)}),
        array({split("Removed"), bytes(true)})}) {
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", parts}};
    write_file(dir.file("tokenizer.json"), json.dump());
    const HuggingFaceTokenizer tokenizer(dir.file("tokenizer.json"));
    const std::string text =
        play.substr(0, test::kSanitized ? 60'000 : 300'000) + "ZZ\nAfter a token.\n" + play.substr(0, 30000);
    EXPECT_EQ(encode_parts(tokenizer, text), encode(tokenizer, text)) << parts;
  }
}

// A token that includes the following line end: the text after it begins anew.
TEST(HuggingFaceTokenizer, APieceBehindATokenBeginsWithASpace) {
  const HuggingFaceTokenizer tokenizer(kFolder + "prefixed.json");
  std::string text = std::string(DocumentEncoder::kPiece, 'x') + " ZZ\nafter";
  text += "\n" + std::string(5 * DocumentEncoder::kPiece, 'y');
  EXPECT_EQ(encode_parts(tokenizer, text), encode(tokenizer, text));
}

TEST(HuggingFaceTokenizer, FindsTheEndOfDocumentToken) {
  EXPECT_EQ(HuggingFaceTokenizer(kFolder + "gpt2.json").eod(), 0);
  EXPECT_EQ(HuggingFaceTokenizer(kFolder + "bert_cased.json").eod(), 3);
}

TEST(HuggingFaceTokenizer, ATokenThatIsAddedTwiceIsOneToken) {
  const TempDir dir;
  nlohmann::json json = nlohmann::json::parse(read_file(kFolder + "gpt2.json"));
  const int64_t vocabulary = HuggingFaceTokenizer(kFolder + "gpt2.json").vocab_size();
  for (const int64_t id : {vocabulary, vocabulary + 100000})
    json["added_tokens"].push_back({{"id", id}, {"content", "<twice>"}, {"special", true}});
  write_file(dir.file("tokenizer.json"), json.dump());
  const HuggingFaceTokenizer tokenizer(dir.file("tokenizer.json"));
  EXPECT_EQ(tokenizer.vocab_size(), vocabulary + 1);
  EXPECT_EQ(encode(tokenizer, "<twice><twice>"), (std::vector<int32_t>(2, static_cast<int32_t>(vocabulary))));
}

TEST(HuggingFaceTokenizer, AFingerprintIsThatOfTheFile) {
  const HuggingFaceTokenizer gpt2(kFolder + "gpt2.json");
  EXPECT_EQ(gpt2.fingerprint(), HuggingFaceTokenizer(kFolder + "gpt2.json").fingerprint());
  EXPECT_NE(gpt2.fingerprint(), HuggingFaceTokenizer(kFolder + "digits.json").fingerprint());
}

TEST(HuggingFaceTokenizer, RejectsUnsupportedParts) {
  const TempDir dir;
  const std::string file = dir.file("tokenizer.json");
  const nlohmann::json good = nlohmann::json::parse(read_file(kFolder + "gpt2.json"));
  const auto message = [&](const std::string& patch) {
    nlohmann::json json = good;
    json.merge_patch(nlohmann::json::parse(patch));
    write_file(file, json.dump());
    const std::string text = error_of([&] { HuggingFaceTokenizer tokenizer(file); });
    EXPECT_TRUE(text.starts_with(file)) << text;
    return text;
  };
  expect_has(
      message(R"({"model": {"type": "Unigram"}})"),
      "model is Unigram with the pre_tokenizer ByteLevel, which is not supported; BPE, WordPiece (BERT) and Unigram");
  expect_has(message(R"({"pre_tokenizer": {"type": "UnicodeScripts"}})"),
             "\"UnicodeScripts\" is not supported; ByteLevel,");
  expect_has(message(R"({"normalizer": {"type": "Nmt"}})"), "\"Nmt\" is not supported; NFC,");
  expect_has(
      message(R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"}})"),
      "the pattern (a of its pre_tokenizer cannot be read");
  expect_has(message(R"({"model": {"byte_fallback": true}})"), "its words are bytes already");
  expect_has(message(R"({"model": {"merges": ["Ġ zzz"]}})"), "zzz\", which is not in its vocab");
  expect_has(message(R"({"model": {"merges": ["a b c"]}})"), "is not two tokens with one space between them");
  expect_has(message(R"({"model": {"vocab": {"q": "x"}}})"), "vocab.q is \"x\"; a whole number");
  expect_has(message(R"({"model": {"vocab": {"q": 1000000000}}})"), "the id 1000000000 of its token \"q\"");
  expect_has(message(R"({"model": 3})"), "a JSON object with a \"model\" is expected");
  write_file(file, read_file(kFolder + "gpt2.json").substr(0, 500));
  expect_has(error_of([&] { HuggingFaceTokenizer tokenizer(file); }), "not JSON: parse error at line");
  expect_has(error_of([&] { make_tokenizer(TokenizerType::HuggingFace, dir.file("none.json")); }),
             "none.json cannot be opened");
  const HuggingFaceTokenizer tokenizer(kFolder + "gpt2.json");
  expect_has(error_of([&] { encode(tokenizer, "ab\xff"); }), "byte 2 of a text to be tokenized is not UTF-8");
  expect_has(error_of([&] { tokenizer.decode(std::vector<int32_t>{600}); }), "outside the vocabulary of 600");
}

}  // namespace
}  // namespace trifold
