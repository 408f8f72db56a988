#include "tokenize/pre_tokenizer.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/text_normalizer.h"
#include "tokenize/unicode/unicode.h"
#include "tokenize/unicode/unicode_tables.h"

namespace trifold {

namespace {

// The words of GPT-2: contractions of English, then letters, digits or others with at most one space before
// them, then white space, whose last character is left to a following word.
constexpr const char* kWordsOfGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Time limit for lines of some dozen bytes, hundreds of which are tried at construction: about a millisecond each.
constexpr int32_t kMostTimeOfLine = 5;
// The character that stands for a space in vocabularies of SentencePiece.
constexpr const char* kMetaspace = "\u2581";

}  // namespace

PreTokenizer::PreTokenizer(const nlohmann::json& json, PatternDialect dialect)
    : dialect_(dialect), most_time_(kMostTimeOfLine) {
  if (!json.is_null()) add(json);
  try {
    find_line_cut();
  } catch (const Error& error) {  // a text that is the program's own is not at fault
    bad_input("{}", error.what());
  }
  most_time_ = PatternMatcher::kMostTime;
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
    stages_.push_back({.pattern = TextPattern::of_icu(
                           "Whitespace", fmt::format("[{0}]+|[^{0}{1}]+", words, spaces), 0, "pre_tokenizer"),
                       .behavior = Behavior::Removed,
                       .invert = true});
  } else if (type == "WhitespaceSplit") {
    stages_.push_back({.matches = is_white_space, .behavior = Behavior::Removed});
  } else if (type == "Punctuation") {
    const Behavior behavior = behavior_of(view.text("behavior", "Isolated"));
    stages_.push_back({.matches = is_punctuation_of_bert, .behavior = behavior});
  } else if (type == "CharDelimiterSplit") {
    stages_.push_back({.pattern = TextPattern::of_literal(view.at("delimiter").text(), "pre_tokenizer"),
                       .behavior = Behavior::Removed});
  } else if (type == "Metaspace") {
    add_metaspace(json);
  } else {
    bad_input(
        "its pre_tokenizer \"{}\" is not supported; ByteLevel, Split, Digits, BertPreTokenizer, Whitespace, "
        "WhitespaceSplit, Punctuation, CharDelimiterSplit, Metaspace and Sequence are",
        printable(type));
  }
}

void PreTokenizer::add_byte_level(const nlohmann::json& json) {
  byte_level_ = true;
  const JsonView view(json, "pre_tokenizer");
  if (view.flag("add_prefix_space", true)) stages_.push_back({.prefix = Prefix::Always, .space = " "});
  if (view.flag("use_regex", true))
    stages_.push_back(
        {.pattern = TextPattern::of_regex(kWordsOfGpt2, PatternDialect::Ruby, "pre_tokenizer")});
}

void PreTokenizer::add_split(const nlohmann::json& json) {
  const JsonView view(json, "pre_tokenizer");
  stages_.push_back({.pattern = TextPattern::of_json(view.at("pattern").value(), dialect_, "pre_tokenizer"),
                     .behavior = behavior_of(view.at("behavior").text()),
                     .invert = view.flag("invert", false)});
}

// Spaces become the replacement, which also goes before the first word, or every word, that does not begin with it. Then
// words are cut before each. Old files have add_prefix_space instead of prepend_scheme.
void PreTokenizer::add_metaspace(const nlohmann::json& json) {
  const JsonView view(json, "pre_tokenizer");
  const std::string space = view.text("replacement", kMetaspace);
  const std::string scheme =
      view.text("prepend_scheme", view.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    bad_input("the prepend_scheme \"{}\" of its pre_tokenizer is not known", printable(scheme));
  stages_.push_back({.replaces_spaces = true, .space = space});
  if (scheme != "never")
    stages_.push_back({.prefix = scheme == "always" ? Prefix::Always : Prefix::First, .space = space});
  if (view.flag("split", true))
    stages_.push_back(
        {.pattern = TextPattern::of_literal(space, "pre_tokenizer"), .behavior = Behavior::MergedWithNext});
}

PreTokenizer::Behavior PreTokenizer::behavior_of(const std::string& name) {
  if (name == "Isolated") return Behavior::Isolated;
  if (name == "Removed") return Behavior::Removed;
  if (name == "MergedWithPrevious") return Behavior::MergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::MergedWithNext;
  if (name == "Contiguous") return Behavior::Contiguous;
  bad_input("the behavior \"{}\" of its pre_tokenizer is not known", printable(name));
}

void PreTokenizer::find_characters(const Stage& stage, std::string_view text,
                                   std::vector<PatternPart>& parts) {
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

// Joins or drops parts according to the stage's behavior.
void PreTokenizer::arrange(const Stage& stage, std::vector<PatternPart>& parts) {
  if (stage.invert)
    for (PatternPart& part : parts) part.match = !part.match;
  if (stage.behavior == Behavior::Isolated) return;
  if (stage.behavior == Behavior::Removed) {
    std::erase_if(parts, [](const PatternPart& part) { return part.match; });
    return;
  }
  const bool backward = stage.behavior == Behavior::MergedWithNext;
  if (backward) std::reverse(parts.begin(), parts.end());
  std::vector<PatternPart> joined;
  bool last_match = false;
  for (const PatternPart& part : parts) {
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

void PreTokenizer::put_spaces(const Stage& stage, Words& words, const char* first, const char* none) {
  for (std::string_view& word : words.views) {
    const bool wanted = stage.prefix == Prefix::Always || word.data() == first;
    if (!wanted || word.starts_with(stage.space) || word.data() == none) continue;
    words.changed.push_back(stage.space + std::string(word));
    word = words.changed.back();
  }
}

// A word without a space keeps its place in the text.
void PreTokenizer::replace_spaces(const Stage& stage, Words& words, const char** first) {
  for (std::string_view& word : words.views) {
    if (word.find(' ') == std::string_view::npos) continue;
    std::string changed;
    for (const char c : word)
      if (c == ' ')
        changed += stage.space;
      else
        changed += c;
    words.changed.push_back(std::move(changed));
    if (word.data() == *first) *first = words.changed.back().data();
    word = words.changed.back();
  }
}

void PreTokenizer::run(const Stage& stage, Words& words) const {
  std::optional<PatternMatcher> matcher;
  if (stage.pattern) matcher.emplace(*stage.pattern, most_time_);
  std::vector<std::string_view> cut;
  std::vector<PatternPart> parts;
  for (const std::string_view word : words.views) {
    parts.clear();
    if (matcher) {
      matcher->find(word, parts);
    } else {
      find_characters(stage, word, parts);
    }
    arrange(stage, parts);
    for (const PatternPart& part : parts)
      if (part.begin < part.end) cut.push_back(word.substr(part.begin, part.end - part.begin));
  }
  words.views = std::move(cut);
}

Words PreTokenizer::cut(std::string_view text, TextPlace place) const {
  Words words;
  if (!text.empty()) words.views.push_back(text);
  const bool continues = place == TextPlace::Continued;
  const char* first = place == TextPlace::Start ? text.data() : nullptr;
  for (const Stage& stage : stages_) {
    if (stage.replaces_spaces) {
      replace_spaces(stage, words, &first);
    } else if (stage.prefix != Prefix::None) {
      put_spaces(stage, words, first, continues && prefix_is_once_ ? text.data() : nullptr);
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
      const Words right = cut(text.substr(place), TextPlace::Continued);
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
