// Every code point against Hugging Face's `tokenizers`: tools/reference/hugging_face_tokenizers.py wrote the
// hashes. The results must not depend on the Unicode version of the host's libraries.
#include "tokenize/unicode/unicode.h"

#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/test_data.h"
#include "tokenize/hugging_face_tokenizer.h"
#include "tokenize/pre_tokenizer.h"
#include "tokenize/text_normalizer.h"

namespace trifold::unicode_test {
namespace {

const std::string kFolder = test::test_data() + "/golden/hf_tokenizers/";
constexpr char32_t kChunk = 0x4000;

const nlohmann::json& golden() {
  static const nlohmann::json kGolden = nlohmann::json::parse(test::read_file(kFolder + "unicode.json"));
  return kGolden;
}

std::string fnv(std::string_view data) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char byte : data) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  return fmt::format("{:016x}", hash);
}

// Texts of kChunk code points each: body(character, text) appends the result for one.
template <class Body>
std::vector<std::string> chunks(Body&& body) {
  std::vector<std::string> texts;
  for (char32_t begin = 0; begin < 0x110000; begin += kChunk) {
    std::string text;
    for (char32_t c = begin; c < begin + kChunk; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      std::string character;
      append_character(character, c);
      body(character, text);
    }
    if (!text.empty()) texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> random_sequences() {
  std::vector<char32_t> pool;
  for (const auto& range : golden().at("pool"))
    for (uint32_t c = range.at(0); c <= range.at(1).get<uint32_t>(); ++c) pool.push_back(c);
  uint64_t state = 1;
  std::vector<std::string> texts(20);
  for (std::string& text : texts)
    for (int line = 0; line < 1000; ++line) {
      if (line > 0) text += '\n';
      for (int i = 0; i < 12; ++i) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        append_character(text, pool[(state >> 33) % pool.size()]);
      }
    }
  return texts;
}

std::string words_of(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::string joined;
  for (const std::string_view word : pre_tokenizer.cut(text).views)
    joined.append(joined.empty() ? "" : "\x1f").append(word);
  return joined;
}

void expect_all(const nlohmann::json& expected, const std::vector<std::string>& texts,
                const nlohmann::json& what, FunctionRef<std::string(std::string_view)> made) {
  ASSERT_EQ(expected.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(fnv(made(texts[i])), expected[i].get<std::string>()) << what << ", text " << i;
}

TEST(Unicode, NormalizersChangeEveryCharacterAlike) {
  const auto texts = chunks([](const std::string& c, std::string& text) { text += c + "a"; });
  for (const auto& entry : golden().at("normalizers")) {
    const TextNormalizer normalizer(entry.at(0));
    expect_all(entry.at(1), texts, entry.at(0), [&](std::string_view text) { return normalizer(text); });
  }
}

TEST(Unicode, NormalFormsOfRandomSequencesAreAlike) {
  const auto texts = random_sequences();
  for (const auto& entry : golden().at("random")) {
    const TextNormalizer normalizer(entry.at(0));
    expect_all(entry.at(1), texts, entry.at(0), [&](std::string_view text) { return normalizer(text); });
  }
}

TEST(Unicode, PreTokenizersCutAtEveryCharacterAlike) {
  const auto texts = chunks([](const std::string& c, std::string& text) { text += c + "a" + c + "1"; });
  for (const auto& entry : golden().at("cuts")) {
    const PreTokenizer pre_tokenizer(entry.at(0));
    expect_all(entry.at(1), texts, entry.at(0),
               [&](std::string_view text) { return words_of(pre_tokenizer, text); });
  }
}

TEST(Unicode, TokensOfEveryCharacterAreAlike) {
  const HuggingFaceTokenizer tokenizer(kFolder + "gpt2.json");
  const auto texts = chunks([](const std::string& c, std::string& text) { text += c + "a"; });
  expect_all(golden().at("ids"), texts, "ids", [&](std::string_view text) {
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t));
  });
}

TEST(Unicode, CaseIsIgnoredAlike) {
  const auto text = golden().at("fold_text").get<std::string>();
  for (const auto& entry : golden().at("folds")) {
    const PreTokenizer pre_tokenizer(nlohmann::json{{"type", "Split"},
                                                    {"pattern", {{"Regex", entry.at(0)}}},
                                                    {"behavior", "Isolated"},
                                                    {"invert", false}});
    EXPECT_EQ(fnv(words_of(pre_tokenizer, text)), entry.at(1).get<std::string>()) << entry.at(0);
  }
}

}  // namespace
}  // namespace trifold::unicode_test
