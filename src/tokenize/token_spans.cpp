#include "tokenize/token_spans.h"

#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

bool stands_alone(char32_t c) { return is_punctuation_of_bert(c) || is_ideograph_of_bert(c); }

// One past the unit that begins at `begin`.
size_t end_of_unit(std::string_view text, size_t begin, bool by_white_space) {
  size_t end = begin;
  if (const char32_t first = next_character(text, end); !by_white_space && stands_alone(first)) return end;
  for (size_t behind = end; end < text.size(); end = behind) {
    const char32_t c = next_character(text, behind);
    if (is_white_space(c) || (!by_white_space && stands_alone(c))) break;
  }
  return end;
}

}  // namespace

TokenSpans tokenize_with_spans(std::string_view text, const Tokenizer& tokenizer) {
  TokenSpans tokens;
  if (tokenizer.takes_bytes()) {
    tokenizer.encode(text, tokens.ids);
    for (int64_t i = 0; i < tokens.size(); ++i) tokens.bytes.push_back({i, i + 1});
    return tokens;
  }
  const bool by_white_space = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer) != nullptr;
  for (size_t at = 0; at < text.size();) {
    size_t behind = at;
    if (is_white_space(next_character(text, behind))) {
      at = behind;
      continue;
    }
    const size_t end = end_of_unit(text, at, by_white_space);
    tokenizer.encode(text.substr(at, end - at), tokens.ids);
    tokens.bytes.resize(tokens.ids.size(), {static_cast<int64_t>(at), static_cast<int64_t>(end)});
    at = end;
  }
  return tokens;
}

}  // namespace trifold
