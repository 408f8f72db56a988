// TextWalker visits the texts of a streamed corpus in an order that is a pure function of the seed and the files.
//
// An epoch visits every part (text/stream_files.h) once, in its own pseudo-random order. A part of plain text is one
// document, and so is each line of JSON; packed plain text is cut into documents of the size of a part. A hash of its
// file's name and its position there assigns each document to training, validation or test, independently of the seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/split.h"
#include "text/stream_files.h"

namespace trifold {

// The position at which reading continues: `part` counts in the order of the epoch; `offset` is used only in packed
// files.
struct StreamPosition {
  int64_t epoch = 0;
  int64_t part = 0;
  int64_t offset = 0;  // bytes, unpacked
};

// One document before tokenization: [begin, end) of a text, which begins at byte `offset` of a file.
struct RawDocument {
  size_t begin;
  size_t end;
  const StreamFile* file;
  int64_t offset;
};

class TextWalker {
 public:
  // `files` must outlive this object.
  TextWalker(const StreamFiles& files, const SplitFractions& fractions, Split split, uint64_t seed);

  const StreamPosition& position() const { return position_; }
  void go_to(const StreamPosition& position);

  // Appends the next bytes of the epoch to `text` and the documents in them to `documents`: a part, or some hundred
  // kilobytes of a packed file. False at the end of the epoch; the position is then the beginning of the next.
  bool read_more(std::string& text, std::vector<RawDocument>& documents);

 private:
  bool takes(const StreamFile& file, int64_t offset) const;
  void add_documents(const StreamFile& file, size_t begin, int64_t offset, std::string& text,
                     std::vector<RawDocument>& documents) const;
  void read_packed(const StreamFile& file, std::string& text, std::vector<RawDocument>& documents);
  static size_t end_of_document(const StreamFile& file, std::string_view open);
  void next_part();

  const StreamFiles& files_;
  SplitFractions fractions_;
  Split split_;
  uint64_t seed_;
  StreamPosition position_;
  std::unique_ptr<ByteReader> packed_;  // at byte position_.offset + open_.size()
  std::string open_;                    // read, but not yet returned
};

}  // namespace trifold
