// ClickInput: a text file to preprocess, packed by gzip or zstd or not, which is read once, window by window.
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
  int64_t size() const { return size_; }  // as it is on the disk
  // Its first bytes, whole lines where it has any, behind a byte order mark.
  std::string_view beginning() const;

  struct Window {
    std::string_view text;   // until the next call of `next`
    int64_t first_byte = 0;  // of all the text, unpacked
    double share = 0;        // of the file that has been read with it, about
  };
  // The next lines, `bytes` of them or somewhat more; nothing at the end. Where a line is longer than any may be
  // (kLongestClickLine) the window ends inside it. BadInput for a packed file that is damaged or cut off.
  std::optional<Window> next(size_t bytes);

 private:
  bool fill(size_t bytes);

  std::string path_;
  int64_t size_ = 0;
  std::optional<MappedFile> file_;      // of what is not packed
  std::unique_ptr<ByteReader> reader_;  // else
  std::string waiting_;                 // unpacked, from byte given_ on not given out yet
  size_t given_ = 0;
  int64_t at_ = 0;        // of the text, the end of the last window
  int64_t released_ = 0;  // of the text, what the system may forget
};

// The files that the paths name, in their order: a file itself; of a folder all text of clicks in it and its
// folders (.csv, .tsv, .txt, day_*, packed or not; of arrays NAME_labels.npy), by path. BadInput for a path that does not exist, and a
// folder without such a file.
std::vector<std::string> click_inputs(const std::vector<std::string>& paths);

// The first line of `text` that starts at `at` or later, after 0. Where a line is too long to be read, a place
// inside it.
size_t click_line_start(std::string_view text, size_t at);

}  // namespace trifold
