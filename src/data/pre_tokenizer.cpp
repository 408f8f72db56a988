#include "data/pre_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/unicode.h"

namespace trifold {

namespace {

// The words of GPT-2: contractions of English, then letters, digits or others with at most one space before
// them, then white space, of which the last is left to a word behind it.
constexpr const char* kWordsOfGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Bytes of UTF-8 that UTF-16 units [begin, end) have.
size_t utf8_size(const icu::UnicodeString& text, int32_t begin, int32_t end) {
  size_t size = 0;
  for (int32_t i = begin; i < end; ++i) {
    const char16_t unit = text.charAt(i);
    size += unit < 0x80 ? 1 : unit < 0x800 ? 2 : U16_IS_SURROGATE(unit) ? 2 : 3;
  }
  return size;
}

}  // namespace

PreTokenizer::PreTokenizer(const nlohmann::json& json) {
  if (!json.is_null()) add(json);
}

void PreTokenizer::add(const nlohmann::json& json) {
  const std::string type = json.at("type").get<std::string>();
  if (type == "Sequence") {
    for (const nlohmann::json& part : json.at("pretokenizers")) add(part);
  } else if (type == "ByteLevel") {
    add_byte_level(json);
  } else if (type == "Split") {
    add_split(json);
  } else if (type == "Digits") {
    const bool single = json.value("individual_digits", false);
    stages_.push_back({.matches = is_number, .behavior = single ? Behavior::Isolated : Behavior::Contiguous});
  } else if (type == "BertPreTokenizer") {
    stages_.push_back({.matches = is_white_space, .behavior = Behavior::Removed});
    stages_.push_back({.matches = is_punctuation_of_bert});
  } else if (type == "Whitespace") {
    stages_.push_back(
        {.pattern = compile(R"(\w+|[^\w\s]+)", false), .behavior = Behavior::Removed, .invert = true});
  } else if (type == "WhitespaceSplit") {
    stages_.push_back({.matches = is_white_space, .behavior = Behavior::Removed});
  } else if (type == "Punctuation") {
    const Behavior behavior = behavior_of(json.value("behavior", "Isolated"));
    stages_.push_back({.matches = is_punctuation_of_bert, .behavior = behavior});
  } else {
    bad_input(
        "its pre_tokenizer \"{}\" is not supported; ByteLevel, Split, Digits, BertPreTokenizer, Whitespace, "
        "WhitespaceSplit, Punctuation and Sequence are",
        type);
  }
}

void PreTokenizer::add_byte_level(const nlohmann::json& json) {
  byte_level_ = true;
  if (json.value("add_prefix_space", true)) stages_.push_back({.prefix_space = true});
  if (json.value("use_regex", true)) stages_.push_back({.pattern = compile(kWordsOfGpt2, false)});
}

void PreTokenizer::add_split(const nlohmann::json& json) {
  const nlohmann::json& pattern = json.at("pattern");
  const bool literal = pattern.contains("String");
  const std::string text = pattern.at(literal ? "String" : "Regex").get<std::string>();
  stages_.push_back({.pattern = compile(text, literal),
                     .behavior = behavior_of(json.at("behavior").get<std::string>()),
                     .invert = json.value("invert", false)});
}

PreTokenizer::Behavior PreTokenizer::behavior_of(const std::string& name) {
  if (name == "Isolated") return Behavior::Isolated;
  if (name == "Removed") return Behavior::Removed;
  if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::MergedWithNext;
  if (name == "Contiguous") return Behavior::Contiguous;
  bad_input("the behavior \"{}\" of its pre_tokenizer is not known", name);
}

std::shared_ptr<const icu::RegexPattern> PreTokenizer::compile(const std::string& pattern, bool literal) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError place{};
  std::shared_ptr<const icu::RegexPattern> compiled(icu::RegexPattern::compile(
      icu::UnicodeString::fromUTF8(pattern), literal ? UREGEX_LITERAL : 0, place, status));
  if (U_FAILURE(status))
    bad_input("the pattern {} of its pre_tokenizer cannot be read: {} at character {}", pattern,
              u_errorName(status), place.offset);
  return compiled;
}

