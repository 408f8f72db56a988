// Tokenizers with the normalizers, pre-tokenizers, patterns, decoders and special tokens of open families have the ids
// and texts of Hugging Face's `tokenizers`, tiktoken and mistral_common (tools/reference/tokenizer_families.py).
#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/document_encoder.h"
#include "tokenize/hugging_face_tokenizer.h"
#include "tokenize/incremental_decoder.h"

namespace trifold::tokenizer_families {
namespace {

using test::error_of;
using test::expect_has;
using test::read_file;
using test::TempDir;
using test::write_file;

const nlohmann::json& golden() {
  static const nlohmann::json kGolden =
      nlohmann::json::parse(read_file(test::test_data() + "/golden/hf_tokenizers/families.json"));
  return kGolden;
}

std::vector<std::string> texts() { return golden().at("texts").get<std::vector<std::string>>(); }

std::string hash_of_bytes(const void* data, size_t size) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3ULL;
  return fmt::format("{:016x}", hash);
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

std::string hash_of(const std::vector<int32_t>& ids) {
  return hash_of_bytes(ids.data(), ids.size() * sizeof(int32_t));
}

void expect_ids(const Tokenizer& tokenizer, const nlohmann::json& hashes, const std::string& what) {
  const std::vector<std::string> all = texts();
  ASSERT_EQ(all.size(), hashes.size());
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(hash_of(ids_of(tokenizer, all[i])), hashes.at(i))
        << what << ": " << nlohmann::json(all[i]).dump(-1, ' ', true);
}

DataConfig config(TokenizerType type, const std::string& file) {
  DataConfig data;
  data.tokenizer_type = type;
  data.tokenizer_model = file;
  return data;
}

class Family : public testing::TestWithParam<const char*> {
 protected:
  Family() { write_file(file_, family_.at("json").dump()); }

  std::unique_ptr<Tokenizer> open(SpecialTokensInText special) const {
    DataConfig data = config(TokenizerType::HuggingFace, file_);
    data.special_tokens_in_text = special;
    return make_tokenizer(data);
  }

