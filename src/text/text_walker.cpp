#include "text/text_walker.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "data/permutation.h"

namespace trifold {

TextWalker::TextWalker(const StreamFiles& files, const SplitFractions& fractions, Split split, uint64_t seed)
    : files_(files), fractions_(fractions), split_(split), seed_(seed) {}

void TextWalker::go_to(const StreamPosition& position) {
  position_ = position;
  packed_.reset();
  open_.clear();
}

bool TextWalker::takes(const StreamFile& file, int64_t offset) const {
  const PhiloxKey key = philox_key(0, file.name);
  const double draw = philox(key, static_cast<uint64_t>(offset))[0] / 4294967296.0;
  return fractions_.takes(split_, draw);
}

// Adds the documents in text[begin, end), which begins at `offset` in the file. Plain text is one document.
void TextWalker::add_documents(const StreamFile& file, size_t begin, int64_t offset, std::string& text,
                               std::vector<RawDocument>& documents) const {
  if (file.kind == TextKind::Plain) {
    if (begin < text.size() && takes(file, offset)) documents.push_back({begin, text.size(), &file, offset});
    return;
  }
  for (size_t at = begin; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const int64_t position = offset + static_cast<int64_t>(at - begin);
    if (text.find_first_not_of(" \t\r", at) < end && takes(file, position))
      documents.push_back({at, end, &file, position});
    at = end + 1;
  }
}

// The end of the next documents within the bytes read from a packed file; 0: more must be read. It depends only on the
// bytes, not on how many have been read, so that a resumed run cuts them alike.
size_t TextWalker::end_of_document(const StreamFile& file, std::string_view open) {
  const auto part = static_cast<size_t>(StreamFiles::kPart);
  const auto search = static_cast<size_t>(StreamFiles::kSearch);
  if (file.kind == TextKind::JsonLines) return open.find('\n', part - 1) + 1;
  if (open.size() < part + search) return 0;
  const size_t line = open.substr(0, part + search).find('\n', part - 1);
  if (line != std::string_view::npos) return line + 1;
  size_t cut = part;
  while (cut < part + 4 && (static_cast<unsigned char>(open[cut]) & 0xC0U) == 0x80U) ++cut;
  return cut;
}

void TextWalker::read_packed(const StreamFile& file, std::string& text, std::vector<RawDocument>& documents) {
  if (!packed_) {
    packed_ = open_bytes(file.path, file.packing);
    skip_bytes(*packed_, position_.offset, file.path);
  }
  size_t end = end_of_document(file, open_);
  while (end == 0) {
    const size_t before = open_.size();
    open_.resize(before + static_cast<size_t>(StreamFiles::kPart));
    const size_t got = packed_->read(std::span(open_).subspan(before));
    open_.resize(before + got);
    if (got == 0) break;
    end = end_of_document(file, open_);
    if (end == 0 && std::ssize(open_) > StreamFiles::kLongestLine)
      bad_input(
          "{}: the line from byte {} on (unpacked) is longer than {} bytes; "
          "one JSON object a line is expected",
          file.path, position_.offset, StreamFiles::kLongestLine);
  }
  const bool ended = end == 0;
  if (ended) end = open_.size();
  const size_t begin = text.size();
  text.append(open_, 0, end);
  add_documents(file, begin, position_.offset, text, documents);
  open_.erase(0, end);
  position_.offset += static_cast<int64_t>(end);
  if (ended) next_part();
}

void TextWalker::next_part() {
  packed_.reset();
  open_.clear();
  ++position_.part;
  position_.offset = 0;
}

bool TextWalker::read_more(std::string& text, std::vector<RawDocument>& documents) {
  if (position_.part == files_.parts()) {
    go_to({position_.epoch + 1, 0, 0});
    return false;
  }
  const Permutation order(philox_key(seed_, fmt::format("stream, epoch {}", position_.epoch)),
                          files_.parts());
  const int64_t part = order(position_.part);
  const StreamFile& file = files_.file_of(part);
  if (file.packing != Packing::None) {
    read_packed(file, text, documents);
    return true;
  }
  const size_t begin = text.size();
  int64_t offset = 0;
  read_part(file, part, text, offset);
  add_documents(file, begin, offset, text, documents);
  next_part();
  return true;
}

}  // namespace trifold
