#include "tokenize/pre_tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/ruby_pattern.h"
#include "tokenize/text_normalizer.h"
#include "tokenize/unicode/unicode.h"
#include "tokenize/unicode/unicode_tables.h"

namespace trifold {

namespace {

// The words of GPT-2: contractions of English, then letters, digits or others with at most one space before
// them, then white space, whose last character is left to a following word.
constexpr const char* kWordsOfGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The stack of the matcher, which keeps backtracking states of about 30 bytes per character of a long blank. With ICU's
// default limit of 8 MB a training run could fail midway.
constexpr int32_t kMostStackBytes = 1 << 28;
// Time limit in units of 10000 matcher steps: some seconds for one text; a common pattern takes a millisecond per 10
// KB.
constexpr int32_t kMostTime = 20000;
// Time limit for lines of some dozen bytes, hundreds of which are tried at construction: about a millisecond each.
constexpr int32_t kMostTimeOfLine = 5;
// Longer patterns take memory and time when they are compiled; published ones have up to 600 bytes.
constexpr size_t kMostPatternBytes = 1 << 14;

// The size in UTF-8 of UTF-16 units [begin, end).
size_t utf8_size(const icu::UnicodeString& text, int32_t begin, int32_t end) {
  size_t size = 0;
  for (int32_t i = begin; i < end; ++i) {
    const char16_t unit = text.charAt(i);
    size += unit < 0x80 ? 1 : unit < 0x800 ? 2 : U16_IS_SURROGATE(unit) ? 2 : 3;
  }
  return size;
}

}  // namespace

PreTokenizer::PreTokenizer(const nlohmann::json& json) : most_time_(kMostTimeOfLine) {
  if (!json.is_null()) add(json);
  try {
    find_line_cut();
  } catch (const Error& error) {  // a text that is the program's own is not at fault
    bad_input("{}", error.what());
  }
  most_time_ = kMostTime;
}

void PreTokenizer::add(const nlohmann::json& json) {
  const JsonView view(json, "pre_tokenizer");
  const std::string type = view.at("type").text();
  if (stages_.size() > kMostTokenizerSteps)
    bad_input("its pre_tokenizer has more than {} steps", kMostTokenizerSteps);
  if (type == "Sequence") {
    for (const nlohmann::json& part : view.at("pretokenizers").list()) add(part);
  } else if (type == "ByteLevel") {
    add_byte_level(json);
  } else if (type == "Split") {
    add_split(json);
  } else if (type == "Digits") {
    const bool single = view.flag("individual_digits", false);
    stages_.push_back({.matches = is_number, .behavior = single ? Behavior::Isolated : Behavior::Contiguous});
  } else if (type == "BertPreTokenizer") {
    stages_.push_back({.matches = is_white_space, .behavior = Behavior::Removed});
    stages_.push_back({.matches = is_punctuation_of_bert});
  } else if (type == "Whitespace") {
    const std::string words = UnicodeTables::get().words.ranges();
    const std::string spaces = UnicodeTables::get().white_space.ranges();
    Stage stage = compile("Whitespace", fmt::format("[{0}]+|[^{0}{1}]+", words, spaces), 0);
    stage.behavior = Behavior::Removed;
    stage.invert = true;
    stages_.push_back(std::move(stage));
  } else if (type == "WhitespaceSplit") {
    stages_.push_back({.matches = is_white_space, .behavior = Behavior::Removed});
  } else if (type == "Punctuation") {
    const Behavior behavior = behavior_of(view.text("behavior", "Isolated"));
    stages_.push_back({.matches = is_punctuation_of_bert, .behavior = behavior});
  } else {
    bad_input(
        "its pre_tokenizer \"{}\" is not supported; ByteLevel, Split, Digits, BertPreTokenizer, Whitespace, "
        "WhitespaceSplit, Punctuation and Sequence are",
        printable(type));
  }
}

void PreTokenizer::add_byte_level(const nlohmann::json& json) {
  byte_level_ = true;
  const JsonView view(json, "pre_tokenizer");
  if (view.flag("add_prefix_space", true)) stages_.push_back({.prefix_space = true});
  if (view.flag("use_regex", true)) stages_.push_back(compile_ruby(kWordsOfGpt2));
}

void PreTokenizer::add_split(const nlohmann::json& json) {
  const JsonView view(json, "pre_tokenizer");
  const JsonView pattern = view.at("pattern");
  const bool literal = pattern.has("String");
  const std::string text = pattern.at(literal ? "String" : "Regex").text();
  if (text.size() > kMostPatternBytes)
    bad_input("a pattern of its pre_tokenizer has {} bytes; at most {} are allowed", text.size(),
              kMostPatternBytes);
  Stage stage = literal ? compile(text, text, UREGEX_LITERAL) : compile_ruby(text);
  stage.behavior = behavior_of(view.at("behavior").text());
  stage.invert = view.flag("invert", false);
  stages_.push_back(std::move(stage));
}

PreTokenizer::Behavior PreTokenizer::behavior_of(const std::string& name) {
  if (name == "Isolated") return Behavior::Isolated;
  if (name == "Removed") return Behavior::Removed;
  if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::MergedWithNext;
  if (name == "Contiguous") return Behavior::Contiguous;
  bad_input("the behavior \"{}\" of its pre_tokenizer is not known", printable(name));
}

PreTokenizer::Stage PreTokenizer::compile(const std::string& source, const std::string& pattern,
                                          uint32_t flags) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError place{};
  std::shared_ptr<const icu::RegexPattern> compiled(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(pattern), flags, place, status));
  if (U_FAILURE(status))
    bad_input("the pattern {} of its pre_tokenizer cannot be read: {}", printable(source),
              u_errorName(status));
  return {.source = source, .pattern = std::move(compiled)};
}

