// `trifold plan --search`: runs the search for a layout, prints the result and writes --json.
#pragma once

#include <string>

#include "config/fields/config.h"
#include "plan/layout_search.h"

namespace trifold::launch {

// Returns the command's exit status. The caller has checked that the file of --json can be written.
int run_search(const PlanConfig& config);

// A description of the layout that --auto-layout chose.
std::string chosen_layout_text(const PretrainConfig& config, const FoundLayout& found);

}  // namespace trifold::launch
