// ClickInput streams a text file, which may be compressed, in windows of whole lines:
//
//   ClickInput input(path);
//   input.beginning();                              to find its layout
//   while (auto window = input.next(bytes)) ...     all of its text
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/byte_reader.h"
#include "files/mapped_file.h"

namespace trifold {

class ClickInput {
 public:
  // BadInput for a file that is missing, cannot be read, or is packed and damaged at its beginning.
  explicit ClickInput(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // on the disk
  // The first bytes after any byte order mark, cut to whole lines if possible.
  std::string_view beginning() const;

  struct Window {
    std::string_view text;   // valid until the next call of `next`
    int64_t first_byte = 0;  // offset in the unpacked text
    double share = 0;        // approximate fraction of the file read so far, including this window
  };
  // The next lines, about `bytes` bytes; nullopt at the end. If a line exceeds kLongestClickLine the window ends inside
  // it. BadInput for a packed file that is damaged or truncated.
  std::optional<Window> next(size_t bytes);

 private:
  bool fill(size_t bytes);

  std::string path_;
  int64_t size_ = 0;
  std::optional<MappedFile> file_;      // for files that are not packed
  std::unique_ptr<ByteReader> reader_;  // for packed files
  std::string waiting_;                 // unpacked text; not yet returned from byte given_ on
  size_t given_ = 0;
  int64_t at_ = 0;        // end of the last window in the text
  int64_t released_ = 0;  // end of the released part of the text
};

// Expands paths to files, in their order. A folder stands for all click files in it and its subfolders (.csv, .tsv,
// .txt, day_*, packed or not; .parquet; for arrays NAME_labels.npy and .npz; Norm files), sorted by path; names are
// compared without case. BadInput for a path that does not exist and for a folder without such files. `left_out`, if
// not null, gets the other files of the folders, except files that belong to a labels file.
std::vector<std::string> click_inputs(const std::vector<std::string>& paths,
                                      std::vector<std::string>* left_out = nullptr);

// Whether `path` is taken for a Norm file of HugeCTR: its name ends in .data, and the bytes that would be its header
// include a 0, which text does not.
bool is_norm_file(const std::string& path);

// The offset where the first line at or after `at` begins, for `at` > 0; an offset inside a line if that is too long.
size_t click_line_start(std::string_view text, size_t at);

}  // namespace trifold
