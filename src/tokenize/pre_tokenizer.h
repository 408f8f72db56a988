// PreTokenizer: the "pre_tokenizer" of a Hugging Face tokenizer.json, which cuts text into words. The model then splits
// words into tokens.
#pragma once

#include <unicode/regex.h>

#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenize/text_lines.h"

namespace trifold {

// Words as views into the text that was cut, or into `changed`.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> changed;
};

class PreTokenizer {
 public:
  // `json` is the value of "pre_tokenizer"; if null, the whole text is one word. BadInput for a kind that is not one of
  // ByteLevel, Split, Digits, BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation and Sequence, for a pattern
  // that tokenize/ruby_pattern.h or ICU cannot read, for one that is slow on a line of text, and for more than
  // kMostTokenizerSteps steps.
  explicit PreTokenizer(const nlohmann::json& json);

  // Whether words are sequences of bytes, each written as one character in the vocabulary.
  bool is_byte_level() const { return byte_level_; }
  // `text` must be UTF-8 and outlive the words. No word is empty. Throws Error, naming the pattern, if matching would
  // take too long or too much memory. `goes_on`: the text continues one that was cut as line_cut() allows; a space is
  // put before it only where the whole text would have one.
  Words cut(std::string_view text, bool goes_on = false) const;
  // The kind of cut at which the pieces have the same words as the whole text, determined by experiment.
  LineCut line_cut() const { return line_cut_; }

 private:
  // The treatment of the matches of a pattern and of the text between them.
  enum class Behavior { Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous };
  struct Stage {
    std::string source = {};                                     // text of the pattern, for messages
    std::shared_ptr<const icu::RegexPattern> pattern = nullptr;  // if null, `matches` single characters
    bool (*matches)(char32_t) = nullptr;
    Behavior behavior = Behavior::Isolated;
    bool invert = false;        // matches and the text between them swap roles
    bool prefix_space = false;  // instead of cutting: puts a space before a word that has none
  };
  struct Part {
    size_t begin;
    size_t end;
    bool match;
  };

  void add(const nlohmann::json& json);
  void add_byte_level(const nlohmann::json& json);
  void add_split(const nlohmann::json& json);
  static Behavior behavior_of(const std::string& name);
  static Stage compile(const std::string& source, const std::string& pattern, uint32_t flags);
  static Stage compile_ruby(const std::string& source);
  std::unique_ptr<icu::RegexMatcher> matcher_of(const Stage& stage) const;
  static void find_characters(const Stage& stage, std::string_view text, std::vector<Part>& parts);
  static void find_pattern(const Stage& stage, icu::RegexMatcher& matcher, std::string_view text,
                           std::vector<Part>& parts);
  static void arrange(const Stage& stage, std::vector<Part>& parts);
  static void put_spaces(Words& words, const char* no_space);
  void run(const Stage& stage, Words& words) const;
  void find_line_cut();
  bool cuts_lines() const;

  std::vector<Stage> stages_;
  int32_t most_time_;  // time limit per text, in ICU's steps
  bool byte_level_ = false;
  LineCut line_cut_ = LineCut::None;
  bool prefix_is_once_ = true;  // no space is added to a text that continues another
};

}  // namespace trifold
