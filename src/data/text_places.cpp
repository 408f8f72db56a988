#include "data/text_places.h"

#include <algorithm>

namespace trifold {

namespace {

constexpr std::string_view kSpace = " \t\r\n\v\f";

bool is_sign(char c) {
  return ('!' <= c && c <= '/') || (':' <= c && c <= '@') || ('[' <= c && c <= '`') || ('{' <= c && c <= '~');
}

// One past the unit that begins at `begin`.
size_t end_of_unit(std::string_view text, size_t begin, bool by_white_space) {
  if (!by_white_space && is_sign(text[begin])) return begin + 1;
  size_t end = begin + 1;
  while (end < text.size() && kSpace.find(text[end]) == std::string_view::npos &&
         (by_white_space || !is_sign(text[end])))
    ++end;
  return end;
}

}  // namespace

PlacedTokens tokenize_with_places(std::string_view text, const Tokenizer& tokenizer) {
  PlacedTokens tokens;
  if (dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr) {
    tokenizer.encode(text, tokens.ids);
    for (int64_t i = 0; i < tokens.size(); ++i) tokens.bytes.push_back({i, i + 1});
    return tokens;
  }
  const bool by_white_space = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer) != nullptr;
  for (size_t at = text.find_first_not_of(kSpace); at < text.size();
       at = std::min(text.find_first_not_of(kSpace, at), text.size())) {
    const size_t end = end_of_unit(text, at, by_white_space);
    tokenizer.encode(text.substr(at, end - at), tokens.ids);
    tokens.bytes.resize(tokens.ids.size(), {static_cast<int64_t>(at), static_cast<int64_t>(end)});
    at = end;
  }
  return tokens;
}

}  // namespace trifold
