// What the rehearsals of all kinds of runs print.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "rehearse/rank_failures.h"

namespace trifold::launch {

void print_lines(const std::vector<std::string>& lines);

// What would make the real run fail, or that nothing would. Follows the reports of the ranks.
void print_failures(const RankFailures& failures);

// The places of the first of some ranks, the one that needs most memory, and the last, each once. At least one.
std::vector<int> first_fullest_last(std::span<const size_t> bytes);

// The command that rehearses a planned run, as `trifold plan` prints it; empty if its words are unknown.
void print_rehearsal_command(const std::vector<std::string>& words);

}  // namespace trifold::launch
