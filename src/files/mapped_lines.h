// MappedLines reads the lines of a mapped text file, one after the other, in bounded memory.
//
// Pages before the current line are released to the system as the reader advances, and a line that is too
// long is rejected before all of it has been read: a file without line ends (such as two gigabytes of zeros)
// is bad input and does not exhaust memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "files/mapped_file.h"

namespace trifold {

// The most bytes of a line, for readers without a smaller limit of their own.
inline constexpr int64_t kLongestMappedLine = int64_t{1} << 26;

class MappedLines {
 public:
  // `remedy` ends the message about a line that is too long: it says what the lines of such a file should be. The file
  // must outlive the reader.
  MappedLines(const MappedFile& file, std::string remedy, int64_t longest = kLongestMappedLine);

  // The next line without its LF; nullopt at the end of the file. BadInput, naming file and line, for a line longer
  // than `longest` bytes.
  std::optional<std::string_view> next();
  int64_t number() const { return number_; }  // number of the last line returned, from 1
  int64_t bytes_read() const { return at_; }

 private:
  const MappedFile& file_;
  std::string remedy_;
  int64_t longest_;
  int64_t at_ = 0;
  int64_t released_ = 0;
  int64_t number_ = 0;
};

}  // namespace trifold
