#include "tokenize/token_offsets.h"

#include <algorithm>
#include <string>

namespace trifold {

namespace {

// The place of one token at `at` or behind white space there, which some tokenizers drop.
std::optional<Interval> place_of(std::string_view text, size_t at, std::string_view token) {
  for (size_t begin = at;; ++begin) {
    const std::string_view rest = text.substr(std::min(begin, text.size()));
    if (rest.starts_with(token))
      return Interval{static_cast<int64_t>(begin), static_cast<int64_t>(begin + token.size())};
    // The space with which a tokenizer begins a text or a part of it.
    if (token.starts_with(' ') && rest.starts_with(token.substr(1)))
      return Interval{static_cast<int64_t>(begin), static_cast<int64_t>(begin + token.size() - 1)};
    if (rest.empty() ||
        (rest.front() != ' ' && rest.front() != '\n' && rest.front() != '\t' && rest.front() != '\r'))
      return std::nullopt;
  }
}

// The number of first tokens that the text up to `end` has in common with the whole text.
size_t common_tokens(std::string_view text, size_t end, const std::vector<int32_t>& ids,
                     const Tokenizer& tokenizer) {
  std::vector<int32_t> part;
  tokenizer.encode(text.substr(0, end), part);
  const size_t most = std::min(part.size(), ids.size());
  const auto differs =
      std::mismatch(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(most), ids.begin());
  return static_cast<size_t>(differs.first - part.begin());
}

}  // namespace

std::optional<std::vector<Interval>> find_tokens(std::string_view text, const std::vector<int32_t>& ids,
                                                 const Tokenizer& tokenizer) {
  std::vector<Interval> places;
  places.reserve(ids.size());
  size_t at = 0;
  for (const int32_t id : ids) {
    const std::string token = tokenizer.text_of_token(id);
    const std::optional<Interval> place = place_of(text, at, token);
    if (token.empty() || !place) return std::nullopt;
    places.push_back(*place);
    at = static_cast<size_t>(place->end);
  }
  if (text.find_first_not_of(" \n\t\r", at) != std::string_view::npos) return std::nullopt;
  return places;
}

std::vector<uint8_t> tokens_in_spans(std::string_view text, const std::vector<int32_t>& ids,
                                     const std::vector<Interval>& spans, const Tokenizer& tokenizer) {
  std::vector<uint8_t> inside(ids.size(), 0);
  if (const auto places = find_tokens(text, ids, tokenizer)) {
    auto span = spans.begin();
    for (size_t i = 0; i < ids.size(); ++i) {
      while (span != spans.end() && (*places)[i].begin >= span->end) ++span;
      if (span == spans.end()) break;
      inside[i] = (*places)[i].end > span->begin ? 1 : 0;
    }
    return inside;
  }
  for (const Interval& span : spans) {
    const size_t begin = common_tokens(text, static_cast<size_t>(span.begin), ids, tokenizer);
    const size_t end = common_tokens(text, static_cast<size_t>(span.end), ids, tokenizer);
    for (size_t i = begin; i < end; ++i) inside[i] = 1;
  }
  return inside;
}

}  // namespace trifold
