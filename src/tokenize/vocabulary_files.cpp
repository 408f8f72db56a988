#include "tokenize/vocabulary_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/plain_text.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/mapped_file.h"
#include "tokenize/end_token.h"
#include "tokenize/tiktoken_files.h"
#include "tokenize/tokenizer.h"

namespace trifold {
namespace {

constexpr JsonLimits kVocabularyLimits{int64_t{64} << 20, 4, 1'000'000};
constexpr size_t kMostLines = size_t{1} << 24;

nlohmann::json read_merges(std::string_view text, const std::string& file) {
  nlohmann::json merges = nlohmann::json::array();
  each_line(text, file, [&](std::string_view line, size_t number) {
    if (line.empty() || (number == 1 && line.starts_with("#version"))) return;
    const size_t blank = line.find(' ');
    if (blank == 0 || blank == std::string_view::npos || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != std::string_view::npos)
      bad_input("{}:{}: '{}' is not a merge: two tokens with a blank between them are expected", file, number,
                printable(line, 60));
    merges.push_back(std::string(line));
  });
  if (merges.empty()) bad_input("{} has no merges: a pair of tokens a line is expected", file);
  return merges;
}

// The classes of tokenizers that read a vocab.json and a merges.txt.
enum class CutLike { Gpt2, Qwen2 };
constexpr std::pair<std::string_view, CutLike> kBytePairClasses[] = {
    {"GPT2Tokenizer", CutLike::Gpt2},       {"RobertaTokenizer", CutLike::Gpt2},
    {"BartTokenizer", CutLike::Gpt2},       {"CodeGenTokenizer", CutLike::Gpt2},
    {"LongformerTokenizer", CutLike::Gpt2}, {"Qwen2Tokenizer", CutLike::Qwen2}};

// How text is cut, by the tokenizer_config.json next to the vocabulary.
struct TextCutting {
  CutLike like = CutLike::Gpt2;
  bool space = false;  // is put before a text
};

// BadInput for a class that is not in the table.
TextCutting text_cutting(const std::string& vocabulary) {
  const nlohmann::json config = json_beside(vocabulary, kTokenizerConfig);
  if (!config.is_object()) return {};
  const JsonView view(config, path_beside(vocabulary, kTokenizerConfig));
  std::string name = view.text("tokenizer_class", "GPT2Tokenizer");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const auto* const known = std::find_if(std::begin(kBytePairClasses), std::end(kBytePairClasses),
                                         [&](const auto& each) { return each.first == name; });
  if (known == std::end(kBytePairClasses))
    bad_input(
        "{} is of a {}, which may cut text in another way than GPT-2: "
        "give its tokenizer.json with --tokenizer-type huggingface",
        path_beside(vocabulary, kTokenizerConfig), printable(name));
  return {known->second, view.flag("add_prefix_space", false)};
}

void set_cutting(const TextCutting& cutting, nlohmann::json& tokenizer) {
  nlohmann::json& cut = tokenizer["pre_tokenizer"];
  cut = {{"type", "ByteLevel"}, {"add_prefix_space", cutting.space}};
  if (cutting.like == CutLike::Gpt2) return;
  cut["use_regex"] = false;
  const nlohmann::json words = {{"type", "Split"},
                                {"pattern", {{"Regex", text_of_pattern(TiktokenPattern::Qwen)}}},
                                {"behavior", "Isolated"},
                                {"invert", false}};
  cut = {{"type", "Sequence"}, {"pretokenizers", nlohmann::json::array_t{words, cut}}};
  tokenizer["normalizer"] = {{"type", "NFC"}};
}

}  // namespace

void each_line(std::string_view text, const std::string& file,
               FunctionRef<void(std::string_view, size_t)> body) {
  for (size_t number = 1; !text.empty(); ++number) {
    if (number > kMostLines) bad_input("{} has more than {} lines", file, kMostLines);
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    body(line, number);
  }
}

void expect_all_bytes(const nlohmann::json::object_t& vocabulary, const std::string& file) {
  for (int byte = 0; byte < 256; ++byte)
    if (const char c = static_cast<char>(byte); !vocabulary.contains(token_of_bytes({&c, 1})))
      bad_input("{} has no token for the byte {}", file, byte);
}

nlohmann::json special_token(int64_t id, std::string_view token) {
  return {{"id", id},        {"content", token}, {"special", true},    {"single_word", false},
          {"lstrip", false}, {"rstrip", false},  {"normalized", false}};
}

void add_tokens_beside(const std::string& file, nlohmann::json& added) {
  const nlohmann::json config = json_beside(file, kTokenizerConfig);
  if (!config.is_object() || !config.contains("added_tokens_decoder")) return;
  const std::string where = path_beside(file, kTokenizerConfig);
  JsonView(config, where)
      .at("added_tokens_decoder")
      .members([&](const std::string& text, const JsonView& token) {
        int64_t id = 0;
        const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), id);
        if (problem != std::errc() || end != text.data() + text.size())
          bad_input("{}: added_tokens_decoder has the key \"{}\", which is no id", where, printable(text));
        nlohmann::json entry = token.value();
        if (!entry.is_object()) bad_input("{}: added_tokens_decoder: the value of {} is no token", where, id);
        entry["id"] = id;
        added.push_back(std::move(entry));
      });
}

