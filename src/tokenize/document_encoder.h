// DocumentEncoder tokenizes a document of any length in bounded memory.
//
// Bytes are encoded as the caller passes them. Other tokenizers look beyond a line, so they get large pieces, cut where
// Tokenizer::find_cut() says that the cut does not change the tokens: Hugging Face's at a line end between an ASCII
// character and an ASCII letter or digit, SentencePiece models at a place that was tested. The tokens therefore equal
// the tokens of the whole document; a prefix ("add_prefix_space", "add_dummy_prefix") is put only before the first
// piece. A text without such a place within kLongestPiece bytes is cut after that many bytes, as long lines are
// (tokenize/text_lines.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/tokenizer.h"

namespace trifold {

class DocumentEncoder {
 public:
  // `tokenizer` must outlive this object.
  explicit DocumentEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  static constexpr size_t kPiece = size_t{1} << 14;         // least bytes of a piece
  static constexpr size_t kLongestPiece = size_t{1} << 20;  // most bytes of a piece

  // Adds the next part of the document, which may end between any two characters (a tokenizer that reads lines gets the
  // part unchanged). Appends the tokens that are final by now to `ids`.
  void add(std::string_view text, std::vector<int32_t>& ids);
  // Appends the remaining tokens; the next `add` begins another document.
  void finish(std::vector<int32_t>& ids);
  bool holds_text() const { return !open_.empty(); }

 private:
  void encode_pieces(std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  std::string open_;
  size_t searched_ = 0;  // the bytes of `open_` before this one contain no cut
  PieceState state_;     // state after the piece before `open_`
};

}  // namespace trifold
