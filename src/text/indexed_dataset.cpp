#include "text/indexed_dataset.h"

#include <sys/stat.h>

#include <array>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "text/indexed_format.h"

namespace trifold {

namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0;
}

// Opens `<prefix><suffix>` after checking that both files exist, so that one message names both.
MappedFile open_part(const std::string& prefix, const char* suffix) {
  const bool has_index = exists(prefix + ".idx");
  const bool has_data = exists(prefix + ".bin");
  if (!has_index || !has_data) {
    bad_input("{0}: an indexed data set needs both {0}.idx ({1}) and {0}.bin ({2})", prefix,
              has_index ? "found" : "missing", has_data ? "found" : "missing");
  }
  return MappedFile(prefix + suffix);
}

// The value of type T at byte `offset`: the format does not align its arrays.
template <class T>
T load(std::span<const std::byte> bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Calls body(T{}) with the C++ type of the stored tokens.
template <class Body>
auto with_type(TokenType type, Body&& body) {
  switch (type) {
    case TokenType::U8:
      return body(uint8_t{});
    case TokenType::I8:
      return body(int8_t{});
    case TokenType::I16:
      return body(int16_t{});
    case TokenType::U16:
      return body(uint16_t{});
    case TokenType::I32:
      return body(int32_t{});
    case TokenType::I64:
      break;
  }
  return body(int64_t{});
}

}  // namespace

bool is_indexed_prefix(const std::string& prefix) {
  return exists(prefix + ".idx") || exists(prefix + ".bin");
}

IndexedDataset::IndexedDataset(const std::string& prefix)
    : prefix_(prefix), index_(open_part(prefix, ".idx")), data_(open_part(prefix, ".bin")) {
  check_header();
  check_sequences();
  check_documents();
}

void IndexedDataset::check_header() {
  const auto bytes = index_.bytes();
  const std::string& file = index_.path();
  if (index_.size() < kIndexHeaderBytes)
    bad_input("{}: truncated: has {} bytes, the header alone needs {}", file, index_.size(),
              kIndexHeaderBytes);
  if (std::memcmp(bytes.data(), kIndexMagic.data(), kIndexMagic.size()) != 0)
    bad_input("{} is not the index of an indexed data set: it does not start with \"MMIDIDX\"", file);
  const auto version = load<uint64_t>(bytes, 9);
  if (version != kIndexVersion) bad_input("{} has format version {}; only version 1 is known", file, version);
  const auto code = load<uint8_t>(bytes, 17);
  const std::optional<TokenType> type = token_type_of_code(code);
  if (!type)
    bad_input("{} has element type code {}, which is not a type for tokens (1 to 5 or 8)", file, code);
  type_ = *type;

  const auto sequences = load<uint64_t>(bytes, 18);
  const auto indices = load<uint64_t>(bytes, 26);
  constexpr uint64_t kMostCounted = uint64_t{1} << 48;  // keeps the sizes below from overflowing
  if (sequences > kMostCounted || indices > kMostCounted)
    bad_input("{}: damaged: it claims {} sequences and {} document indices", file, sequences, indices);
  if (indices == 0) bad_input("{}: damaged: it has no document indices, at least 1 is needed", file);
  sequences_ = static_cast<int64_t>(sequences);
  documents_ = static_cast<int64_t>(indices) - 1;
  const int64_t expected = kIndexHeaderBytes + 12 * sequences_ + 8 * (documents_ + 1);
  if (index_.size() == expected + sequences_ && sequences_ > 0)
    bad_input("{} is a multimodal index (one mode byte a sequence follows); only text is supported", file);
  if (index_.size() != expected)
    bad_input("{}: {}: {} sequences and {} document indices need {} bytes, the file has {}", file,
              index_.size() < expected ? "truncated" : "too long", sequences_, indices, expected,
              index_.size());
}

void IndexedDataset::check_sequences() {
  const auto bytes = index_.bytes();
  const int64_t lengths = kIndexHeaderBytes;
  const int64_t pointers = lengths + 4 * sequences_;
  int64_t position = 0;
  for (int64_t s = 0; s < sequences_; ++s) {
    const auto length = load<int32_t>(bytes, lengths + 4 * s);
    if (length < 0) bad_input("{}: damaged: sequence {} has length {}", index_.path(), s, length);
    const auto pointer = load<int64_t>(bytes, pointers + 8 * s);
    if (pointer != position)
      bad_input(
          "{}: damaged: sequence {} should start at byte {} of the .bin (the lengths before it), not {}",
          index_.path(), s, position, pointer);
    position += length * size_of(type_);
  }
  if (data_.size() != position)
    bad_input("{} does not match its index: {} says {} bytes ({} tokens of type {}), the file has {}",
              data_.path(), index_.path(), position, position / size_of(type_), name_of(type_), data_.size());
  tokens_ = position / size_of(type_);
}

