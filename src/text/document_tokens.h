// From a document as it stands in a file to its tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bad_records.h"
#include "text/text_walker.h"
#include "tokenize/document_encoder.h"

namespace trifold {

// Not for several threads at a time: each has its own.
class DocumentTokens {
 public:
  // `json_key` is the field of a JSON line that holds its text. `tokenizer` must outlive this object.
  // `bad`, where it is given, must too.
  DocumentTokens(const Tokenizer& tokenizer, std::string json_key, BadRecords* bad = nullptr);

  // Appends the tokens of `document`, a piece of `text`, and the token that ends a document where the
  // tokenizer has one. BadInput, naming file and line, for what is not JSON or has no such field, and for
  // text that is not UTF-8, unless its bytes are the tokens. A line of JSON that cannot be used has no
  // tokens where `bad` skips such.
  void add(std::string_view text, const RawDocument& document, std::vector<int32_t>& ids);

 private:
  std::string text_of_json(std::string_view line, const RawDocument& document) const;
  std::string place_of(const RawDocument& document) const;
  void encode(std::string_view text, const RawDocument& document, std::vector<int32_t>& ids);

  const Tokenizer& tokenizer_;
  std::string json_key_;
  BadRecords* bad_;
  DocumentEncoder encoder_;
};

// "<file>:<line>" of a byte, for messages: the file is read again up to it.
std::string place_in_file(const StreamFile& file, int64_t offset);

}  // namespace trifold
