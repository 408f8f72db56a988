// TextNormalizer: the "normalizer" of a Hugging Face tokenizer.json, which changes text before it is cut into words.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

// The most steps of a pre_tokenizer or normalizer, counting sequences within sequences; published ones have up to ten.
inline constexpr size_t kMostTokenizerSteps = 64;

class TextNormalizer {
 public:
  // `json` is the value of "normalizer"; if null, text is unchanged. BadInput for a kind that is not one of NFC, NFD,
  // NFKC, NFKD, Lowercase, StripAccents, BertNormalizer and Sequence, and for too many steps.
  explicit TextNormalizer(const nlohmann::json& json);

  // `text` must be UTF-8.
  std::string operator()(std::string_view text) const;
  bool changes_nothing() const { return steps_.empty(); }

 private:
  enum class Step {
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    DropMarks,            // categories M*
    DropNonspacingMarks,  // category Mn
    Clean,                // removes controls, white space becomes ' '
    SpaceIdeographs,
  };

  void add(const nlohmann::json& json);
  void add_bert(const nlohmann::json& json);
  static std::string apply(Step step, std::string_view text);

  std::vector<Step> steps_;
};

}  // namespace trifold
