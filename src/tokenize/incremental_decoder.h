// IncrementalDecoder decodes token ids one by one into pieces of whole characters. A character may be split over
// tokens; its bytes are held back until it is complete. Invalid bytes become U+FFFD, one per maximal subpart
// (replace_invalid_utf8).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tokenize/tokenizer.h"

namespace trifold {

class IncrementalDecoder {
 public:
  // `before`: ids that precede the first added one. Their text counts as returned, except an incomplete character at
  // its end. `tokenizer` must outlive this object.
  IncrementalDecoder(const Tokenizer& tokenizer, std::span<const int32_t> before);

  // The text that `id` completes; empty while a character is incomplete. BadInput for an id outside the
  // vocabulary.
  std::string add(int32_t id);
  // The rest, after the last id: an incomplete character as U+FFFD.
  std::string finish();

 private:
  std::string decoded() const;
  std::string given_out(std::string text, size_t end);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t given_ = 0;  // bytes of the text that were returned
};

// The size of the prefix of `text` (valid UTF-8, decoded from a prefix of a sequence of ids) that no later id can
// change: everything except up to three U+FFFD at its end, which may be the first bytes of a character.
size_t stable_size(std::string_view text);

}  // namespace trifold
