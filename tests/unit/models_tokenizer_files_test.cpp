// The tokenizer of a folder of transformers is found in every form of its files, in transformers' order.
#include "models/folders/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include "config/fields/named.h"
#include "core/error.h"
#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/tokenizer.h"

namespace trifold::tokenizer_files {
namespace {

using test::expect_has;
using test::read_file;
using test::TempDir;
using test::write_file;

nlohmann::json golden(const std::string& name) {
  return nlohmann::json::parse(read_file(test::test_data() + "/golden/hf_tokenizers/" + name + ".json"));
}

const nlohmann::json& families() {
  static const nlohmann::json kFamilies = golden("families");
  return kFamilies;
}

std::string ranks_text() {
  std::string text;
  int64_t rank = 0;
  for (const nlohmann::json& token : families().at("ranks"))
    text += fmt::format("{} {}\n", token.get<std::string>(), rank++);
  return text;
}

std::string merges_text(const nlohmann::json& model) {
  std::string text = "#version: 0.2\n";
  for (const nlohmann::json& merge : model.at("merges"))
    text += (merge.is_string() ? merge.get<std::string>()
                               : merge[0].get<std::string>() + " " + merge[1].get<std::string>()) +
            "\n";
  return text;
}

struct Found {
  DataConfig data;
  std::string problem;
  std::unique_ptr<Tokenizer> tokenizer;
};

Found find(const TempDir& dir, DataConfig data = {}) {
  Found found{std::move(data), {}, {}};
  found.problem = name_tokenizer(tokenizer_files_in(dir.path()), found.data);
  if (!found.data.tokenizer_model) return found;
  DataConfig full = found.data;
  full.tokenizer_model = dir.file(*full.tokenizer_model);
  if (full.tokenizer_type != TokenizerType::SentencePiece)
    full.special_tokens_in_text = SpecialTokensInText::Encode;
  found.tokenizer = make_tokenizer(full);
  return found;
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, ids);
  return ids;
}

const std::string kText = "The king's 12345 sons, who'd  left\n\tin 1603 ... CAF\xC3\x89";

TEST(ModelsTokenizerFiles, TheFirstThatCanBeUsedIsChosen) {
  const TempDir dir;
  const nlohmann::json gpt2 = golden("gpt2");
  write_file(dir.file("vocab.json"), gpt2.at("model").at("vocab").dump());
  EXPECT_FALSE(find(dir).data.tokenizer_model);  // without merges
  write_file(dir.file("merges.txt"), merges_text(gpt2.at("model")));
  const Found pairs = find(dir);
  EXPECT_EQ(pairs.data.tokenizer_model, "vocab.json");
  EXPECT_EQ(pairs.data.tokenizer_type, TokenizerType::Gpt2Bpe);
  write_file(dir.file("small.tiktoken"), ranks_text());
  EXPECT_EQ(find(dir).data.tokenizer_model, "small.tiktoken");
  write_file(dir.file("tiktoken.model"), ranks_text());
  EXPECT_EQ(find(dir).data.tokenizer_model, "tiktoken.model");
  write_file(dir.file("tokenizer.model"), ranks_text());  // as Llama 3 has it
  const Found ranks = find(dir);
  EXPECT_EQ(ranks.data.tokenizer_model, "tokenizer.model");
  EXPECT_EQ(ranks.data.tokenizer_type, TokenizerType::Tiktoken);
  write_file(dir.file("tokenizer.model"), read_file(test::test_data() + "/data/shakespeare_400.model"));
  EXPECT_EQ(find(dir).data.tokenizer_type, TokenizerType::SentencePiece);
  write_file(dir.file("tekken.json"), families().at("tekken").at("json").dump());
  const Found tekken = find(dir);
  EXPECT_EQ(tekken.data.tokenizer_model, "tekken.json");
  EXPECT_EQ(tekken.tokenizer->name_of_token(3), "[INST]");
  write_file(dir.file("tokenizer.json"), "{}");
  EXPECT_EQ(find(dir).data.tokenizer_model, "tekken.json");  // as tokenizer.json cannot be used
  write_file(dir.file("tokenizer.json"), gpt2.dump());
  const Found json = find(dir);
  EXPECT_EQ(json.data.tokenizer_type, TokenizerType::HuggingFace);
  EXPECT_EQ(ids_of(*json.tokenizer, kText), ids_of(*pairs.tokenizer, kText));
}

TEST(ModelsTokenizerFiles, WithoutAUsableFileTheFirstProblemIsNamed) {
  const TempDir dir;
  EXPECT_EQ(find(dir).problem, "");
  write_file(dir.file("tekken.json"), "[]");
  write_file(dir.file("vocab.txt"), "a\n");
  const Found found = find(dir);
  EXPECT_FALSE(found.data.tokenizer_model);
  expect_has(found.problem, "tekken.json");
}

// The files of a tiktoken say neither how text is cut nor, as the first Qwen's, which special tokens there are.
TEST(ModelsTokenizerFiles, FilesOfTiktokenAreCutAsTheirClassSays) {
  const auto pattern = [](const std::string& name, const std::string& config) {
    const TempDir dir;
    write_file(dir.file(name), ranks_text());
    if (!config.empty()) write_file(dir.file("tokenizer_config.json"), config);
    return find(dir);
  };
  EXPECT_EQ(pattern("tiktoken.model", "").data.tiktoken_pattern, TiktokenPattern::Llama3);
  const Found kimi = pattern("tiktoken.model",
                             R"({"tokenizer_class": "TikTokenTokenizer", "eos_token": "[EOS]",)"
                             R"( "added_tokens_decoder": {"8000": {"content": "[EOS]", "special": true}}})");
  EXPECT_EQ(kimi.data.tiktoken_pattern, TiktokenPattern::Kimi);
  EXPECT_EQ(kimi.tokenizer->eod(), 8000);
  const Found own = pattern("tiktoken.model", R"({"pat_str": "\\p{L}+|\\P{L}"})");
  EXPECT_FALSE(own.data.tiktoken_pattern);
  EXPECT_TRUE(own.tokenizer);
  const auto ranks = static_cast<int64_t>(families().at("ranks").size());
  const Found qwen = pattern("qwen.tiktoken", "");
  EXPECT_EQ(qwen.data.tiktoken_pattern, TiktokenPattern::Qwen);
  EXPECT_EQ(qwen.tokenizer->vocab_size(), ranks + 208);
  EXPECT_EQ(qwen.tokenizer->eod(), ranks);
  EXPECT_EQ(ids_of(*qwen.tokenizer, "<|im_end|>"), std::vector<int32_t>{static_cast<int32_t>(ranks) + 2});
}

// A folder that was exported here says how its tokenizer was used.
TEST(ModelsTokenizerFiles, TheRecordedPatternIsKept) {
  const TempDir dir;
  write_file(dir.file("tiktoken.model"), ranks_text());
  DataConfig data;
  data.tokenizer_type = TokenizerType::Tiktoken;
  data.tokenizer_model = "/gone/small.tiktoken";
  data.tiktoken_pattern = TiktokenPattern::O200k;
  data.tiktoken_special_tokens = {"<|end|>"};
  const Found found = find(dir, data);
  EXPECT_EQ(found.data.tokenizer_model, "tiktoken.model");
  EXPECT_EQ(found.data.tiktoken_pattern, TiktokenPattern::O200k);
  EXPECT_EQ(found.data.tiktoken_special_tokens, data.tiktoken_special_tokens);
}

TEST(ModelsTokenizerFiles, QwensVocabularyIsCutAsItsTokenizerJson) {
  const TempDir dir;
  nlohmann::json whole = golden("gpt2");
  write_file(dir.file("vocab.json"), whole.at("model").at("vocab").dump());
  write_file(dir.file("merges.txt"), merges_text(whole.at("model")));
  write_file(dir.file("tokenizer_config.json"), R"({"tokenizer_class": "Qwen2Tokenizer"})");
  const Found found = find(dir);
  ASSERT_TRUE(found.tokenizer) << found.problem;
  whole["normalizer"] = {{"type", "NFC"}};
  whole["pre_tokenizer"] = nlohmann::json::parse(
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex":
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
      "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})");
  write_file(dir.file("other.json"), whole.dump());
  const auto json = make_tokenizer(TokenizerType::HuggingFace, dir.file("other.json"));
  const std::string text = kText + " cafe\xCC\x81 I'LL";
  EXPECT_EQ(ids_of(*found.tokenizer, text), ids_of(*json, text));
  const auto gpt2 =
      make_tokenizer(TokenizerType::HuggingFace, test::test_data() + "/golden/hf_tokenizers/gpt2.json");
  EXPECT_NE(ids_of(*found.tokenizer, text), ids_of(*gpt2, text));
}

TEST(ModelsTokenizerFiles, AVocabularyOfBertIsLowerCaseByItsConfig) {
  const TempDir dir;
  write_file(dir.file("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\nking\nKing\n");
  EXPECT_EQ(ids_of(*find(dir).tokenizer, "King"), std::vector<int32_t>{4});
  write_file(dir.file("tokenizer_config.json"), R"({"do_lower_case": false, "strip_accents": null})");
  const Found cased = find(dir);
  EXPECT_EQ(cased.data.tokenizer_type, TokenizerType::WordPieceCased);
  EXPECT_EQ(ids_of(*cased.tokenizer, "King"), std::vector<int32_t>{5});
  write_file(dir.file("tokenizer_config.json"), R"({"strip_accents": false})");
  expect_has(find(dir).problem, "strip_accents");
}

}  // namespace
}  // namespace trifold::tokenizer_files
