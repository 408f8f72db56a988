// `trifold plan --search`: what is printed of a search for a layout, and written to --json.
#pragma once

#include <string>

#include "config/fields/config.h"
#include "plan/layout_search.h"

namespace trifold::launch {

// Returns the command's exit status. The file of --json can be written to.
int run_search(const PlanConfig& config);

// What --auto-layout of `config` chose, for people.
std::string chosen_layout_text(const PretrainConfig& config, const FoundLayout& found);

}  // namespace trifold::launch