  TempDir dir_;
  std::string file_ = dir_.file("tokenizer.json");
  const nlohmann::json& family_ = golden().at("tokenizers").at(GetParam());
};

TEST_P(Family, IdsAndTextsAreTheLibrarys) {
  const auto tokenizer = open(SpecialTokensInText::Encode);
  expect_ids(*tokenizer, family_.at("ids"), "special tokens as such");
  const std::vector<std::string> all = texts();
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string text = tokenizer->decode(ids_of(*tokenizer, all[i]));
    EXPECT_EQ(hash_of_bytes(text.data(), text.size()), family_.at("decoded").at(i))
        << nlohmann::json(text).dump(-1, ' ', true);
  }
}

TEST_P(Family, SpecialTokensAreTextIfSoChosen) {
  expect_ids(*open(SpecialTokensInText::Text), family_.at("ids_as_text"), "special tokens as text");
}

// The document is longer than the longest piece.
TEST_P(Family, ALongDocumentInPartsHasTheIdsOfTheWhole) {
  const auto tokenizer = open(SpecialTokensInText::Encode);
  DocumentEncoder encoder(*tokenizer);
  std::vector<int32_t> ids;
  // The texts are joined by line ends, with none between the last and the play.
  std::string joined;
  const std::vector<std::string> all = texts();
  for (size_t i = 0; i < all.size(); ++i) joined += (i > 0 ? "\n" : "") + all[i];
  joined += read_file(test::test_data() + "/../data/tinyshakespeare.txt");
  ASSERT_GT(joined.size(), DocumentEncoder::kLongestPiece);
  for (std::string_view rest = joined; !rest.empty();) {
    size_t size = std::min<size_t>(rest.size(), 30011);
    while (size < rest.size() && (static_cast<unsigned char>(rest[size]) & 0xC0U) == 0x80U) ++size;
    encoder.add(rest.substr(0, size), ids);
    rest.remove_prefix(size);
  }
  encoder.finish(ids);
  EXPECT_EQ(hash_of(ids), family_.at("document"));
}

INSTANTIATE_TEST_SUITE_P(TokenizeFamilies, Family,
                         testing::Values("qwen2", "tekken_json", "gpt_oss", "phi4", "deepseek", "deepseek_v2",
                                         "starcoder2", "modern_bert", "roberta", "gemma", "mistral",
                                         "mistral_metaspace", "phi3", "xlm_roberta"),
                         [](const auto& family) { return std::string(family.param); });

TEST(TokenizeFamilies, TextWithASpecialTokenIsRefusedIfSoChosen) {
  const TempDir dir;
  write_file(dir.file("t.json"), golden().at("tokenizers").at("qwen2").at("json").dump());
  DataConfig data = config(TokenizerType::HuggingFace, dir.file("t.json"));
  data.special_tokens_in_text = SpecialTokensInText::Refuse;
  const auto tokenizer = make_tokenizer(data);
  expect_has(error_of([&] { ids_of(*tokenizer, "Hi<|im_end|>"); }), "the special token <|im_end|> at byte 2");
  // An added token that is not special is no danger.
  EXPECT_EQ(ids_of(*tokenizer, "<tool_call>").size(), 1u);
  EXPECT_NE(tokenizer->fingerprint(),
            make_tokenizer(TokenizerType::HuggingFace, dir.file("t.json"))->fingerprint());
  data = config(TokenizerType::Byte, "");
  data.tokenizer_model.reset();
  data.special_tokens_in_text = SpecialTokensInText::Text;
  expect_has(error_of([&] { make_tokenizer(data); }), "--special-tokens-in-text text: --tokenizer-type byte");
}

// Bytes are characters only together, and all of a run are read again when one more arrives.
TEST(TokenizeFamilies, BytesAreShownWhenTheirCharactersAreComplete) {
  const TempDir dir;
  write_file(dir.file("t.json"), golden().at("tokenizers").at("gemma").at("json").dump());
  const auto tokenizer = make_tokenizer(TokenizerType::HuggingFace, dir.file("t.json"));
  const std::string text = "a \xF0\x93\x80\x80\xF0\x93\x80\x81\xF0\x93\x80\x82 b";
  const std::vector<int32_t> ids = ids_of(*tokenizer, text);
  ASSERT_GT(ids.size(), 12u);
  IncrementalDecoder decoder(*tokenizer, {});
  std::string shown;
  for (const int32_t id : ids) {
    shown += decoder.add(id);
    EXPECT_TRUE(text.starts_with(shown)) << shown;
  }
  EXPECT_EQ(shown + decoder.finish(), text);
}

TEST(TokenizeFamilies, WhatIsNotComputedIsRefusedByName) {
  const TempDir dir;
  const auto refusal = [&](const char* part, const nlohmann::json& value) {
    nlohmann::json json = golden().at("tokenizers").at("gemma").at("json");
    json[part] = value;
    write_file(dir.file("t.json"), json.dump());
    return error_of([&] { make_tokenizer(TokenizerType::HuggingFace, dir.file("t.json")); });
  };
  for (const char* name : {"Nmt", "ByteLevel"})
    expect_has(refusal("normalizer", {{"type", name}}),
               fmt::format("normalizer \"{}\" is not supported", name));
  for (const char* name : {"UnicodeScripts", "FixedLength"})
    expect_has(refusal("pre_tokenizer", {{"type", name}}),
               fmt::format("pre_tokenizer \"{}\" is not supported", name));
  for (const char* name : {"BPEDecoder", "CTC"})
    expect_has(refusal("decoder", {{"type", name}}), fmt::format("decoder \"{}\" is not supported", name));
  expect_has(refusal("pre_tokenizer", {{"type", "Metaspace"}, {"prepend_scheme", "last"}}),
             "prepend_scheme \"last\"");
  expect_has(refusal("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAA"}}), "no base64");
  expect_has(refusal("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}}),
             "says that its first");
  nlohmann::json unigram = golden().at("tokenizers").at("xlm_roberta").at("json").at("model");
  unigram["unk_id"] = nullptr;
  expect_has(refusal("model", unigram), "has no unk_id");
  unigram["unk_id"] = 3;
  unigram["vocab"].push_back(unigram["vocab"][5]);
  expect_has(refusal("model", unigram), "more than once");
}

// A damaged map matches something else or nothing, and never reads outside.
TEST(TokenizeFamilies, ADamagedMapOfCharactersIsHarmless) {
  const nlohmann::json& sound =
      golden().at("tokenizers").at("xlm_roberta").at("json").at("normalizer").at("precompiled_charsmap");
  for (size_t at = 0; at < sound.get<std::string>().size(); at += 7) {
    std::string damaged = sound;
    damaged[at] = damaged[at] == '/' ? 'A' : '/';
    try {
      const TextNormalizer normalizer({{"type", "Precompiled"}, {"precompiled_charsmap", damaged}});
      normalizer("a\xEF\xAC\x81 e\xCC\x81\t \xE2\x85\xB7\xE2\x80\x8B \xC2\xBD");
    } catch (const Error& error) {
      expect_has(error.what(), "precompiled_charsmap");
    }
  }
}

}  // namespace
}  // namespace trifold::tokenizer_families
