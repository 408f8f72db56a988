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
  // Sequence, and for a pattern that ICU cannot read.
  explicit PreTokenizer(const nlohmann::json& json);

  // Whether words are to be seen as bytes, each written as a character of its own in the vocabulary.
  bool is_byte_level() const { return byte_level_; }
  // `text` must be UTF-8 and stay while the words are used. No word is empty.
  Words cut(std::string_view text) const;

 private:
  // What becomes of the matches of a pattern and of what is between them.
  enum class Behavior { Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous };
  struct Stage {
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
  static std::shared_ptr<const icu::RegexPattern> compile(const std::string& pattern, bool literal);
  static void find_characters(const Stage& stage, std::string_view text, std::vector<Part>& parts);
  static void find_pattern(icu::RegexMatcher& matcher, std::string_view text, std::vector<Part>& parts);
  static void arrange(const Stage& stage, std::vector<Part>& parts);
  static void put_spaces(Words& words);
  static void run(const Stage& stage, Words& words);

  std::vector<Stage> stages_;
  bool byte_level_ = false;
};

}  // namespace trifold