PreTokenizer::Stage PreTokenizer::compile_ruby(const std::string& source) {
  std::string pattern;
  try {
    pattern = icu_pattern_of_ruby(source);
  } catch (Error& error) {
    error.add_context(fmt::format("the pattern {} of its pre_tokenizer cannot be read", printable(source)));
    throw;
  }
  return compile(source, pattern, UREGEX_MULTILINE | UREGEX_UNIX_LINES);
}

std::unique_ptr<icu::RegexMatcher> PreTokenizer::matcher_of(const Stage& stage) const {
  UErrorCode status = U_ZERO_ERROR;
  std::unique_ptr<icu::RegexMatcher> matcher(stage.pattern->matcher(status));
  if (matcher) {
    matcher->setStackLimit(kMostStackBytes, status);
    matcher->setTimeLimit(most_time_, status);
  }
  check(U_SUCCESS(status), "the pattern {} of the pre_tokenizer cannot be used: {}", stage.source,
        u_errorName(status));
  return matcher;
}

void PreTokenizer::find_characters(const Stage& stage, std::string_view text, std::vector<Part>& parts) {
  size_t open = 0;  // where the unmatched text begins
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!stage.matches(next_character(text, at))) continue;
    if (open < begin) parts.push_back({open, begin, false});
    parts.push_back({begin, at, true});
    open = at;
  }
  if (open < text.size()) parts.push_back({open, text.size(), false});
}

// Finds the matches of a pattern. ICU counts in UTF-16 units; UTF-8 positions are tracked alongside. An empty match is
// a part (it affects the behaviors that join), except right after another match, as in the library.
void PreTokenizer::find_pattern(const Stage& stage, icu::RegexMatcher& matcher, std::string_view text,
                                std::vector<Part>& parts) {
  const icu::UnicodeString wide =
      icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  matcher.reset(wide);
  UErrorCode status = U_ZERO_ERROR;
  int32_t done = 0;
  size_t at = 0;
  const auto add = [&](int32_t end, bool match) {
    if (end == done && !match) return;
    const size_t begin = at;
    at += utf8_size(wide, done, end);
    done = end;
    parts.push_back({begin, at, match});
  };
  while (matcher.find(status) != 0 && U_SUCCESS(status)) {
    const int32_t begin = matcher.start(status);
    const int32_t end = matcher.end(status);
    if (begin == end && end == done && !parts.empty()) continue;
    add(begin, false);
    add(end, true);
  }
  check(status != U_REGEX_TIME_OUT && status != U_REGEX_STACK_OVERFLOW,
        "the pattern {} of the pre_tokenizer takes too {} on a text of {} bytes: there are too many ways in "
        "which it could match",
        stage.source, status == U_REGEX_TIME_OUT ? "long" : "much memory", text.size());
  check(U_SUCCESS(status), "the pattern {} of the pre_tokenizer fails on a text of {} bytes: {}",
        stage.source, text.size(), u_errorName(status));
  add(wide.length(), false);
}

// Joins or drops parts according to the stage's behavior.
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

void PreTokenizer::put_spaces(Words& words, const char* no_space) {
  for (std::string_view& word : words.views) {
    if (word.starts_with(' ') || word.data() == no_space) continue;
    words.changed.push_back(" " + std::string(word));
    word = words.changed.back();
  }
}

void PreTokenizer::run(const Stage& stage, Words& words) const {
  const std::unique_ptr<icu::RegexMatcher> matcher = stage.pattern ? matcher_of(stage) : nullptr;
  std::vector<std::string_view> cut;
  std::vector<Part> parts;
  for (const std::string_view word : words.views) {
    parts.clear();
    if (stage.pattern) {
      find_pattern(stage, *matcher, word, parts);
    } else {
      find_characters(stage, word, parts);
    }
    arrange(stage, parts);
    for (const Part& part : parts)
      if (part.begin < part.end) cut.push_back(word.substr(part.begin, part.end - part.begin));
  }
  words.views = std::move(cut);
}

Words PreTokenizer::cut(std::string_view text, bool goes_on) const {
  Words words;
  if (!text.empty()) words.views.push_back(text);
  for (const Stage& stage : stages_) {
    if (stage.prefix_space) {
      put_spaces(words, goes_on && prefix_is_once_ ? text.data() : nullptr);
    } else {
      run(stage, words);
    }
  }
  return words;
}

// Tests on a variety of texts, cut as line_cut_ allows, whether the pieces have the same words as the whole.
bool PreTokenizer::cuts_lines() const {
  for (char end = 0; end < 0x7F; ++end) {
    if (!may_end_line(end)) continue;
    for (const std::string_view next : {"a b c", "the 3 4", "s.", "Then\nx\n", "T", "0", "7th\n  y"}) {
      const std::string whole = fmt::format("One two 34,\n said: x{}\n{}", end, next);
      const size_t place = whole.size() - next.size() - (line_cut_ == LineCut::BeforeLineEnd ? 1 : 0);
      const std::string_view text = whole;
      Words left = cut(text.substr(0, place));
      const Words right = cut(text.substr(place), true);
      left.views.insert(left.views.end(), right.views.begin(), right.views.end());
      if (left.views != cut(text).views) return false;
    }
  }
  return true;
}

void PreTokenizer::find_line_cut() {
  for (const LineCut place : {LineCut::AfterLineEnd, LineCut::BeforeLineEnd}) {
    for (const bool once : {true, false}) {
      line_cut_ = place;
      prefix_is_once_ = once;
      if (cuts_lines()) return;
    }
  }
  line_cut_ = LineCut::None;
  prefix_is_once_ = true;
}

}  // namespace trifold
