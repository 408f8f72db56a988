// IndexedDataset: reads Megatron-LM's indexed format, a pair of files `<prefix>.bin` and `<prefix>.idx`.
//
// `.bin` holds the tokens of all sequences back to back. `.idx` (little-endian, without padding, so its
// arrays are unaligned) says where they begin:
//
//   offset        bytes  content
//   0             9      magic "MMIDIDX\0\0"
//   9             8      u64 version, 1
//   17            1      u8 token type (token_type.h)
//   18            8      u64 S, the number of sequences
//   26            8      u64 D, the number of document indices: documents + 1
//   34            4 S    i32 length of each sequence in tokens
//   34 + 4 S      8 S    i64 byte offset of each sequence in .bin: the running sum of the lengths in bytes
//   34 + 12 S     8 D    i64 document indices: document d is sequences [index d, index d + 1); the first
//                        index is 0, the last S
//
// Both files are mapped, not loaded. The whole .idx is checked when it is opened, so that later reads check
// only token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "files/mapped_file.h"
#include "text/token_type.h"

namespace trifold {

class IndexedDataset {
 public:
  // BadInput with one message if a file is missing or damaged, or the two do not belong together.
  explicit IndexedDataset(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType token_type() const { return type_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  int64_t length(int64_t sequence) const;          // in tokens
  int64_t first_token(int64_t sequence) const;     // tokens of all sequences before it
  int64_t document_index(int64_t document) const;  // its first sequence; for documents(): sequences()

  // Copies tokens [offset, offset + out.size()) of `sequence` to `out`. BadInput if one of them is outside [0,
  // vocab_size); it names the file, the document, the offset in it, the id and the vocabulary.
  void read(int64_t sequence, int64_t offset, std::span<int32_t> out, int64_t vocab_size) const;

  // Checks every token of the file and throws the same error for the first one outside [0, vocab_size). Runs at the
  // speed of the disk; returns at once if the token type cannot hold such an id.
  void check_tokens(int64_t vocab_size) const;
  // Whether one of the first `most` tokens is `id`.
  bool holds_token(int32_t id, int64_t most) const;

 private:
  void check_header();
  void check_sequences();
  void check_documents() const;
  [[noreturn]] void report_token(int64_t position, int64_t vocab_size) const;
  int64_t token_at(int64_t position) const;  // `position` counts all tokens of the file

  std::string prefix_;
  MappedFile index_;
  MappedFile data_;
  TokenType type_ = TokenType::U16;
  int64_t sequences_ = 0;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
};

// Whether `<prefix>.idx` or `<prefix>.bin` exists, that is, whether `prefix` names an indexed data set.
bool is_indexed_prefix(const std::string& prefix);

}  // namespace trifold
