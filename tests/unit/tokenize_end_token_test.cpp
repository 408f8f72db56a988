// The token that ends a document: the option's, the model folder's, or the usual one.
#include "tokenize/end_token.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/hugging_face_tokenizer.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::read_file;
using test::TempDir;
using test::write_file;

// A folder with a tokenizer.json that has these added tokens, from kFirst on.
class Folder {
 public:
  explicit Folder(const std::vector<std::string>& tokens) {
    nlohmann::json json =
        nlohmann::json::parse(read_file(test::test_data() + "/golden/hf_tokenizers/gpt2.json"));
    const nlohmann::json like = json["added_tokens"][0];
    first_ = static_cast<int32_t>(json["model"]["vocab"].size());
    json["added_tokens"].clear();
    json["model"]["vocab"].erase("<|endoftext|>");
    for (size_t i = 0; i < tokens.size(); ++i) {
      nlohmann::json token = like;
      token["content"] = tokens[i];
      token["id"] = first_ + static_cast<int32_t>(i);
      json["added_tokens"].push_back(token);
    }
    write("tokenizer.json", json);
  }
  void write(const char* name, const nlohmann::json& json) const { write_file(dir_.file(name), json.dump()); }
  void write_text(const char* name, const std::string& text) const { write_file(dir_.file(name), text); }
  void remove(const char* name) const { std::filesystem::remove(dir_.file(name)); }
  std::string file() const { return dir_.file("tokenizer.json"); }
  std::optional<int32_t> end(const std::optional<std::string>& named = std::nullopt) const {
    return HuggingFaceTokenizer(file(), named).eod();
  }
  // The id of the i-th added token.
  int32_t id(int32_t i) const { return first_ + i; }

 private:
  TempDir dir_;
  int32_t first_ = 0;
};

TEST(EndToken, IsTheOneThatTheFolderNames) {
  const Folder folder({"<|endoftext|>", "<|im_end|>", "<stop>", "<other>"});
  EXPECT_EQ(folder.end(), folder.id(0)) << "the usual one";
  folder.write("generation_config.json", {{"eos_token_id", {folder.id(3), folder.id(0)}}});
  EXPECT_EQ(folder.end(), folder.id(3));
  folder.write("config.json", {{"eos_token_id", folder.id(2)}});
  EXPECT_EQ(folder.end(), folder.id(2));
  EXPECT_TRUE(only_config_names_end(folder.file(), 100000));
  folder.write("special_tokens_map.json", {{"eos_token", {{"content", "<other>"}, {"lstrip", false}}}});
  EXPECT_EQ(folder.end(), folder.id(3));
  EXPECT_FALSE(only_config_names_end(folder.file(), 100000));
  folder.write("tokenizer_config.json",
               {{"eos_token", "<|im_end|>"}, {"added_tokens_decoder", nlohmann::json::object()}});
  EXPECT_EQ(folder.end(), folder.id(1));
  EXPECT_EQ(folder.end("<stop>"), folder.id(2)) << "the option comes first";
}

TEST(EndToken, IsAUsualOneOfEveryFamily) {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|im_end|>",
                           "<｜end▁of▁sentence｜>"})
    EXPECT_TRUE(Folder({name}).end().has_value()) << name;
  EXPECT_FALSE(Folder({"<pad>"}).end().has_value());
}

TEST(EndToken, SkipsWhatTheTokenizerDoesNotHave) {
  const Folder folder({"<stop>"});
  folder.write("tokenizer_config.json", {{"eos_token", "<elsewhere>"}});
  folder.write("special_tokens_map.json", {{"eos_token", nullptr}});
  folder.write("config.json", {{"eos_token_id", 10000000}});
  EXPECT_FALSE(folder.end().has_value());
  folder.write("config.json", {{"text_config", {{"eos_token_id", folder.id(0)}}}});
  EXPECT_EQ(folder.end(), folder.id(0));
}

TEST(EndToken, RefusesMistakes) {
  const Folder folder({"<stop>"});
  expect_has(error_of([&] { folder.end("<no>"); }), "--eod-token <no>");
  folder.write("tokenizer_config.json", {{"eos_token", 5}});
  expect_has(error_of([&] { folder.end(); }), "tokenizer_config.json");
  EXPECT_EQ(folder.end("<stop>"), folder.id(0)) << "other files are not read";
  folder.write_text("tokenizer_config.json", "{");
  expect_has(error_of([&] { folder.end(); }), "tokenizer_config.json");
}

// Streams compare fingerprints before they continue: documents that end in another way are other data.
TEST(EndToken, BelongsToTheFingerprintUnlessItIsTheUsualOne) {
  const Folder folder({"<|endoftext|>", "<stop>"});
  const std::string usual = HuggingFaceTokenizer(folder.file()).fingerprint();
  EXPECT_EQ(HuggingFaceTokenizer(folder.file(), "<|endoftext|>").fingerprint(), usual);
  EXPECT_NE(HuggingFaceTokenizer(folder.file(), "<stop>").fingerprint(), usual);
}

TEST(EndToken, OfASentencePieceModelIsItsOwnUnlessNamed) {
  const TempDir dir;
  write_file(dir.file("tokenizer.model"), read_file(test::test_data() + "/data/shakespeare_400.model"));
  EXPECT_EQ(SentencePieceTokenizer(dir.file("tokenizer.model")).eod(), 2);
  EXPECT_EQ(SentencePieceTokenizer(dir.file("tokenizer.model"), "<s>").eod(), 1);
  write_file(dir.file("tokenizer_config.json"), R"({"eos_token": "<|im_end|>"})");
  EXPECT_EQ(SentencePieceTokenizer(dir.file("tokenizer.model")).eod(), 2);
  write_file(dir.file("tokenizer_config.json"), R"({"eos_token": "<s>"})");
  EXPECT_EQ(SentencePieceTokenizer(dir.file("tokenizer.model")).eod(), 1);
  expect_has(error_of([&] { SentencePieceTokenizer(dir.file("tokenizer.model"), "<no>"); }),
             "--eod-token <no>");
  expect_has(error_of([] { make_tokenizer(TokenizerType::Byte, std::nullopt, true, "x"); }), "--eod-token x");
}

}  // namespace
}  // namespace trifold
