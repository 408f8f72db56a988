// Parses argument words and a configuration file into the fields of a configuration.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/options/option.h"

namespace trifold {

// The prefix of the origins of values that the command line gives.
constexpr std::string_view kCommandLine = "command line";

// The result of parse_options, besides the values, which it writes to the fields of the table.
struct Parsed {
  // The source of each given option's value: "command line", "run.ini:3", "command line, instead of run.ini:3",
  // "command line, as --use-distributed-optimizer".
  std::map<std::string, std::string> origins;
  // The option of another program that the user gave in place of an option: "--vocab-file".
  std::map<std::string, std::string> given_as;
  std::vector<std::string> positional;  // words that belong to no option
  std::vector<std::string> problems;    // mistakes, one message each
  std::vector<std::string> notes;       // given words without effect, one message each
  std::set<std::string> doubtful;       // options named in `problems`; their fields are invalid
  bool file_is_unread = false;        // --config could not be read, so options that look missing may be in it
  std::optional<std::string> config;  // the file of --config
  bool overwrite = false;             // --overwrite
  bool help = false;                  // --help or -h
  bool print_config = false;          // --print-config
};

// Parses `arguments` (the words after the command) and the file of --config. Options of other programs are translated
// first (config/foreign/translate.h). The command line overrides the file. Names
// must be complete (no abbreviations); underscores in them are read as hyphens. Mistakes are collected in `problems`.
Parsed parse_options(const OptionTable& table, std::span<const std::string> arguments);

// The options that every command has: config, overwrite, print-config, help.
const OptionTable& common_options();

}  // namespace trifold
