#include "data/document_encoder.h"

#include <algorithm>

#include "data/text_lines.h"

namespace trifold {

namespace {

// A mark that may close a token like "<mask>", which could take the white space behind it, is left out.
bool may_end_line(char c) { return c > ' ' && c < 0x7F && c != '>' && c != ']'; }

bool may_begin_line(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Bytes of `text`, which is longer than `longest`, up to the last line end in these, or else between words.
size_t lines_that_fit(std::string_view text, size_t longest) {
  const size_t size = text.substr(0, longest).rfind('\n') + 1;
  return size > 0 ? size : cut_before(text, longest);
}

}  // namespace

size_t DocumentEncoder::safe_cut(std::string_view text, size_t from) {
  for (size_t at = text.find('\n', from); at != std::string_view::npos && at + 1 < text.size();
       at = text.find('\n', at + 1))
    if (at > 0 && may_end_line(text[at - 1]) && may_begin_line(text[at + 1])) return at + 1;
  return 0;
}

void DocumentEncoder::encode_pieces(std::vector<int32_t>& ids) {
  std::string_view rest = open_;
  while (rest.size() > kPiece) {
    size_t size = safe_cut(rest.substr(0, kLongestPiece), std::max(searched_, kPiece));
    if (size == 0) {
      searched_ = rest.size() - 1;  // what follows a line end there is not known yet
      if (rest.size() <= kLongestPiece) break;
      size = lines_that_fit(rest, kLongestPiece);
    }
    tokenizer_.encode(rest.substr(0, size), ids);
    rest.remove_prefix(size);
    searched_ = 0;
  }
  open_.erase(0, open_.size() - rest.size());
}

void DocumentEncoder::add(std::string_view text, std::vector<int32_t>& ids) {
  if (tokenizer_.reads_lines()) {
    while (text.size() > kLongestLine) {
      const size_t size = lines_that_fit(text, kLongestLine);
      tokenizer_.encode(text.substr(0, size), ids);
      text.remove_prefix(size);
    }
    if (!text.empty()) tokenizer_.encode(text, ids);
    return;
  }
  open_ += text;
  // Looking for a cut in every line that is added would be looking at the same text again and again.
  if (open_.size() > 4 * kPiece) encode_pieces(ids);
}

void DocumentEncoder::finish(std::vector<int32_t>& ids) {
  encode_pieces(ids);
  if (!open_.empty()) tokenizer_.encode(open_, ids);
  open_.clear();
  searched_ = 0;
}

}  // namespace trifold
