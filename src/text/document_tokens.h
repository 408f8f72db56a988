// DocumentTokens: converts a document in a file to tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bad_records.h"
#include "text/text_walker.h"
#include "tokenize/document_encoder.h"

namespace trifold {

// Not thread-safe: each thread needs its own.
class DocumentTokens {
 public:
  // `json_key` is the field of a JSON line that holds its text. `tokenizer`, and `bad` if given, must outlive this
  // object.
  DocumentTokens(const Tokenizer& tokenizer, std::string json_key, BadRecords* bad = nullptr);

  // Appends the tokens of `document`, a piece of `text`, and the end-of-document token if the tokenizer has one.
  // BadInput, naming file and line, for invalid JSON, a missing field, or text that is not UTF-8 (unless tokens are
  // bytes). If `bad` skips such lines, they have no tokens instead.
  void add(std::string_view text, const RawDocument& document, std::vector<int32_t>& ids);

 private:
  std::string text_of_json(std::string_view line, const RawDocument& document) const;
  std::string place_of(const RawDocument& document) const;
  void check_text(std::string_view text, const RawDocument& document) const;
  void encode(std::string_view text, const RawDocument& document, std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  std::string json_key_;
  BadRecords* bad_;
  DocumentEncoder encoder_;
};

// "<file>:<line>" of a byte, for messages; reads the file again up to that byte.
std::string place_in_file(const StreamFile& file, int64_t offset);

}  // namespace trifold
