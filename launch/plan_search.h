// `trifold plan --search`: what is printed of a search for a layout, and written to --json.
#pragma once

#include "config/config.h"
#include "train/layout_search.h"

namespace trifold::launch {

// Returns the command's exit status. The file of --json can be written to.
int run_search(const PlanConfig& config);

}  // namespace trifold::launch
