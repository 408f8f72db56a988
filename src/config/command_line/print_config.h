// --print-config: the effective configuration as text.
#pragma once

#include <map>
#include <string>

#include "config/command_line/command_info.h"
#include "config/options/option.h"

namespace trifold {

// The values of `table` as a configuration file: one `name = value  # where from` per option, grouped, the
// comments aligned; an unset option is a comment only. Reading the text back gives the same values. `origins`
// says where each value came from; an option not in it has its default.
std::string print_config(const CommandInfo& command, const OptionTable& table,
                         const std::map<std::string, std::string>& origins);

}  // namespace trifold
