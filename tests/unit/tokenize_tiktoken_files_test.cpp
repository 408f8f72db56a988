// Files of tiktoken, Mistral and Megatron-LM have the ids of tiktoken and mistral_common, and what is wrong in them is
// named.
#include "tokenize/tiktoken_files.h"

#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/error.h"
#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/tokenizer.h"

namespace trifold::tiktoken_files {
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

std::vector<std::string> ranks() { return golden().at("ranks").get<std::vector<std::string>>(); }

std::string lines(const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) text += fmt::format("{} {}\n", tokens[i], i);
  return text;
}

nlohmann::json list(const std::vector<std::string>& tokens) {
  nlohmann::json made = nlohmann::json::array();
  for (size_t i = 0; i < tokens.size(); ++i)
    made.push_back({{"rank", i}, {"token_bytes", tokens[i]}, {"token_str", nullptr}});
  return made;
}

// The message of an error; empty without one.
template <class Body>
std::string problem_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

DataConfig config(const std::string& file) {
  DataConfig data;
  data.tokenizer_type = TokenizerType::Tiktoken;
  data.tokenizer_model = file;
  return data;
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

void expect_ids(const Tokenizer& tokenizer, const nlohmann::json& hashes, const std::string& what) {
  const auto texts = golden().at("texts").get<std::vector<std::string>>();
  ASSERT_EQ(texts.size(), hashes.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (const int32_t id : ids_of(tokenizer, texts[i]))
      for (int shift = 0; shift < 32; shift += 8)
        hash = (hash ^ (static_cast<uint32_t>(id) >> shift & 0xFFU)) * 0x100000001b3ULL;
    EXPECT_EQ(fmt::format("{:016x}", hash), hashes.at(i))
        << what << ": " << nlohmann::json(texts[i]).dump(-1, ' ', true);
  }
}

TEST(TokenizeTiktokenFiles, EveryPatternHasTheIdsOfTiktoken) {
  const TempDir dir;
  write_file(dir.file("small.tiktoken"), lines(ranks()));
  for (const auto& [name, hashes] : golden().at("tiktoken").items()) {
    DataConfig data = config(dir.file("small.tiktoken"));
    for (const auto& pattern : Names<TiktokenPattern>::kAll)
      if (pattern.name == name) data.tiktoken_pattern = pattern.value;
    ASSERT_TRUE(data.tiktoken_pattern) << name;
    data.tiktoken_special_tokens = {"<|endoftext|>", "<|im_end|>"};
    for (const SpecialTokensInText special : {SpecialTokensInText::Text, SpecialTokensInText::Encode}) {
      data.special_tokens_in_text = special;
      const auto tokenizer = make_tokenizer(data);
      EXPECT_EQ(tokenizer->vocab_size(), std::ssize(ranks()) + 2);
      EXPECT_EQ(tokenizer->eod(), std::ssize(ranks()));
      expect_ids(*tokenizer, hashes.at(std::string(name_of(special))), name);
    }
  }
}

// As in tiktoken, a text with a special token is an error unless something else is chosen.
TEST(TokenizeTiktokenFiles, SpecialTokensAreRefusedByDefault) {
  const TempDir dir;
  write_file(dir.file("a.tiktoken"), lines(ranks()));
  write_file(dir.file("tiktoken.json"),
             R"({"pat_str": "\\p{L}+|\\P{L}", "special_tokens": {"<|end|>": 9000}})");
  const auto tokenizer = make_tokenizer(config(dir.file("a.tiktoken")));
  EXPECT_EQ(tokenizer->vocab_size(), 9001);
  expect_has(error_of([&] { ids_of(*tokenizer, "a <|end|>"); }), "the special token <|end|> at byte 2");
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "Caf\xC3\xA9, 12!")), "Caf\xC3\xA9, 12!");
}

TEST(TokenizeTiktokenFiles, PatternAndTokensAreThoseOfTheTokenizerConfig) {
  const TempDir dir;
  write_file(dir.file("tiktoken.model"), lines(ranks()));
  write_file(
      dir.file("tokenizer_config.json"),
      R"({"eos_token": "[EOS]", "added_tokens_decoder": {"8000": {"content": "[EOS]", "special": true},)"
      R"( "8001": {"content": "<tool>", "special": false, "lstrip": true, "normalized": false}}})");
  DataConfig data = config(dir.file("tiktoken.model"));
  expect_has(error_of([&] { make_tokenizer(data); }), "give --tiktoken-pattern");
  data.tiktoken_pattern = TiktokenPattern::Kimi;
  const auto tokenizer = make_tokenizer(data);
  EXPECT_EQ(tokenizer->eod(), 8000);
  EXPECT_EQ(ids_of(*tokenizer, "  <tool>"), std::vector<int32_t>{8001});
}

