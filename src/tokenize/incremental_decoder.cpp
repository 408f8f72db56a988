#include "tokenize/incremental_decoder.h"

#include <algorithm>

#include "tokenize/unicode/unicode.h"

namespace trifold {

namespace {

constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";
// Up to three bytes of a four-byte character may have arrived; some tokenizers decode each as U+FFFD.
constexpr int kMostIncomplete = 3;

}  // namespace

size_t stable_size(std::string_view text) {
  for (int i = 0; i < kMostIncomplete && text.ends_with(kReplacementText); ++i)
    text.remove_suffix(kReplacementText.size());
  return text.size();
}

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, std::span<const int32_t> before)
    : tokenizer_(tokenizer), ids_(before.begin(), before.end()), given_(stable_size(decoded())) {}

// All ids are decoded again each time: the pieces of some tokenizers depend on their neighbours.
std::string IncrementalDecoder::decoded() const { return replace_invalid_utf8(tokenizer_.decode(ids_)); }

std::string IncrementalDecoder::given_out(std::string text, size_t end) {
  if (end <= given_) return {};
  text = text.substr(given_, end - given_);
  given_ = end;
  return text;
}

std::string IncrementalDecoder::add(int32_t id) {
  ids_.push_back(id);
  if (tokenizer_.is_part_of_character(id)) return {};  // what is before it may still change
  std::string text = decoded();
  const size_t end = stable_size(text);
  return given_out(std::move(text), end);
}

std::string IncrementalDecoder::finish() {
  std::string text = decoded();
  const size_t end = text.size();
  return given_out(std::move(text), end);
}

}  // namespace trifold
