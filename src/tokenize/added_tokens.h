// AddedTokens: the "added_tokens" of a Hugging Face tokenizer.json, such as "<|endoftext|>" or "[MASK]": texts that
// always become one token.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/fields/choices.h"
#include "tokenize/text_normalizer.h"

namespace trifold {

// A part of a text: one token, or, without an id, text still to be tokenized.
struct TextPart {
  std::string_view text;
  std::optional<int32_t> id;
};

class AddedTokens {
 public:
  // `json` is the value of "added_tokens". A token that is also in `vocabulary` keeps its id there. `treatment`: what to
  // do with the texts of special tokens; other added tokens are always found.
  AddedTokens(const nlohmann::json& json, const std::unordered_map<std::string, int32_t>& vocabulary,
              const TextNormalizer& normalizer, SpecialTokensInText treatment);

  // The parts of a raw text, cut at the tokens that are matched before normalisation.
  // These two throw BadInput for a special token that is refused.
  std::vector<TextPart> find_raw(std::string_view text) const { return find(raw_, text); }
  // The parts of a normalised text, cut at the tokens that are matched after normalisation.
  std::vector<TextPart> find_normalized(std::string_view text) const { return find(normalized_, text); }

  const std::unordered_map<std::string, int32_t>& ids() const { return ids_; }
  // The text of each token for decoding; normalised for tokens that are matched after normalisation.
  const std::unordered_map<int32_t, std::string>& texts() const { return texts_; }
  bool is_special(int32_t id) const { return special_.contains(id); }

 private:
  struct Token {
    std::string text;
    int32_t id;
    bool single_word;   // not inside a longer word
    bool takes_before;  // includes the white space before it
    bool takes_behind;  // includes the white space after it
    bool refused;       // a text that contains it is an error
  };
  // Indexed by first byte, longest first.
  using Tokens = std::array<std::vector<Token>, 256>;

  static std::vector<TextPart> find(const Tokens& tokens, std::string_view text);
  static const Token* token_at(const Tokens& tokens, std::string_view text, size_t at);

  Tokens raw_;
  Tokens normalized_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<int32_t, std::string> texts_;
  std::unordered_set<int32_t> special_;
};

}  // namespace trifold
