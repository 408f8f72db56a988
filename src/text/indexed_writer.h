// IndexedWriter writes Megatron-LM's indexed format (indexed_dataset.h), byte for byte as Megatron-LM does.
//
// Tokens are written to disk as they are added; memory holds only 4 bytes per sequence and 8 bytes per document. The
// files get their names in `finish`, the .idx last, so a reader finds either a complete data set or none. A writer
// destroyed before that (after an error, say) leaves no files.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "files/scratch_folder.h"
#include "text/token_type.h"

namespace trifold {

class IndexedWriter {
 public:
  // BadInput when the folder of `prefix` does not exist or cannot be written.
  IndexedWriter(const std::string& prefix, TokenType type);
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;

  // Appends tokens to the open sequence. An Error when an id is negative or does not fit the token type.
  void add(std::span<const int32_t> tokens);
  // Closes the open sequence, empty or not.
  void end_sequence();
  // Closes the document, which has all sequences since the last document (possibly none). No sequence may be open.
  void end_document();
  // Completes both files and gives them their names, replacing older ones. Call once, after the last
  // document.
  void finish();

  const std::string& prefix() const { return prefix_; }
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t documents() const { return static_cast<int64_t>(document_indices_.size()) - 1; }
  int64_t tokens() const { return tokens_; }
  int64_t open_tokens() const { return open_; }  // tokens in the open sequence

 private:
  void write_index();

  std::string prefix_;
  TokenType type_;
  std::unique_ptr<ScratchFolder> scratch_;
  std::string data_name_;  // in the scratch folder
  std::string index_name_;
  std::ofstream data_;
  std::vector<char> bytes_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> document_indices_{0};
  int64_t tokens_ = 0;
  int64_t open_ = 0;
};

}  // namespace trifold
