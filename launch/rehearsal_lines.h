// What the rehearsals of all kinds of runs print.
#pragma once

#include <string>
#include <vector>

namespace trifold::launch {

void print_lines(const std::vector<std::string>& lines);

// What the real run would fail of; or that nothing was found.
void print_failures(const std::vector<std::string>& failures);

// The command that rehearses a planned run, as `trifold plan` prints it; empty if its words are unknown.
void print_rehearsal_command(const std::vector<std::string>& words);

}  // namespace trifold::launch
