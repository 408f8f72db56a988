// ClickInput reads a text file to preprocess, which may be compressed, once, window by window.
//
//   ClickInput input(path);
//   input.beginning();                              for its layout
//   while (auto window = input.next(bytes)) ...     all of it, in whole lines
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
    int64_t first_byte = 0;  // position in the unpacked text
    double share = 0;        // approximate share of the file read so far, this window included
  };
  // The next lines, about `bytes` bytes; nullopt at the end. If a line exceeds kLongestClickLine the window ends inside
  // it. BadInput for a packed file that is damaged or truncated.
  std::optional<Window> next(size_t bytes);

 private:
  bool fill(size_t bytes);

  std::string path_;
  int64_t size_ = 0;
  std::optional<MappedFile> file_;      // for files that are not packed
  std::unique_ptr<ByteReader> reader_;  // else
  std::string waiting_;                 // unpacked; from byte given_ on not yet returned
  size_t given_ = 0;
  int64_t at_ = 0;        // end of the last window in the text
  int64_t released_ = 0;  // end of the released part of the text
};

// The files that the paths name, in their order: a file itself; for a folder all click files in it and its subfolders
// (.csv, .tsv, .txt, day_*, packed or not; .parquet; for arrays NAME_labels.npy and .npz; Norm files), by path.
// Names have no case. BadInput for a path that does not exist, and for a folder without such files. `left_out`, if not
// null, gets the other files of the folders, but for those that belong to a file of labels.
std::vector<std::string> click_inputs(const std::vector<std::string>& paths,
                                      std::vector<std::string>* left_out = nullptr);

// Whether `path` is taken for a Norm file of HugeCTR: its name ends in .data, and a byte of what would be its header
// is 0, unlike in text.
bool is_norm_file(const std::string& path);

// The start of the first line of `text` at `at` or later, after 0; a position inside the line if it is too long.
size_t click_line_start(std::string_view text, size_t at);

}  // namespace trifold
