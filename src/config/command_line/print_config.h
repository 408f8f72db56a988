// --print-config: the effective configuration as text.
#pragma once

#include <map>
#include <string>

#include "config/command_line/command_info.h"
#include "config/options/option.h"

namespace trifold {

// The values of `table` as a configuration file: one `name = value  # source` per option, grouped, with aligned
// comments; an unset option is a comment only. Reading the text back gives the same values. `origins` has the source of
// each given value; options not in it have their defaults.
std::string print_config(const CommandInfo& command, const OptionTable& table,
                         const std::map<std::string, std::string>& origins);

}  // namespace trifold
