#include "tokenize/patterns/text_pattern.h"

#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/patterns/ruby_pattern.h"

namespace trifold {

namespace {

// The stack of the matcher, which keeps backtracking states of about 30 bytes per character of a long blank. With ICU's
// default limit of 8 MB a training run could fail midway.
constexpr int32_t kMostStackBytes = 1 << 28;
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

TextPattern TextPattern::of_icu(const std::string& source, const std::string& pattern, uint32_t flags,
                                std::string part) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError place{};
  TextPattern made;
  made.pattern_.reset(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(pattern), flags, place, status));
  if (U_FAILURE(status))
    bad_input("the pattern {} of its {} cannot be read: {}", printable(source), part, u_errorName(status));
  made.source_ = source;
  made.part_ = std::move(part);
  return made;
}

TextPattern TextPattern::of_literal(const std::string& text, std::string part) {
  return of_icu(text, text, UREGEX_LITERAL, std::move(part));
}

TextPattern TextPattern::of_regex(const std::string& source, PatternDialect dialect, std::string part) {
  std::string pattern;
  try {
    pattern = dialect == PatternDialect::Ruby ? icu_pattern_of_ruby(source) : icu_pattern_of_rust(source);
  } catch (Error& error) {
    error.add_context(fmt::format("the pattern {} of its {} cannot be read", printable(source), part));
    throw;
  }
  return of_icu(source, pattern, UREGEX_MULTILINE | UREGEX_UNIX_LINES, std::move(part));
}

TextPattern TextPattern::of_json(const nlohmann::json& json, PatternDialect dialect, std::string part) {
  const JsonView view(json, "pattern");
  const bool literal = view.has("String");
  const std::string text = view.at(literal ? "String" : "Regex").text();
  if (text.size() > kMostPatternBytes)
    bad_input("a pattern of its {} has {} bytes; at most {} are allowed", part, text.size(),
              kMostPatternBytes);
  return literal ? of_literal(text, std::move(part)) : of_regex(text, dialect, std::move(part));
}

PatternMatcher::PatternMatcher(const TextPattern& pattern, int32_t most_time) : pattern_(pattern) {
  UErrorCode status = U_ZERO_ERROR;
  matcher_.reset(pattern.pattern_->matcher(status));
  if (matcher_) {
    matcher_->setStackLimit(kMostStackBytes, status);
    matcher_->setTimeLimit(most_time, status);
  }
  check(U_SUCCESS(status), "the pattern {} of the {} cannot be used: {}", pattern.source_, pattern.part_,
        u_errorName(status));
}

// ICU counts in UTF-16 units; UTF-8 positions are tracked alongside.
void PatternMatcher::find(std::string_view text, std::vector<PatternPart>& parts) {
  const icu::UnicodeString wide =
      icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  matcher_->reset(wide);
  UErrorCode status = U_ZERO_ERROR;
  const size_t before = parts.size();
  int32_t done = 0;
  size_t at = 0;
  const auto add = [&](int32_t end, bool match) {
    if (end == done && !match) return;
    const size_t begin = at;
    at += utf8_size(wide, done, end);
    done = end;
    parts.push_back({begin, at, match});
  };
  while (matcher_->find(status) != 0 && U_SUCCESS(status)) {
    const int32_t begin = matcher_->start(status);
    const int32_t end = matcher_->end(status);
    if (begin == end && end == done && parts.size() > before) continue;
    add(begin, false);
    add(end, true);
  }
  check(
      status != U_REGEX_TIME_OUT && status != U_REGEX_STACK_OVERFLOW,
      "the pattern {} of the {} takes too {} on a text of {} bytes: there are too many ways in which it could match",
      pattern_.source_, pattern_.part_, status == U_REGEX_TIME_OUT ? "long" : "much memory", text.size());
  check(U_SUCCESS(status), "the pattern {} of the {} fails on a text of {} bytes: {}", pattern_.source_,
        pattern_.part_, text.size(), u_errorName(status));
  add(wide.length(), false);
}

std::string replace_matches(PatternMatcher& matcher, std::string_view text, std::string_view content) {
  std::vector<PatternPart> parts;
  matcher.find(text, parts);
  std::string out;
  for (const PatternPart& part : parts)
    out += part.match ? content : text.substr(part.begin, part.end - part.begin);
  return out;
}

}  // namespace trifold
