// Configuration files: one `name = value` a line.
//
//   # a comment; also after a value, if the '#' follows a blank
//   [model]                      headings are allowed and mean nothing
//   num-layers = 12              names as on the command line, without "--"; underscores are taken as hyphens
//   data-path = 0.3 a 0.7 "b c"  a list has its values separated by blanks
//   prompt = "two \"words\" # no comment\n"   double quotes keep blanks and '#'; \" \\ and \n inside
//   f64 = true                   a flag is true or false
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

struct FileEntry {
  std::string name;   // as written, underscores replaced by hyphens
  std::string value;  // as written, without comment and outer blanks
  int line = 0;       // counted from 1
};

// The entries of a file's text, in order. Throws Error(BadInput) "FILE:LINE: ..." for any other line.
std::vector<FileEntry> parse_config_text(std::string_view text, const std::string& file);

// Reads the whole file (1 MiB at most) and parses it. A plain file name that does not exist in the current folder is
// looked up in the installed configurations, ../share/trifold/configs relative to the program. Throws Error(BadInput)
// when it cannot be read.
std::vector<FileEntry> read_config_file(const std::string& file);

// The words of a value: a list is split at blanks outside double quotes, any other value is one word. Throws
// Error(BadInput) for an unclosed quote or an unknown escape.
std::vector<std::string> split_value(const std::string& value, bool list);

// The inverse of split_value.
std::string join_value(std::span<const std::string> words, bool list);

}  // namespace trifold
