// TrialCuts cuts a document into pieces for a tokenizer without places where cuts are known to be safe. A cut is made
// where a trial on the text around it gives the tokens of the uncut text. Most such tokenizers put a space before a
// text, so a later piece is encoded with the character before it, whose ids are then dropped. Documents of up to a whole
// piece (DocumentEncoder::kLongestPiece) are never cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "tokenize/tokenizer.h"

namespace trifold {

class TrialCuts {
 public:
  // `ids_of` gives the ids of a whole text (UTF-8) and must outlive this object.
  explicit TrialCuts(FunctionRef<std::vector<int32_t>(std::string_view)> ids_of) : ids_of_(ids_of) {}

  // As Tokenizer::find_cut and encode_piece.
  size_t find_cut(std::string_view text, size_t from) const;
  void encode_piece(std::string_view text, PieceState& state, std::vector<int32_t>& ids) const;

 private:
  // The ids of `text` after the character `last`; the ids of `text` alone if the model does not separate them.
  std::vector<int32_t> ids_after(const std::string& last, std::string_view text) const;
  // Whether the text around position `at` has the same ids if it is cut there.
  bool may_cut(std::string_view text, size_t at) const;

  FunctionRef<std::vector<int32_t>(std::string_view)> ids_of_;
};

}  // namespace trifold
