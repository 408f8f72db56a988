// Parses the whole command line, from argv to the request that the program carries out.
#pragma once

#include <span>
#include <string>

#include "config/command_line/command_info.h"

namespace trifold {

// Parses the arguments of main, including argv[0]. Under MPI the number of processes becomes `ranks`, and a different
// --ranks is a problem. `remarks`, if not null, receives the files that the words name and notes on options without
// effect. Throws Error(BadInput) that lists every mistake.
Request parse_command_line(std::span<const std::string> arguments, const Environment& environment = {},
                           Remarks* remarks = nullptr);
Request parse_command_line(int argc, const char* const* argv, const Environment& environment = {},
                           Remarks* remarks = nullptr);

// "trifold 0.2.0"
std::string version_text();

}  // namespace trifold