std::string merges_beside(const std::string& vocabulary, const std::optional<std::string>& merges) {
  return merges.value_or((std::filesystem::path(vocabulary).parent_path() / kMergesName).string());
}

TokenizerParts read_gpt2_files(const std::string& vocabulary, const std::optional<std::string>& merges) {
  const std::string merges_file = merges_beside(vocabulary, merges);
  const MappedFile words(vocabulary), pairs(merges_file);
  expect_plain_text(words.text(), vocabulary);
  expect_plain_text(pairs.text(), merges_file);
  nlohmann::json ids = parse_json(words.text(), vocabulary, kVocabularyLimits);
  if (!ids.is_object() || ids.contains("model"))
    bad_input(
        "{} is not the vocabulary of a GPT-2: a JSON object of tokens and ids is expected (a tokenizer.json is of "
        "--tokenizer-type huggingface)",
        vocabulary);
  nlohmann::json all_merges = read_merges(pairs.text(), merges_file);
  expect_all_bytes(ids.get_ref<const nlohmann::json::object_t&>(), vocabulary);
  TokenizerParts parts;
  parts.file = vocabulary;
  constexpr const char* kEnd = "<|endoftext|>";
  parts.json["added_tokens"] = nlohmann::json::array();
  if (const auto end = ids.find(kEnd); end != ids.end() && end->is_number_integer())
    parts.json["added_tokens"].push_back(special_token(end->get<int64_t>(), kEnd));
  nlohmann::json beside = nlohmann::json::array();
  add_tokens_beside(vocabulary, beside);
  const TextCutting cutting = text_cutting(vocabulary);
  std::string content = std::string(words.text()) + std::string(pairs.text());
  if (cutting.space) content += "add_prefix_space";
  if (cutting.like == CutLike::Qwen2) content += "Qwen2Tokenizer";
  if (!beside.empty()) content += json_text(beside);
  parts.fingerprint = model_fingerprint("gpt2-bpe", content);
  for (nlohmann::json& token : beside) parts.json["added_tokens"].push_back(std::move(token));
  set_cutting(cutting, parts.json);
  parts.json["model"] = {{"type", "BPE"}, {"vocab", std::move(ids)}, {"merges", std::move(all_merges)}};
  return parts;
}

TokenizerParts read_word_pieces(const std::string& vocabulary, bool lower) {
  const MappedFile words(vocabulary);
  expect_plain_text(words.text(), vocabulary);
  nlohmann::json ids = nlohmann::json::object();
  int64_t count = 0;
  each_line(words.text(), vocabulary,
            [&](std::string_view line, size_t) { ids[std::string(line)] = count++; });
  constexpr const char* kSpecial[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  if (!ids.contains("[UNK]"))
    bad_input("{} is not the vocabulary of a BERT: a token a line is expected, one of them [UNK]",
              vocabulary);
  TokenizerParts parts;
  parts.file = vocabulary;
  parts.fingerprint = model_fingerprint(lower ? "wordpiece-lower" : "wordpiece-cased", words.text());
  parts.json["added_tokens"] = nlohmann::json::array();
  for (const char* token : kSpecial)
    if (ids.contains(token))
      parts.json["added_tokens"].push_back(special_token(ids[token].get<int64_t>(), token));
  parts.json["normalizer"] = {{"type", "BertNormalizer"},
                              {"clean_text", true},
                              {"handle_chinese_chars", true},
                              {"strip_accents", nullptr},
                              {"lowercase", lower}};
  parts.json["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  parts.json["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  parts.json["model"] = {{"type", "WordPiece"},
                         {"unk_token", "[UNK]"},
                         {"continuing_subword_prefix", "##"},
                         {"max_input_chars_per_word", 100},
                         {"vocab", std::move(ids)}};
  return parts;
}

}  // namespace trifold
