#include "tokenize/trial_cuts.h"

#include <algorithm>

#include "tokenize/document_encoder.h"

namespace trifold {

std::vector<int32_t> TrialCuts::ids_after(const std::string& last, std::string_view text) const {
  const std::vector<int32_t> before = ids_of_(last);
  std::vector<int32_t> both = ids_of_(last + std::string(text));
  if (both.size() < before.size() || !std::equal(before.begin(), before.end(), both.begin()))
    return ids_of_(text);
  both.erase(both.begin(), both.begin() + std::ssize(before));
  return both;
}

namespace {

// Whether a character begins at `at`, or the text ends there.
bool is_border(std::string_view text, size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
}

size_t begin_of_last_character(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && !is_border(text, --begin)) {
  }
  return begin;
}

}  // namespace

bool TrialCuts::may_cut(std::string_view text, size_t at) const {
  constexpr size_t kAround = 256;  // bytes on each side
  size_t begin = at > kAround ? at - kAround : 0, end = std::min(at + kAround, text.size());
  while (!is_border(text, begin)) ++begin;
  while (!is_border(text, end)) ++end;
  const std::string_view left = text.substr(begin, at - begin), right = text.substr(at, end - at);
  std::vector<int32_t> cut = ids_of_(left);
  const std::vector<int32_t> rest = ids_after(std::string(left.substr(begin_of_last_character(left))), right);
  cut.insert(cut.end(), rest.begin(), rest.end());
  return cut == ids_of_(text.substr(begin, end - begin));
}

// A cut before a space or the end of a line, as late as possible; without one, a cut between any two characters.
size_t TrialCuts::find_cut(std::string_view text, size_t from) const {
  constexpr size_t kSearched = size_t{1} << 16;
  constexpr int kMostTries = 64;
  if (text.size() < DocumentEncoder::kLongestPiece) return 0;  // the document may end within the piece
  const size_t least = std::max({from, text.size() - kSearched, size_t{1}});
  for (const bool between_words : {true, false}) {
    int tries = 0;
    for (size_t at = text.size() - 1; at >= least && tries < kMostTries; --at) {
      const bool fits = between_words ? (text[at] == ' ' || text[at] == '\n') && may_end_line(text[at - 1])
                                      : is_border(text, at);
      if (!fits) continue;
      if (may_cut(text, at)) return at;
      ++tries;
    }
  }
  return 0;
}

void TrialCuts::encode_piece(std::string_view text, PieceState& state, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  const std::vector<int32_t> pieces = state.last.empty() ? ids_of_(text) : ids_after(state.last, text);
  ids.insert(ids.end(), pieces.begin(), pieces.end());
  state.last = text.substr(begin_of_last_character(text));
}

}  // namespace trifold
