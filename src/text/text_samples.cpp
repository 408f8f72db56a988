#include "text/text_samples.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/plain_text.h"
#include "tokenize/document_encoder.h"
#include "tokenize/text_lines.h"
#include "tokenize/unicode/unicode.h"

namespace trifold {

TextTokens::TextTokens(const std::string& path, const Tokenizer* tokenizer, int64_t vocab_size)
    : path_(path), tokens_(MappedFile(path)) {
  const MappedFile& file = std::get<MappedFile>(tokens_);
  if (file.size() == 0) bad_input("{}: the text file is empty", path);
  const std::string_view text = file.text();
  expect_plain_text(text, path);
  if (tokenizer != nullptr) {
    if (!tokenizer->takes_bytes()) expect_utf8_of_file(file);
    try {
      tokenizer->check_text(text);
    } catch (Error& error) {
      error.add_context(path);
      throw;
    }
  }
  if (tokenizer != nullptr && !tokenizer->takes_bytes()) {
    std::vector<int32_t> ids;
    DocumentEncoder encoder(*tokenizer);
    for_each_line(text, kLongestLine, [&](std::string_view line) { encoder.add(line, ids); });
    encoder.finish(ids);
    if (ids.empty()) bad_input("{}: the tokenizer produces no tokens from the text file", path);
    tokens_ = std::move(ids);
  }
  check_vocabulary(vocab_size);
}

int64_t TextTokens::count() const {
  if (const auto* file = std::get_if<MappedFile>(&tokens_)) return file->size();
  return static_cast<int64_t>(std::get<std::vector<int32_t>>(tokens_).size());
}

void TextTokens::read(int64_t begin, std::span<int32_t> out) const {
  check(0 <= begin && begin + static_cast<int64_t>(out.size()) <= count(), "{}: tokens [{}, {}) do not exist",
        path_, begin, begin + static_cast<int64_t>(out.size()));
  if (const auto* file = std::get_if<MappedFile>(&tokens_)) {
    const std::byte* from = file->bytes().data() + begin;
    for (size_t i = 0; i < out.size(); ++i) out[i] = std::to_integer<int32_t>(from[i]);
    return;
  }
  const auto& ids = std::get<std::vector<int32_t>>(tokens_);
  std::copy_n(ids.begin() + begin, out.size(), out.begin());
}

void TextTokens::check_vocabulary(int64_t vocab_size) const {
  if (std::holds_alternative<MappedFile>(tokens_) && vocab_size >= 256) return;
  std::vector<int32_t> block(size_t{1} << 16);
  for (int64_t begin = 0; begin < count(); begin += static_cast<int64_t>(block.size())) {
    const auto size = std::min(static_cast<int64_t>(block.size()), count() - begin);
    const auto part = std::span(block).first(static_cast<size_t>(size));
    read(begin, part);
    const auto bad = std::find_if(part.begin(), part.end(), [&](int32_t id) { return id >= vocab_size; });
    if (bad != part.end())
      bad_input(
          "{}: document 0, token {} (both counted from 0): id {} is outside the vocabulary of {} tokens; "
          "--vocab-size is too small for the tokenizer",
          path_, begin + (bad - part.begin()), *bad, vocab_size);
  }
}

TextSamples::TextSamples(std::shared_ptr<const TextTokens> text, Interval part, Split split,
                         int64_t seq_length, int64_t num_samples, uint64_t seed, bool fixed_cut)
    : text_(std::move(text)), part_(part), seq_length_(seq_length), seed_(seed) {
  check(seq_length > 0, "a sample of {} tokens does not exist", seq_length);
  if (part.size() <= seq_length)
    bad_input(
        "{}: its {} part has {} tokens (of {} in the file), one sample needs {} (--seq-length {} and one "
        "label); change --split or give more text",
        text_->path(), part_name(split), part.size(), text_->count(), seq_length + 1, seq_length);
  windows_ = (part.size() - 1) / seq_length;
  if (split == Split::Train && !fixed_cut) {
    // Leaves out one window per epoch, if there are at least two, so that the cut can shift by up to a window's length.
    if (windows_ > 1) --windows_;
    max_shift_ = part.size() - 1 - windows_ * seq_length;
  }
  epochs_ = std::max<int64_t>(1, (num_samples + windows_ - 1) / windows_);
}

PhiloxKey TextSamples::key_of_epoch(std::string_view purpose, int64_t epoch) const {
  std::array<char, 64> name;  // so that reading a sample allocates nothing
  const auto end = fmt::format_to_n(name.data(), name.size(), "text {}, epoch {}", purpose, epoch);
  return philox_key(seed_, {name.data(), end.size});
}

int64_t TextSamples::start_of(int64_t index) const {
  check(0 <= index && index < count(), "sample {} was asked for, there are {}", index, count());
  const int64_t epoch = index / windows_;
  const Permutation order(key_of_epoch("order", epoch), windows_);
  const PhiloxKey shift_key = key_of_epoch("shift", epoch);
  const auto words = philox(shift_key, 0);
  const uint64_t random = uint64_t{words[0]} << 32 | words[1];
  const auto shift = static_cast<int64_t>(random % static_cast<uint64_t>(max_shift_ + 1));
  return part_.begin + shift + order(index % windows_) * seq_length_;
}

void TextSamples::read(int64_t index, std::span<int32_t> out) const { text_->read(start_of(index), out); }

}  // namespace trifold
