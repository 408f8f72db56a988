// From argument words and a configuration file to the fields of a configuration.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "config/options/option.h"

namespace trifold {

// The result of parse_options in addition to the values, which it writes to the fields of the table.
struct Parsed {
  // Where each given option's value came from: "command line", "run.ini:3", "command line, instead of
  // run.ini:3".
  std::map<std::string, std::string> origins;
  std::vector<std::string> positional;  // words that belong to no option
  std::vector<std::string> problems;    // one line each, for people; empty: no mistakes
  std::vector<std::string> notes;       // one line each: given words that change nothing
  std::set<std::string> doubtful;       // options named in `problems`; their fields are not valid
  bool file_is_unread = false;  // the --config file could not be read: it may hold options that look missing
  std::optional<std::string> config;  // the file of --config
  bool overwrite = false;             // --overwrite
  bool help = false;                  // --help or -h
  bool print_config = false;          // --print-config
};

// Reads `arguments` (what follows the command) and the file of --config. The command line wins over the file.
// Names must be complete (no abbreviations); underscores in them are taken as hyphens. Mistakes are collected in
// `problems`.
Parsed parse_options(const OptionTable& table, std::span<const std::string> arguments);

// The options every command has: config, overwrite, print-config, help.
const OptionTable& common_options();

}  // namespace trifold