void PreTokenizer::find_characters(const Stage& stage, std::string_view text, std::vector<Part>& parts) {
  size_t open = 0;  // where what does not match begins
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!stage.matches(next_character(text, at))) continue;
    if (open < begin) parts.push_back({open, begin, false});
    parts.push_back({begin, at, true});
    open = at;
  }
  if (open < text.size()) parts.push_back({open, text.size(), false});
}

// ICU counts in UTF-16; the places in UTF-8 are counted along.
void PreTokenizer::find_pattern(icu::RegexMatcher& matcher, std::string_view text, std::vector<Part>& parts) {
  const icu::UnicodeString wide =
      icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  matcher.reset(wide);
  UErrorCode status = U_ZERO_ERROR;
  int32_t done = 0;
  size_t at = 0;
  const auto add = [&](int32_t end, bool match) {
    if (end == done) return;
    const size_t begin = at;
    at += utf8_size(wide, done, end);
    done = end;
    parts.push_back({begin, at, match});
  };
  while (matcher.find(status) != 0 && U_SUCCESS(status)) {
    add(matcher.start(status), false);
    add(matcher.end(status), true);
  }
  check(U_SUCCESS(status), "a pattern of the pre_tokenizer fails on a text of {} bytes: {}", text.size(),
        u_errorName(status));
  add(wide.length(), false);
}

// Joins or drops the parts as the behavior says.
void PreTokenizer::arrange(const Stage& stage, std::vector<Part>& parts) {
  if (stage.invert)
    for (Part& part : parts) part.match = !part.match;
  if (stage.behavior == Behavior::Isolated) return;
  if (stage.behavior == Behavior::Removed) {
    std::erase_if(parts, [](const Part& part) { return part.match; });
    return;
  }
  const bool backward = stage.behavior == Behavior::MergedWithNext;
  if (backward) std::reverse(parts.begin(), parts.end());
  std::vector<Part> joined;
  bool last_match = false;
  for (const Part& part : parts) {
    const bool join =
        stage.behavior == Behavior::Contiguous ? part.match == last_match : part.match && !last_match;
    last_match = part.match;
    if (!join || joined.empty()) {
      joined.push_back(part);
    } else if (backward) {
      joined.back().begin = part.begin;
    } else {
      joined.back().end = part.end;
    }
  }
  if (backward) std::reverse(joined.begin(), joined.end());
  parts = std::move(joined);
}

void PreTokenizer::put_spaces(Words& words) {
  for (std::string_view& word : words.views) {
    if (word.starts_with(' ')) continue;
    words.changed.push_back(" " + std::string(word));
    word = words.changed.back();
  }
}

void PreTokenizer::run(const Stage& stage, Words& words) {
  if (stage.prefix_space) return put_spaces(words);
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(stage.pattern ? stage.pattern->matcher(status) : nullptr);
  check(U_SUCCESS(status), "a pattern of the pre_tokenizer cannot be used: {}", u_errorName(status));
  std::vector<std::string_view> cut;
  std::vector<Part> parts;
  for (const std::string_view word : words.views) {
    parts.clear();
    if (stage.pattern) {
      find_pattern(*matcher, word, parts);
    } else {
      find_characters(stage, word, parts);
    }
    arrange(stage, parts);
    for (const Part& part : parts) cut.push_back(word.substr(part.begin, part.end - part.begin));
  }
  words.views = std::move(cut);
}

Words PreTokenizer::cut(std::string_view text) const {
  Words words;
  if (!text.empty()) words.views.push_back(text);
  for (const Stage& stage : stages_) run(stage, words);
  return words;
}

}  // namespace trifold
