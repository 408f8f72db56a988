// ClickInput: a text file to preprocess, packed by gzip or zstd or not.
//
//   ClickInput input(path);            its beginning can be read
//   input.open(folder);                all of it: what is packed is unpacked into a file of `folder` first
//   input.close();                     removes that file
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/mapped_file.h"

namespace trifold {

class ClickInput {
 public:
  // BadInput for a file that is missing, cannot be read, or is packed and damaged at its beginning.
  explicit ClickInput(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // as it is on the disk
  // Its first bytes, whole lines where it has any, behind a byte order mark.
  std::string_view beginning() const;

  // BadInput for a packed file that is damaged or cut off.
  void open(const std::string& folder);
  // All of it, behind a byte order mark; between open and close.
  std::string_view text() const;
  // As MappedFile::release; places in text().
  void release(size_t begin, size_t end) const;
  void close();

 private:
  std::string path_;
  int64_t size_ = 0;
  std::string head_;      // of a packed file, unpacked
  std::string unpacked_;  // the path of that file; empty: there is none
  std::optional<MappedFile> file_;
};

// The files that the paths name, in their order: a file itself; of a folder all text of clicks in it and its
// folders (.csv, .tsv, .txt, day_*, packed or not), by path. BadInput for a path that does not exist, and a
// folder without such a file.
std::vector<std::string> click_inputs(const std::vector<std::string>& paths);

}  // namespace trifold
