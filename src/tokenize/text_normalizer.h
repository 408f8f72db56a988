// TextNormalizer: the "normalizer" of a Hugging Face tokenizer.json, which changes text before it is cut into words.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenize/patterns/text_pattern.h"
#include "tokenize/precompiled_map.h"

namespace trifold {

// The most steps of a pre_tokenizer or normalizer, counting sequences within sequences; published ones have up to ten.
inline constexpr size_t kMostTokenizerSteps = 64;

class TextNormalizer {
 public:
  // `json` is the value of "normalizer"; if null, text is unchanged. BadInput for a kind that is not one of NFC, NFD,
  // NFKC, NFKD, Lowercase, StripAccents, BertNormalizer, Prepend, Replace, Strip, Precompiled and Sequence, and for too
  // many steps.
  explicit TextNormalizer(const nlohmann::json& json);

  // `text` must be UTF-8.
  std::string operator()(std::string_view text) const;
  bool changes_nothing() const { return steps_.empty(); }
  // Whether what a piece of a text becomes depends on its beginning and end, or on the characters next to it in more than
  // normal forms.
  bool depends_on_cuts() const { return depends_on_cuts_; }

 private:
  enum class Change {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    DropMarks,            // categories M*
    DropNonspacingMarks,  // category Mn
    Clean,                // removes controls, white space becomes ' '
    SpaceIdeographs,
    StripLeft,   // white space at the beginning
    StripRight,  // and at the end
  };
  struct Prepend {
    std::string content;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct ReplaceText {
    std::string from, content;
  };
  using Step = std::variant<Change, Prepend, Replace, ReplaceText, PrecompiledMap>;

  void add(const nlohmann::json& json);
  void add_bert(const nlohmann::json& json);
  void add_replace(const nlohmann::json& json);
  static std::string apply(Change change, std::string_view text);
  static std::string apply(const Prepend& step, std::string_view text);
  static std::string apply(const Replace& step, std::string_view text);
  static std::string apply(const ReplaceText& step, std::string_view text);
  static std::string apply(const PrecompiledMap& map, std::string_view text) { return map(text); }

  std::vector<Step> steps_;
  bool depends_on_cuts_ = false;
};

}  // namespace trifold
