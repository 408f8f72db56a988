// Tokenizers from plain files have the ids of the tokenizer.json of the same model.
#include "tokenize/vocabulary_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/hugging_face_tokenizer.h"

namespace trifold::vocabulary_files {
namespace {

using test::error_of;
using test::expect_has;
using test::read_file;
using test::TempDir;
using test::write_file;

const std::string kText =
    "The king's 3 sons, who'd  left in 1603,\n\tsaid: <|endoftext|>\"Caf\xC3\xA9 \xE4\xBD\xA0\xE5\xA5\xBD\"! HELLO Stra\xC3\x9F"
    "e [MASK] ...";

nlohmann::json golden(const std::string& name) {
  return nlohmann::json::parse(read_file(test::test_data() + "/golden/hf_tokenizers/" + name + ".json"));
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  tokenizer.encode(kText, ids);
  return ids;
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

std::unique_ptr<Tokenizer> with_merges(const std::string& vocabulary, const std::string& merges) {
  DataConfig data;
  data.tokenizer_type = TokenizerType::Gpt2Bpe;
  data.tokenizer_model = vocabulary;
  data.tokenizer_merges = merges;
  return make_tokenizer(data);
}

// The merges of a tokenizer.json as lines; newer files have pairs.
std::string merges_text(const nlohmann::json& model, const std::string& first) {
  std::string text = first;
  for (const nlohmann::json& merge : model.at("merges"))
    text += (merge.is_string() ? merge.get<std::string>()
                               : merge[0].get<std::string>() + " " + merge[1].get<std::string>()) +
            "\n";
  return text;
}

TEST(TokenizeVocabularyFiles, Gpt2HasTheIdsOfItsJson) {
  TempDir dir;
  const nlohmann::json whole = golden("gpt2");
  nlohmann::json vocabulary = whole.at("model").at("vocab");
  for (const nlohmann::json& token : whole.at("added_tokens"))
    vocabulary[token.at("content")] = token.at("id");
  write_file(dir.file("vocab.json"), vocabulary.dump());
  write_file(dir.file("merges.txt"), merges_text(whole.at("model"), "#version: 0.2\n"));
  write_file(dir.file("tokenizer.json"), whole.dump());
  const HuggingFaceTokenizer from_json(dir.file("tokenizer.json"));
  const auto beside = make_tokenizer(TokenizerType::Gpt2Bpe, dir.file("vocab.json"));
  EXPECT_EQ(ids_of(*beside), ids_of(from_json));
  EXPECT_EQ(beside->vocab_size(), from_json.vocab_size());
  EXPECT_EQ(beside->eod(), from_json.eod());
  EXPECT_EQ(beside->decode(ids_of(*beside)), from_json.decode(ids_of(from_json)));
  // Another file of merges, with other ids and another fingerprint.
  write_file(dir.file("one.txt"),
             merges_text(whole.at("model"), "").substr(0, merges_text(whole.at("model"), "").find('\n')));
  const auto other = with_merges(dir.file("vocab.json"), dir.file("one.txt"));
  EXPECT_NE(ids_of(*other), ids_of(from_json));
  EXPECT_NE(other->fingerprint(), beside->fingerprint());
}

// A folder of transformers has the tokens of chats, and the class of the tokenizer, in a tokenizer_config.json.
TEST(TokenizeVocabularyFiles, Gpt2HasTheTokensOfItsConfig) {
  TempDir dir;
  nlohmann::json whole = golden("gpt2");
  write_file(dir.file("vocab.json"), whole.at("model").at("vocab").dump());
  write_file(dir.file("merges.txt"), merges_text(whole.at("model"), "#version: 0.2\n"));
  const nlohmann::json added = {
      {"content", "<mask>"}, {"special", true}, {"lstrip", true}, {"normalized", false}};
  const auto open = [&](const nlohmann::json& config) {
    write_file(dir.file("tokenizer_config.json"), config.dump());
    return make_tokenizer(TokenizerType::Gpt2Bpe, dir.file("vocab.json"));
  };
  const nlohmann::json tokens = {{"700", added}};
  const auto roberta = open({{"tokenizer_class", "RobertaTokenizerFast"},
                             {"add_prefix_space", true},
                             {"added_tokens_decoder", tokens}});
  whole["added_tokens"].push_back(added);
  whole["added_tokens"].back()["id"] = 700;
  whole["pre_tokenizer"]["add_prefix_space"] = true;
  write_file(dir.file("tokenizer.json"), whole.dump());
  const HuggingFaceTokenizer from_json(dir.file("tokenizer.json"));
  std::vector<int32_t> ids, expected;
  for (const std::string& text : {kText, std::string("The  <mask> one")}) {
    roberta->encode(text, ids);
    from_json.encode(text, expected);
  }
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 700), 1);
  EXPECT_NE(roberta->fingerprint(), open(nlohmann::json::object())->fingerprint());
  EXPECT_NE(open({{"add_prefix_space", true}})->fingerprint(),
            open({{"add_prefix_space", false}})->fingerprint());
  nlohmann::json stripped = added;
  stripped["lstrip"] = false;
  EXPECT_NE(open({{"added_tokens_decoder", {{"700", added}}}})->fingerprint(),
            open({{"added_tokens_decoder", {{"700", stripped}}}})->fingerprint());
  expect_has(error_of([&] { open({{"added_tokens_decoder", {{"7", added}}}}); }), "two tokens of the id 7");
  expect_has(error_of([&] { open({{"tokenizer_class", "OtherTokenizer"}}); }), "is of a OtherTokenizer");
  expect_has(error_of([&] {
               open({{"added_tokens_decoder", {{"x", added}}}});
             }),
             "has the key \"x\", which is no id");
  expect_has(error_of([&] { open({{"added_tokens_decoder", {{"7", 1}}}}); }), "the value of 7 is no token");
}

// A byte without a token would vanish from the text, and of two tokens of one id only one could be decoded.
TEST(TokenizeVocabularyFiles, Gpt2HasATokenForEachByteAndAnIdForEachToken) {
  TempDir dir;
  const nlohmann::json whole = golden("gpt2");
  write_file(dir.file("merges.txt"), merges_text(whole.at("model"), ""));
  const auto refusal = [&](const nlohmann::json& vocabulary) {
    write_file(dir.file("vocab.json"), vocabulary.dump());
    return problem_of([&] { make_tokenizer(TokenizerType::Gpt2Bpe, dir.file("vocab.json")); });
  };
  nlohmann::json vocabulary = whole.at("model").at("vocab");
  EXPECT_EQ(refusal(vocabulary), "");
  vocabulary["<|two|>"] = 5;
  expect_has(refusal(vocabulary), "two tokens of the id 5");
  vocabulary.erase("<|two|>");
  vocabulary.erase("Q");
  expect_has(refusal(vocabulary), "vocab.json has no token for the byte 81");
}

TEST(TokenizeVocabularyFiles, BertHasTheIdsOfItsJson) {
  TempDir dir;
  const nlohmann::json whole = golden("bert_uncased");
  std::vector<std::string> tokens(whole.at("model").at("vocab").size());
  for (const auto& item : whole.at("model").at("vocab").items())
    tokens.at(item.value().get<size_t>()) = item.key();
  std::string text;
  for (const std::string& token : tokens) text += token + "\r\n";
  write_file(dir.file("vocab.txt"), text);
  write_file(dir.file("tokenizer.json"), whole.dump());
  const HuggingFaceTokenizer from_json(dir.file("tokenizer.json"));
  const bool lower = whole.at("normalizer").at("lowercase").get<bool>();
  const auto same = make_tokenizer(lower ? TokenizerType::WordPieceLower : TokenizerType::WordPieceCased,
                                   dir.file("vocab.txt"));
  const auto other = make_tokenizer(lower ? TokenizerType::WordPieceCased : TokenizerType::WordPieceLower,
                                    dir.file("vocab.txt"));
  EXPECT_EQ(ids_of(*same), ids_of(from_json));
  EXPECT_EQ(same->vocab_size(), from_json.vocab_size());
  EXPECT_NE(ids_of(*other), ids_of(from_json));
}

TEST(TokenizeVocabularyFiles, RefusesOtherFiles) {
  TempDir dir;
  const auto gpt2 = [&](const std::string& vocabulary, const std::string& merges) {
    write_file(dir.file("v.json"), vocabulary);
    write_file(dir.file("m.txt"), merges);
    return error_of([&] { with_merges(dir.file("v.json"), dir.file("m.txt")); });
  };
  expect_has(gpt2("[]", "a b"), "is not the vocabulary of a GPT-2");
  expect_has(gpt2(R"({"model": {}})", "a b"), "--tokenizer-type huggingface");
  expect_has(gpt2(R"({"a": 0})", "a b c"), "m.txt:1: 'a b c' is not a merge");
  expect_has(gpt2(R"({"a": 0})", "#version\n\nab\n"), "m.txt:3: 'ab' is not a merge");
  expect_has(gpt2(R"({"a": 0})", "#version\n"), "has no merges");
  expect_has(gpt2(R"({"a": 0})", "a z"), "v.json has no token for the byte 0");
  nlohmann::json vocabulary = golden("gpt2").at("model").at("vocab");
  expect_has(gpt2(vocabulary.dump(), "a <none>"), "<none>\", which is not in its vocab");
  vocabulary["a"] = "x";
  expect_has(gpt2(vocabulary.dump(), "a a"), "v.json");
  vocabulary["a"] = 99999999999;
  expect_has(gpt2(vocabulary.dump(), "a a"), "99999999999");
  expect_has(error_of([&] { make_tokenizer(TokenizerType::Gpt2Bpe, dir.file("none.json")); }), "none.json");
  write_file(dir.file("vocab.txt"), "a\nb\n");
  expect_has(error_of([&] { make_tokenizer(TokenizerType::WordPieceLower, dir.file("vocab.txt")); }),
             "is not the vocabulary of a BERT");
  expect_has(error_of([] { make_tokenizer(TokenizerType::Gpt2Bpe, std::nullopt); }),
             "needs --tokenizer-model FILE");
  expect_has(error_of([] { make_tokenizer(TokenizerType::Null, std::nullopt); }), "text needs a tokenizer");
}

}  // namespace
}  // namespace trifold::vocabulary_files