void IndexedDataset::check_documents() const {
  if (document_index(0) != 0)
    bad_input("{}: damaged: the first document index is {}, not 0", index_.path(), document_index(0));
  for (int64_t d = 0; d < documents_; ++d) {
    if (document_index(d + 1) < document_index(d))
      bad_input("{}: damaged: document index {} is {}, less than the one before it, {}", index_.path(), d + 1,
                document_index(d + 1), document_index(d));
  }
  if (document_index(documents_) != sequences_)
    bad_input("{}: damaged: the last document index is {}, not the number of sequences, {}", index_.path(),
              document_index(documents_), sequences_);
}

int64_t IndexedDataset::length(int64_t sequence) const {
  return load<int32_t>(index_.bytes(), kIndexHeaderBytes + 4 * sequence);
}

int64_t IndexedDataset::first_token(int64_t sequence) const {
  return load<int64_t>(index_.bytes(), kIndexHeaderBytes + 4 * sequences_ + 8 * sequence) / size_of(type_);
}

int64_t IndexedDataset::document_index(int64_t document) const {
  return load<int64_t>(index_.bytes(), kIndexHeaderBytes + 12 * sequences_ + 8 * document);
}

int64_t IndexedDataset::token_at(int64_t position) const {
  return with_type(type_, [&](auto zero) -> int64_t {
    return load<decltype(zero)>(data_.bytes(), position * static_cast<int64_t>(sizeof(zero)));
  });
}

void IndexedDataset::read(int64_t sequence, int64_t offset, std::span<int32_t> out,
                          int64_t vocab_size) const {
  const auto count = static_cast<int64_t>(out.size());
  check(0 <= sequence && sequence < sequences_ && 0 <= offset && offset + count <= length(sequence),
        "{}: tokens [{}, {}) of sequence {} do not exist", prefix_, offset, offset + count, sequence);
  if (count == 0) return;
  const int64_t begin = first_token(sequence) + offset;
  // One pass copies and finds the largest id; as an unsigned number a negative id is large too.
  const uint64_t largest = with_type(type_, [&](auto zero) {
    using T = decltype(zero);
    const std::byte* from = data_.bytes().data() + begin * static_cast<int64_t>(sizeof(T));
    uint64_t most = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, from + i * sizeof(T), sizeof(T));
      const int64_t id{value};
      most = std::max(most, static_cast<uint64_t>(id));
      out[i] = static_cast<int32_t>(id);
    }
    return most;
  });
  if (largest < static_cast<uint64_t>(vocab_size)) return;
  for (int64_t i = begin; i < begin + count; ++i) {
    if (const int64_t id = token_at(i); id < 0 || id >= vocab_size) report_token(i, vocab_size);
  }
}

void IndexedDataset::check_tokens(int64_t vocab_size) const {
  if (!is_signed(type_) && max_token(type_) < vocab_size) return;
  constexpr int64_t kBlock = 1 << 16;  // tokens between two checks of the result
  for (int64_t begin = 0; begin < tokens_; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, tokens_);
    const uint64_t largest = with_type(type_, [&](auto zero) {
      using T = decltype(zero);
      const std::byte* from = data_.bytes().data();
      uint64_t most = 0;
      for (int64_t i = begin; i < end; ++i) {
        T value;
        std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
        most = std::max(most, static_cast<uint64_t>(static_cast<int64_t>(value)));
      }
      return most;
    });
    if (largest < static_cast<uint64_t>(vocab_size)) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (const int64_t id = token_at(i); id < 0 || id >= vocab_size) report_token(i, vocab_size);
    }
  }
}

bool IndexedDataset::holds_token(int32_t id, int64_t most) const {
  return with_type(type_, [&](auto zero) {
    using T = decltype(zero);
    const std::byte* from = data_.bytes().data();
    for (int64_t i = 0; i < std::min(tokens_, most); ++i) {
      T value;
      std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
      if (static_cast<int64_t>(value) == id) return true;
    }
    return false;
  });
}

// Finds the last document that starts at or before the token, by bisection over the documents' first tokens;
// empty documents share their start with the next one, so the last one is right.
void IndexedDataset::report_token(int64_t position, int64_t vocab_size) const {
  const auto start_of = [&](int64_t document) {
    const int64_t sequence = document_index(document);
    return sequence == sequences_ ? tokens_ : first_token(sequence);
  };
  int64_t document = 0;
  int64_t end = documents_;
  while (end - document > 1) {
    const int64_t middle = document + (end - document) / 2;
    if (start_of(middle) <= position) {
      document = middle;
    } else {
      end = middle;
    }
  }
  bad_input(
      "{}: document {}, token {} (both counted from 0): id {} is outside the vocabulary of {} tokens; the "
      "file was made with another tokenizer, or --vocab-size is too small",
      data_.path(), document, position - start_of(document), token_at(position), vocab_size);
}

}  // namespace trifold
