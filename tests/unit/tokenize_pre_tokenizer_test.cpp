// The words of a pre_tokenizer against Hugging Face's library: patterns.json and the play's ids come from
// tools/reference/hugging_face_tokenizers.py.
#include "tokenize/pre_tokenizer.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/printable.h"
#include "support/files.h"
#include "support/refusal.h"
#include "support/test_data.h"
#include "tokenize/document_encoder.h"
#include "tokenize/hugging_face_tokenizer.h"
#include "tokenize/unicode/unicode.h"

namespace trifold::pre_tokenizer_test {
namespace {

using test::expect_has;
using test::read_file;

const std::string kFolder = test::test_data() + "/golden/hf_tokenizers/";

const nlohmann::json& golden() {
  static const nlohmann::json kGolden = nlohmann::json::parse(read_file(kFolder + "patterns.json"));
  return kGolden;
}

nlohmann::json split(const std::string& pattern, const std::string& behavior = "Isolated") {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}};
}

std::string fnv(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ULL;
  return fmt::format("{:016x}", hash);
}

std::string hash_of(const std::vector<int32_t>& ids) {
  return fnv({reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
}

// The words with a character between them that no text here has; or the error.
std::string cut(const nlohmann::json& pre_tokenizer, std::string_view text) try {
  const PreTokenizer cutter(pre_tokenizer);
  const Words words = cutter.cut(text);
  return fmt::format("{}", fmt::join(words.views, "\x1f"));
} catch (const Error& error) {
  return error.what();
}

// `count` times `part`, in lists within lists of ten.
nlohmann::json nested(const char* list, const nlohmann::json& part, int count) {
  nlohmann::json parts = nlohmann::json::array();
  while (count > 0) {
    const int inner = std::min(count, 10);
    parts.push_back({{"type", "Sequence"}, {list, nlohmann::json(static_cast<size_t>(inner), part)}});
    count -= inner;
  }
  return {{"type", "Sequence"}, {list, std::move(parts)}};
}

// Every step takes time for every text, and hundreds of texts are tried at construction.
TEST(PreTokenizer, TheNumberOfStepsIsLimited) {
  const nlohmann::json space{{"type", "WhitespaceSplit"}};
  EXPECT_EQ(cut(nested("pretokenizers", space, 50), "a b"),
            "a\x1f"
            "b");
  const auto start = Clock::now();
  const nlohmann::json words{{"type", "ByteLevel"}, {"add_prefix_space", true}};
  for (const nlohmann::json& step : {space, words, split("a+")})
    expect_has(cut(nested("pretokenizers", step, 5000), "a b"), "its pre_tokenizer has more than 64 steps");
  expect_has(cut(split(std::string(20'000, 'a')), "a"), "a pattern of its pre_tokenizer has 20000 bytes");
  for (const char* type : {"NFKC", "Lowercase", "BertNormalizer"}) {
    const nlohmann::json many = nested("normalizers", {{"type", type}}, 5000);
    expect_has(test::refusal([&] { const TextNormalizer normalizer(many); }),
               "its normalizer has more than 64 steps");
  }
  EXPECT_LT(seconds_since(start), 5);
}

TEST(PreTokenizer, PatternsCutAsInTheDialectOfTheLibrary) {
  const auto text = golden().at("text").get<std::string>();
  for (const auto& one : golden().at("cuts")) {
    const auto pattern = one.at(0).get<std::string>();
    const auto behavior = one.at(1).get<std::string>();
    const std::string words = cut(split(pattern, behavior), text);
    EXPECT_EQ(fnv(words), one.at(2)) << pattern << " " << behavior << " " << nlohmann::json(words);
  }
}

TEST(PreTokenizer, SetsOfCharactersAreThoseOfTheLibrary) {
  std::string every;
  for (const auto& run : golden().at("runs"))
    for (char32_t c = run.at(0).get<uint32_t>(); c <= run.at(1).get<uint32_t>(); ++c)
      append_character(every, c);
  for (const auto& one : golden().at("sets")) {
    const auto pattern = one.at(0).get<std::string>();
    const std::string words = cut(split(pattern, "Removed"), every);
    EXPECT_EQ(fnv(words), one.at(1)) << pattern << " " << words.substr(0, 200);
  }
}

TEST(PreTokenizer, ALongBlankIsCut) {
  const HuggingFaceTokenizer tokenizer(kFolder + "gpt2.json");
  std::vector<int32_t> ids;
  tokenizer.encode("a" + std::string(600000, ' ') + "b", ids);
  EXPECT_EQ(hash_of(ids), golden().at("blanks"));
}

TEST(PreTokenizer, APatternThatWouldTakeForeverIsNamed) {
  const std::string message = cut(split("(a+)+$|b"), std::string(40, 'a') + "c");
  expect_has(message, "the pattern (a+)+$|b of the pre_tokenizer");
  expect_has(message, "41 bytes");
}

// Found by the fuzzer: hundreds of short lines are tried at the start, each of which took seconds.
TEST(PreTokenizer, APatternThatIsSlowOnALineIsRefusedAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  expect_has(test::error_of([] { PreTokenizer slow(split("(?:(?:[ -z]*)*)*\\x{1}")); }),
             "of the pre_tokenizer takes too long on a text of");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(PreTokenizer, APatternThatIsNotSupportedIsNamedWithItsPlace) {
  static const std::vector<std::pair<std::string, std::string>> kPatterns{
      {R"((a)\1)", "it has \\1 before byte 5"},
      {R"(\Ga)", "it has \\G before byte 2"},
      {R"(\X)", "it has \\X"},
      {R"((?x) a)", "a group that is neither (?:"},
      {R"((?~a))", "a group that is neither (?:"},
      {R"(\p{InBasicLatin})", "the property \"InBasicLatin\""},
      {R"((?i)\p{Ll})", "a property inside of (?i"},
      {R"((?i:[à-ÿ]))", "a character beyond ASCII in a set inside of (?i"},
      {R"(\x80)", "a number that is no character"},
      {R"([])", "a set of nothing"},
      {R"([z-a])", "a range that is empty"},
      {R"(a{3,2})", "in the wrong order"},
      {R"(*a)", "a quantifier of nothing"},
      {R"(a))", "a ) that ends no group"},
      {R"((a)", "a group that does not end before byte 2"},
      {R"([a)", "a set that does not end"},
      {R"(a\)", "an escape that does not end"},
      {std::string(300, '('), "more than 200 groups or sets in one another"},
      {std::string(300, '['), "more than 200 groups or sets in one another"}};
  for (const auto& [pattern, message] : kPatterns)
    expect_has(cut(split(pattern), "a"),
               fmt::format("the pattern {} of its pre_tokenizer cannot be read: ", printable(pattern)));
  for (const auto& [pattern, message] : kPatterns) expect_has(cut(split(pattern), "a"), message);
}

}  // namespace
}  // namespace trifold::pre_tokenizer_test
