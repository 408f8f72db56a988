// PreTokenizer: the "pre_tokenizer" of a Hugging Face tokenizer.json, which cuts text into words. The model then splits
// words into tokens.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/patterns/text_pattern.h"
#include "tokenize/text_lines.h"

namespace trifold {

// Words as views into the text that was cut, or into `changed`.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> changed;
};

// The place of a text inside the text of a user, which is cut at special tokens and, if it is long, into pieces.
enum class TextPlace {
  Start,      // its beginning
  After,      // after a special token
  Continued,  // after a piece that was cut as line_cut() allows
};

class PreTokenizer {
 public:
  // `json` is the value of "pre_tokenizer"; if null, the whole text is one word. Patterns are of `dialect`. BadInput for
  // a kind that is not one of ByteLevel, Split, Digits, BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation,
  // CharDelimiterSplit, Metaspace and Sequence, for a pattern that tokenize/patterns/ruby_pattern.h or ICU cannot read, for one
  // that is slow on a line of text, and for more than kMostTokenizerSteps steps.
  explicit PreTokenizer(const nlohmann::json& json, PatternDialect dialect = PatternDialect::Ruby);

  // Whether words are sequences of bytes, each written as one character in the vocabulary.
  bool is_byte_level() const { return byte_level_; }
  // `text` must be UTF-8 and outlive the words. No word is empty. Throws Error, naming the pattern, if matching would
  // take too long or too much memory. A text that continues another gets a space before it only where the whole text
  // would have one.
  Words cut(std::string_view text, TextPlace place = TextPlace::Start) const;
  // The kind of cut at which the pieces have the same words as the whole text, determined by experiment.
  LineCut line_cut() const { return line_cut_; }

 private:
  // The treatment of the matches of a pattern and of the text between them.
  enum class Behavior { Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous };
  // The words that get a space before them unless they begin with one: none, the one at the beginning, all.
  enum class Prefix { None, First, Always };
  // A stage cuts words, unless it puts or replaces spaces.
  struct Stage {
    std::optional<TextPattern> pattern = std::nullopt;  // if absent, `matches` single characters
    bool (*matches)(char32_t) = nullptr;
    Behavior behavior = Behavior::Isolated;
    bool invert = false;  // matches and the text between them swap roles
    Prefix prefix = Prefix::None;
    bool replaces_spaces = false;
    std::string space = {};  // what stands for a space
  };

  void add(const nlohmann::json& json);
  void add_byte_level(const nlohmann::json& json);
  void add_split(const nlohmann::json& json);
  void add_metaspace(const nlohmann::json& json);
  static Behavior behavior_of(const std::string& name);
  static void find_characters(const Stage& stage, std::string_view text, std::vector<PatternPart>& parts);
  static void arrange(const Stage& stage, std::vector<PatternPart>& parts);
  static void put_spaces(const Stage& stage, Words& words, const char* first, const char* none);
  static void replace_spaces(const Stage& stage, Words& words, const char** first);
  void run(const Stage& stage, Words& words) const;
  void find_line_cut();
  bool cuts_lines() const;

  PatternDialect dialect_;
  std::vector<Stage> stages_;
  int32_t most_time_;  // time limit per text, in ICU's steps
  bool byte_level_ = false;
  LineCut line_cut_ = LineCut::None;
  bool prefix_is_once_ = true;  // no space is added to a text that continues another
};

}  // namespace trifold
