// `trifold plan --search`: runs the search for a layout, prints the result and writes --json.
#pragma once

#include <string>

#include "config/fields/config.h"
#include "plan/layout_search.h"

namespace trifold::launch {

// Returns the command's exit status. The caller has checked that the file of --json can be written.
int run_search(const PlanConfig& config);

// The configuration with the layout that --auto-layout chooses, if it is given. Every process finds the same layout; the
// first describes it on standard error.
PretrainConfig laid_out(const PretrainConfig& config);

}  // namespace trifold::launch
