// Configuration files: one `name = value` a line.
//
//   # a comment; also after a value, when a blank stands before the '#'
//   [model]                      headings are allowed and mean nothing
//   num-layers = 12              names as on the command line, without "--"; underscores are taken as hyphens
//   data-path = 0.3 a 0.7 "b c"  a list has its values side by side
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

// The entries of a file's text, in order. Throws Error(BadInput) "FILE:LINE: ..." for a line that is none of
// the above.
std::vector<FileEntry> parse_config_text(std::string_view text, const std::string& file);

// Reads the whole file (1 MiB at most) and parses it. A name without a folder that is no file in the current
// folder is looked up in the installed configurations, ../share/trifold/configs from the program. Throws
// Error(BadInput) when it cannot be read.
std::vector<FileEntry> read_config_file(const std::string& file);

// The words of a value: split at blanks with double quotes honoured for a list, one word otherwise. Throws
// Error(BadInput) for a quote that is not closed or an unknown escape.
std::vector<std::string> split_value(const std::string& value, bool list);

// The text that split_value reads back as `words`.
std::string join_value(std::span<const std::string> words, bool list);

}  // namespace trifold
