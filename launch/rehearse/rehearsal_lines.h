// What the rehearsals of all kinds of runs print.
#pragma once

#include <string>
#include <vector>

#include "config/fields/config.h"

namespace trifold::launch {

// Gives a rank that is rehearsed alone the cores that it would have among the --ranks-per-node ranks of a host like this
// one, or all, unless the options give it a number.
void take_cores(MeshConfig& mesh);

void print_lines(const std::vector<std::string>& lines);

// What would make the real run fail, or that nothing would.
void print_failures(const std::vector<std::string>& failures);

// The command that rehearses a planned run, as `trifold plan` prints it; empty if its words are unknown.
void print_rehearsal_command(const std::vector<std::string>& words);

}  // namespace trifold::launch
