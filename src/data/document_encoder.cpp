#include "data/document_encoder.h"

#include "data/text_lines.h"

namespace trifold {

namespace {

// A mark that may close a token like "<mask>", which could take the white space behind it, is left out.
bool may_end_line(char c) { return c > ' ' && c < 0x7F && c != '>' && c != ']'; }

bool may_begin_line(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

size_t DocumentEncoder::safe_cut(std::string_view text, size_t least) {
  for (size_t at = text.find('\n', least); at != std::string_view::npos && at + 1 < text.size();
       at = text.find('\n', at + 1))
    if (at > 0 && may_end_line(text[at - 1]) && may_begin_line(text[at + 1])) return at + 1;
  return 0;
}

void DocumentEncoder::encode_pieces(std::vector<int32_t>& ids) {
  std::string_view rest = open_;
  while (rest.size() > kPiece) {
    size_t size = safe_cut(rest.substr(0, kLongestPiece), kPiece);
    if (size == 0) {
      if (rest.size() <= kLongestPiece) break;
      // The last of the lines that fit.
      size = rest.substr(0, kLongestPiece).rfind('\n') + 1;
      if (size == 0) size = cut_before(rest, kLongestPiece);
    }
    tokenizer_.encode(rest.substr(0, size), ids);
    rest.remove_prefix(size);
  }
  open_.erase(0, open_.size() - rest.size());
}

void DocumentEncoder::add(std::string_view text, std::vector<int32_t>& ids) {
  if (tokenizer_.reads_lines()) {
    tokenizer_.encode(text, ids);
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
}

}  // namespace trifold
