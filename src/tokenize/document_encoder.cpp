#include "tokenize/document_encoder.h"

#include <algorithm>

#include "tokenize/text_lines.h"

namespace trifold {

namespace {

// The size of the longest beginning of `text` within `longest` bytes that ends at a line end, or else between words.
size_t lines_that_fit(std::string_view text, size_t longest) {
  const size_t size = text.substr(0, longest).rfind('\n') + 1;
  return size > 0 ? size : cut_before(text, longest);
}

}  // namespace

void DocumentEncoder::encode_pieces(std::vector<int32_t>& ids) {
  std::string_view rest = open_;
  while (rest.size() > kPiece) {
    size_t size = tokenizer_.find_cut(rest.substr(0, kLongestPiece), std::max(searched_, kPiece));
    if (size == 0) {
      searched_ = rest.size() - 1;  // the character after a line end there is not known yet
      if (rest.size() <= kLongestPiece) break;
      size = lines_that_fit(rest, kLongestPiece);
    }
    tokenizer_.encode_piece(rest.substr(0, size), state_, ids);
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
  // A search for a cut after every line would scan the same text repeatedly.
  if (open_.size() > 4 * kPiece) encode_pieces(ids);
}

void DocumentEncoder::finish(std::vector<int32_t>& ids) {
  encode_pieces(ids);
  if (!open_.empty()) tokenizer_.encode_piece(open_, state_, ids);
  open_.clear();
  state_ = {};
  searched_ = 0;
}

}  // namespace trifold
