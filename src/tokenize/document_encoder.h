// DocumentEncoder tokenizes a document of any length in bounded memory.
//
// Bytes are encoded as the caller passes them. The result of other tokenizers depends on more than a line, so they get
// large pieces, cut where Tokenizer::find_cut() says that nothing changes: Hugging Face's at a line end between an ASCII
// character and an ASCII letter or digit, SentencePiece models at a place in the text that was tried. The tokens are
// therefore those of the whole document; a prefix ("add_prefix_space", "add_dummy_prefix") is put only before the first
// piece. A text without such a place for kLongestPiece bytes is cut every kLongestPiece bytes, like long lines
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

  // Takes the next part of the document, which may end between any two characters (a tokenizer that reads lines gets
  // the part unchanged). Appends the tokens that are final by now to `ids`.
  void add(std::string_view text, std::vector<int32_t>& ids);
  // Appends the remaining tokens; the next `add` begins another document.
  void finish(std::vector<int32_t>& ids);
  bool holds_text() const { return !open_.empty(); }

 private:
  void encode_pieces(std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  std::string open_;
  size_t searched_ = 0;  // no cut is before this byte of `open_`
  PieceState state_;     // after the piece before `open_`
};

}  // namespace trifold
