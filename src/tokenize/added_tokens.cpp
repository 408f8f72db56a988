#include "tokenize/added_tokens.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_character(character_before(text, begin))) return false;
  return end == text.size() || !is_word_character(next_character(text, end));
}

int32_t id_in(const JsonView& entry) {
  return static_cast<int32_t>(entry.at("id").integer(0, std::numeric_limits<int32_t>::max()));
}

}  // namespace

AddedTokens::AddedTokens(const nlohmann::json& json,
                         const std::unordered_map<std::string, int32_t>& vocabulary,
                         const TextNormalizer& normalizer, SpecialTokensInText treatment) {
  if (!json.is_null())
    JsonView(json, "added_tokens").each([&](const JsonView& entry) {
      const std::string content = entry.at("content").text();
      if (content.empty()) return;
      const auto known = vocabulary.find(content);
      const int32_t id = known != vocabulary.end() ? known->second : id_in(entry);
      if (!ids_.emplace(content, id).second) return;  // named twice: the first wins
      const bool special = entry.flag("special", false);
      if (special) special_.insert(id);
      const bool later = entry.flag("normalized", true);
      const std::string text = later ? normalizer(content) : content;
      texts_.insert_or_assign(id, text);
      if (text.empty() || (special && treatment == SpecialTokensInText::Text)) return;
      (later ? normalized_ : raw_)
          .at(static_cast<unsigned char>(text[0]))
          .push_back({text, id, entry.flag("single_word", false), entry.flag("lstrip", false),
                      entry.flag("rstrip", false), special && treatment == SpecialTokensInText::Refuse});
    });
  for (Tokens* tokens : {&raw_, &normalized_})
    for (std::vector<Token>& list : *tokens)
      std::stable_sort(list.begin(), list.end(),
                       [](const Token& a, const Token& b) { return a.text.size() > b.text.size(); });
}

const AddedTokens::Token* AddedTokens::token_at(const Tokens& tokens, std::string_view text, size_t at) {
  for (const Token& token : tokens.at(static_cast<unsigned char>(text[at])))
    if (text.substr(at).starts_with(token.text)) return &token;
  return nullptr;
}

std::vector<TextPart> AddedTokens::find(const Tokens& tokens, std::string_view text) {
  std::vector<TextPart> parts;
  size_t open = 0;  // everything before it has been returned
  for (size_t at = 0; at < text.size();) {
    const Token* token = token_at(tokens, text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    at += token->text.size();
    size_t end = at;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->refused)
      bad_input(
          "the text has the special token {} at byte {}: remove it, or give --special-tokens-in-text text to read it as "
          "text, or encode to have the token",
          printable(token->text), begin);
    if (token->takes_before) begin = size_without_white_space_at_end(text.substr(0, begin));
    if (token->takes_behind) end += white_space_at_start(text.substr(end));
    begin = std::max(begin, open);
    if (open < begin) parts.push_back({text.substr(open, begin - open), std::nullopt});
    parts.push_back({text.substr(begin, end - begin), token->id});
    open = end;
    at = std::max(at, end);
  }
  if (open < text.size()) parts.push_back({text.substr(open), std::nullopt});
  return parts;
}

}  // namespace trifold
