// `trifold tokenize` converts text or JSON lines to the indexed format of token files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "text/bad_records.h"
#include "tokenize/tokenizer.h"

namespace trifold {

enum class TextFormat {
  Auto,       // JsonLines if the name ends in .json, .jsonl or .ndjson, else Text
  Text,       // plain text
  JsonLines,  // one JSON object per line; each is one document
};

// The unit of a plain text file that becomes one document. --split later cuts between documents, so a file that is one
// document cannot be divided.
enum class DocumentUnit {
  File,
  Paragraph,  // up to and including the blank lines after it
  Line,
};

struct TokenizeOptions {
  std::string input;
  std::string output_prefix;
  TextFormat format = TextFormat::Auto;
  DocumentUnit unit = DocumentUnit::File;      // plain text only
  std::vector<std::string> json_keys{"text"};  // JSON lines only: one output for each key
  bool append_eod = false;                     // the tokenizer's end-of-document token after each document
  BadRecords* bad = nullptr;                   // JSON lines only: skips unusable lines; null: they are errors
};

struct TokenizeProgress {
  int64_t input_bytes = 0;  // size of the file
  int64_t bytes_done = 0;
  int64_t documents = 0;
  int64_t tokens = 0;  // in all outputs together
};

struct TokenizeResult {
  std::vector<std::string> prefixes;  // "<output_prefix>_<key>_document", the names Megatron-LM's tool uses
  int64_t input_bytes = 0;
  int64_t documents = 0;  // in all outputs together
  int64_t tokens = 0;
  int64_t empty_documents = 0;  // not written, because they have no token
};

// Writes one .bin/.idx pair for each key ("text" for plain text). Tokens are u16 if the vocabulary is smaller than
// 65500 and i32 otherwise. The input is streamed: memory holds the longest line and a few bytes per document.
// `progress` is called about every megabyte of input and once at the end.
//
// BadInput, writing nothing, for an input that is missing, empty, not text or without any token; a line that is not a
// JSON object or lacks a key (the message has file and line), unless `bad` skips it; a missing output folder; or
// append_eod with a tokenizer that has no end-of-document token.
TokenizeResult tokenize(const TokenizeOptions& options, const Tokenizer& tokenizer,
                        FunctionRef<void(const TokenizeProgress&)> progress);

}  // namespace trifold