TEST(TokenizeTiktokenFiles, TekkenHasTheIdsOfMistral) {
  const TempDir dir;
  nlohmann::json tekken = golden().at("tekken").at("json");
  write_file(dir.file("tekken.json"), tekken.dump());
  DataConfig data = config(dir.file("tekken.json"));
  data.special_tokens_in_text = SpecialTokensInText::Text;
  const auto tokenizer = make_tokenizer(data);
  expect_ids(*tokenizer, golden().at("tekken").at("ids"), "tekken.json");
  EXPECT_EQ(tokenizer->vocab_size(), tekken.at("config").at("default_vocab_size"));
  EXPECT_EQ(tokenizer->name_of_token(3), "[INST]");
  EXPECT_EQ(tokenizer->name_of_token(29), "<SPECIAL_29>");
  EXPECT_EQ(tokenizer->eod(), 2);
  data.tiktoken_pattern = TiktokenPattern::V2;
  expect_has(error_of([&] { make_tokenizer(data); }), "names its pattern and special tokens itself");
  data.tiktoken_pattern.reset();
  const auto refusal = [&](const char* field, const nlohmann::json& value) {
    nlohmann::json other = tekken;
    other["config"][field] = value;
    write_file(dir.file("tekken.json"), other.dump());
    return error_of([&] { make_tokenizer(data); });
  };
  expect_has(refusal("version", "v13"), "is of version v13 and lists no special_tokens");
  expect_has(refusal("default_vocab_size", 100000), "fewer than its default_vocab_size 100000");
  expect_has(refusal("pattern", R"(\X+)"), "\\X");
}

// Megatron-LM puts special tokens before those of the list.
TEST(TokenizeTiktokenFiles, MegatronsListStartsAfterTheSpecialTokens) {
  const TempDir dir;
  write_file(dir.file("vocab.json"), list(ranks()).dump());
  DataConfig data = config(dir.file("vocab.json"));
  expect_has(error_of([&] { make_tokenizer(data); }), "give --tiktoken-pattern");
  data.tiktoken_pattern = TiktokenPattern::V2;
  const auto usual = make_tokenizer(data);
  EXPECT_EQ(usual->vocab_size(), 1000 + std::ssize(ranks()));
  EXPECT_EQ(usual->eod(), 2);
  EXPECT_EQ(usual->name_of_token(999), "<SPECIAL_999>");
  std::vector<int32_t> ids = ids_of(*usual, "the King");
  data.tiktoken_num_special_tokens = 10;
  data.tiktoken_special_tokens = {"<unk>", "<s>", "</s>", "<x>"};
  data.special_tokens_in_text = SpecialTokensInText::Encode;
  const auto tokenizer = make_tokenizer(data);
  for (int32_t& id : ids) id -= 990;
  EXPECT_EQ(ids_of(*tokenizer, "the King"), ids);
  EXPECT_EQ(ids_of(*tokenizer, "<x>"), std::vector<int32_t>{3});
  data.tiktoken_num_special_tokens = 3;
  expect_has(error_of([&] { make_tokenizer(data); }),
             "4 tokens are more than --tiktoken-num-special-tokens 3");
}

TEST(TokenizeTiktokenFiles, WhatIsWrongIsNamed) {
  const TempDir dir;
  const auto refusal = [&](const std::string& text) {
    write_file(dir.file("a.tiktoken"), text);
    DataConfig data = config(dir.file("a.tiktoken"));
    data.tiktoken_pattern = TiktokenPattern::Cl100k;
    return error_of([&] { make_tokenizer(data); });
  };
  const std::string sound = lines(ranks());
  write_file(dir.file("a.tiktoken"), sound);
  DataConfig good = config(dir.file("a.tiktoken"));
  good.tiktoken_pattern = TiktokenPattern::Cl100k;
  EXPECT_EQ(make_tokenizer(good)->vocab_size(), std::ssize(ranks()));
  expect_has(refusal(sound + "YQ 5000\n"), "'YQ 5000' is no token of tiktoken");
  expect_has(refusal(sound + "YWJjZGVm x\n"), "is no token of tiktoken");
  expect_has(refusal(sound + "YWJjZGVm 5\n"), "two tokens of rank 5");
  expect_has(refusal(sound + "YQ== 5000\n"), "has the bytes of another");
  expect_has(refusal(sound + " 5000\n"), "has no bytes");
  expect_has(refusal(sound.substr(sound.find('\n') + 1)), "has no token for the byte 0");
  expect_has(refusal("{}"), "is no tekken.json of Mistral");
  expect_has(refusal("[1]"), "a.tiktoken");
}

