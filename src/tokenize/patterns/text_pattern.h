// TextPattern finds the matches of a regular expression, or of a fixed text, of a tokenizer's file. ICU matches; the
// pattern is translated first (tokenize/patterns/ruby_pattern.h), so that the tokenizer's own library has the same matches.
#pragma once

#include <unicode/regex.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// Bytes [begin, end) of a text: a match, or what is between matches.
struct PatternPart {
  size_t begin;
  size_t end;
  bool match;
};

// The library whose regular expressions a tokenizer's file has.
enum class PatternDialect {
  Ruby,  // Hugging Face's `tokenizers`: Oniguruma
  Rust,  // tiktoken: the crates regex and fancy-regex
};

class TextPattern {
 public:
  // BadInput, naming the pattern and `part` of the file that has it, for one that cannot be read.
  static TextPattern of_literal(const std::string& text, std::string part);
  static TextPattern of_regex(const std::string& source, PatternDialect dialect, std::string part);
  // A pattern in ICU's own dialect, named `source` in messages.
  static TextPattern of_icu(const std::string& source, const std::string& pattern, uint32_t flags,
                            std::string part);
  // The value {"String": TEXT} or {"Regex": TEXT} of a "pattern".
  static TextPattern of_json(const nlohmann::json& json, PatternDialect dialect, std::string part);

 private:
  friend class PatternMatcher;
  std::string source_;
  std::string part_;  // "pre_tokenizer", ...
  std::shared_ptr<const icu::RegexPattern> pattern_;
};

// The state of a search; for one thread at a time.
class PatternMatcher {
 public:
  // A limit for one text, in units of 10000 steps of ICU: some seconds; a common pattern takes a millisecond per 10 KB.
  static constexpr int32_t kMostTime = 20000;

  // `pattern` must outlive this object.
  explicit PatternMatcher(const TextPattern& pattern, int32_t most_time = kMostTime);

  // Appends the matches in `text` (UTF-8) and the non-empty parts between them. An empty match is a part, except right
  // after another match. Throws Error, naming the pattern, if matching would take too long or too much memory.
  void find(std::string_view text, std::vector<PatternPart>& parts);

 private:
  const TextPattern& pattern_;
  std::unique_ptr<icu::RegexMatcher> matcher_;
};

// `text` with `content` instead of each match.
std::string replace_matches(PatternMatcher& matcher, std::string_view text, std::string_view content);

}  // namespace trifold
