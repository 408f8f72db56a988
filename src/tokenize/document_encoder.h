// DocumentEncoder tokenizes a document of any length in bounded memory.
//
// Bytes and SentencePiece models take the parts that the caller passes, usually lines; a part longer than
// tokenize/text_lines.h allows is cut after the last of its lines that fit. A Hugging Face tokenizer's result depends
// on more than a line, so it gets large pieces, cut where no word can span the cut: at a line end between an ASCII
// character and an ASCII letter or digit, after the line end or before it as Tokenizer::line_cut() says. The tokens are
// therefore those of the whole document; a prefix ("add_prefix_space") is put only before the first piece. A text
// without such a cut for kLongestPiece bytes, or whose tokenizer does not allow cuts at lines, is cut every
// kLongestPiece bytes, like long lines (tokenize/text_lines.h).
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
  // The position, at least `from`, where `text` may be cut; 0: nowhere.
  size_t safe_cut(std::string_view text, size_t from) const;
  void encode_pieces(std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  std::string open_;
  size_t searched_ = 0;  // no cut is before this byte of `open_`
  bool inside_ = false;  // the piece before `open_` ended in plain text
};

}  // namespace trifold
