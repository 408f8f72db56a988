// PreTokenizer: the "pre_tokenizer" of a Hugging Face tokenizer.json: where text is cut into words before the
// model makes tokens of each.
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

// Words as views: of the text that was cut, or of `changed`.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> changed;
};

class PreTokenizer {
 public:
  // `json` is the value of "pre_tokenizer", null included: then a text is one word. BadInput for a kind that
  // is not one of ByteLevel, Split, Digits, BertPreTokenizer, Whitespace, WhitespaceSplit, Punctuation and
  // Sequence, for a pattern that tokenize/ruby_pattern.h or ICU cannot read, and for one that takes long on a
  // line of text.
  explicit PreTokenizer(const nlohmann::json& json);

  // Whether words are to be seen as bytes, each written as a character of its own in the vocabulary.
  bool is_byte_level() const { return byte_level_; }
  // `text` must be UTF-8 and stay while the words are used. No word is empty. An Error that names the pattern
  // when one would take too long or too much memory.
  // `goes_on`: the text is the next piece of one that was cut where line_cut() says; it gets a space put
  // before it only where the whole text would have one.
  Words cut(std::string_view text, bool goes_on = false) const;
  // Where the words of the pieces are those of the whole, found by trying.
  LineCut line_cut() const { return line_cut_; }

 private:
  // What becomes of the matches of a pattern and of what is between them.
  enum class Behavior { Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous };
  struct Stage {
    std::string source = {};                                     // of the pattern, for messages
    std::shared_ptr<const icu::RegexPattern> pattern = nullptr;  // else single characters:
    bool (*matches)(char32_t) = nullptr;
    Behavior behavior = Behavior::Isolated;
    bool invert = false;        // matches and what is between them change places
    bool prefix_space = false;  // not a cut: a space is put before a word that has none
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
  int32_t most_time_;  // for a text: what ICU calls steps
  bool byte_level_ = false;
  LineCut line_cut_ = LineCut::None;
  bool prefix_is_once_ = true;  // no space is put where a text was cut
};

}  // namespace trifold
