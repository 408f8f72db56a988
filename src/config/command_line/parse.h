// From argument words and a configuration file to the fields of a configuration.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "config/fields/option.h"

namespace trifold {

// What parse_options found besides the values, which it puts into the fields of the table.
struct Parsed {
  // Where each given option's value came from: "command line", "run.ini:3", "command line, instead of
  // run.ini:3".
  std::map<std::string, std::string> origins;
  std::vector<std::string> positional;  // words that belong to no option
  std::vector<std::string> problems;    // one line for people each; empty: all is well
  std::set<std::string> doubtful;  // options that a problem above is about, so that their fields mean nothing
  bool file_is_unread = false;     // the file of --config: options that are not given may be in it
  bool help = false;               // --help or -h
  bool print_config = false;       // --print-config
};

// Reads `arguments` (what follows the command) and the file of --config. The command line wins over the file.
// Names are exact (no guessing from beginnings); underscores in them are taken as hyphens. Mistakes do not
// throw but are collected in `problems`, except for a file that cannot be read.
Parsed parse_options(const OptionTable& table, std::span<const std::string> arguments);

// The options every command has: config, print-config, help.
const OptionTable& common_options();

}  // namespace trifold
