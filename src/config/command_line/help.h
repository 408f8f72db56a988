// --help: for one command and for the program.
#pragma once

#include <string>

#include "config/command_line/command_info.h"
#include "config/options/option.h"

namespace trifold {

// Usage, examples, then the options grouped by subject with range, default, allowed values and other spellings, wrapped
// to `width` columns (clamped to 60 to 160). `table` must be bound to a configuration that holds the defaults. If other
// commands are typed as this one (CommandInfo::instead_of), their options are listed too: first the options common to
// all of these commands, then each command's own.
std::string help_text(const CommandInfo& command, const OptionTable& table, int width);

// "usage: trifold inspect DIR [options]"
std::string usage_line(const CommandInfo& command);

// One paragraph: the help of an option, its range, its default or that it is required, and its other spellings.
std::string option_description(const Option& option);

// The list of commands, wrapped to `width` columns.
std::string program_help(int width);

}  // namespace trifold