// Every id has one token, and every token one id.
TEST(TokenizeTiktokenFiles, TokensOfOneIdOrOneTextAreRefused) {
  const TempDir dir;
  write_file(dir.file("a.tiktoken"), lines(ranks()) + "YWJxcXo= 5000\n");
  const auto beside = [&](const char* tokens) {
    write_file(dir.file("tiktoken.json"),
               fmt::format(R"({{"pat_str": "\\p{{L}}+|\\P{{L}}", "special_tokens": {}}})", tokens));
    return problem_of([&] { make_tokenizer(config(dir.file("a.tiktoken"))); });
  };
  EXPECT_EQ(beside(R"({"<|x|>": 6000})"), "");
  expect_has(beside(R"({"<|x|>": 5000})"), "two tokens of the id 5000: \"abqqz\" and \"<|x|>\"");
  expect_has(beside(R"({"<|x|>": 6000, "<|y|>": 6000})"), "two tokens of the id 6000");
  expect_has(beside(R"({"abqqz": 6000})"), "the special token abqqz, but a rank has this text already");
  const auto given = [&](const std::vector<std::string>& tokens, std::optional<int64_t> count = {}) {
    DataConfig data = config(dir.file("a.tiktoken"));
    data.tiktoken_pattern = TiktokenPattern::Cl100k;
    data.tiktoken_special_tokens = tokens;
    data.tiktoken_num_special_tokens = count;
    return error_of([&] { make_tokenizer(data); });
  };
  expect_has(given({"<x>", "<x>"}), "the special token <x> twice");
  expect_has(given({""}), "a special token without a text");
  expect_has(given({"<SPECIAL_1>"}, 2), "the special token <SPECIAL_1> twice");
}

TEST(TokenizeTiktokenFiles, SpecialTokensOfTekkenAreAsManyAsItSays) {
  const TempDir dir;
  const auto refusal = [&](const nlohmann::json& tokens, int64_t count) {
    nlohmann::json tekken = golden().at("tekken").at("json");
    if (!tokens.is_null()) tekken["special_tokens"] = tokens;
    const int64_t before = tekken["config"]["default_num_special_tokens"];
    tekken["config"]["default_vocab_size"] =
        tekken["config"]["default_vocab_size"].get<int64_t>() + count - before;
    tekken["config"]["default_num_special_tokens"] = count;
    write_file(dir.file("tekken.json"), tekken.dump());
    return problem_of([&] { make_tokenizer(config(dir.file("tekken.json"))); });
  };
  const auto token = [](int64_t rank, const char* text) {
    return nlohmann::json{{"rank", rank}, {"token_str", text}};
  };
  EXPECT_EQ(refusal({token(1, "<s>"), token(0, "<unk>"), token(3, "</s>")}, 5), "");
  expect_has(refusal({token(0, "<s>"), token(0, "</s>")}, 5), "two tokens of the id 0");
  expect_has(refusal({token(0, "<s>"), token(1, "<s>")}, 5), "the special token <s> twice");
  expect_has(refusal(nullptr, 10), "has 20 special tokens, more than its default_num_special_tokens 10");
  expect_has(refusal(nlohmann::json::array({token(7, "<s>")}), 5), "two tokens of the id 7");
}

// Sizes that would take minutes or the whole memory are refused.
TEST(TokenizeTiktokenFiles, SizesAreBounded) {
  const TempDir dir;
  std::string word;
  for (int i = 0; i < 200'000; ++i) word += "YWFh";
  write_file(dir.file("a.tiktoken"), lines(ranks()) + word + " 5000\n");
  DataConfig data = config(dir.file("a.tiktoken"));
  data.tiktoken_pattern = TiktokenPattern::Cl100k;
  expect_has(error_of([&] { make_tokenizer(data); }),
             "the token of rank 5000 has 600000 bytes; 512 at most are possible");
  write_file(dir.file("a.tiktoken"), lines(ranks()));
  data.tiktoken_num_special_tokens = int64_t{1'000'000'000'000};
  expect_has(error_of([&] { make_tokenizer(data); }),
             "--tiktoken-num-special-tokens 1000000000000: 65536 at most are possible");
  data.tiktoken_num_special_tokens = 65536;
  EXPECT_EQ(make_tokenizer(data)->vocab_size(), 65536 + std::ssize(ranks()));
  data.tiktoken_num_special_tokens.reset();
  nlohmann::json tokens = nlohmann::json::object();
  for (int i = 0; i < 70'000; ++i) tokens[fmt::format("<{}>", i)] = 10'000 + i;
  write_file(dir.file("tiktoken.json"), nlohmann::json{{"special_tokens", tokens}}.dump());
  expect_has(error_of([&] { make_tokenizer(data); }), "has 70000 special tokens; 65536 at most are possible");
}

TEST(CoreBase64, ReadsWhatOthersWrite) {
  EXPECT_EQ(bytes_of_base64(""), "");
  EXPECT_EQ(bytes_of_base64("AP8Q"), std::string("\0\xFF\x10", 3));
  EXPECT_EQ(bytes_of_base64("YWI="), "ab");
  EXPECT_EQ(bytes_of_base64("YQ=="), "a");
  for (const char* wrong : {"Y", "YQ", "YQ=", "Y===", "YW=I", "YW-I", "YQ==\n"})
    EXPECT_FALSE(bytes_of_base64(wrong)) << wrong;
}

}  // namespace
}  // namespace trifold::tiktoken_files
