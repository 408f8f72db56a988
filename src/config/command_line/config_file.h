// Configuration files: one `name = value` a line.
//
//   # a comment; also after a value, if a blank precedes '#'
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

// Parses a file's text into entries, in order. Throws Error(BadInput) "FILE:LINE: ..." for a malformed line.
std::vector<FileEntry> parse_config_text(std::string_view text, const std::string& file);

// Reads the whole file (1 MiB at most) and parses it. A plain file name that does not exist in the current folder is
// looked up in the installed configurations, ../share/trifold/configs relative to the program. Throws Error(BadInput)
// if the file cannot be read.
std::vector<FileEntry> read_config_file(const std::string& file);

// Splits a value into words: a list at blanks outside double quotes; any other value is one word. Throws
// Error(BadInput) for an unclosed quote or an unknown escape.
std::vector<std::string> split_value(const std::string& value, bool list);

// The inverse of split_value.
std::string join_value(std::span<const std::string> words, bool list);

}  // namespace trifold
