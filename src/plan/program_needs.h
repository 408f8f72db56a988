// The memory of a described program (plan/forecast/kept_activations.h) in the form in which a layout's memory is estimated
// (plan/layout_memory.h).
#pragma once

#include "layout/run_spec.h"
#include "plan/block_needs.h"
#include "plan/forecast/software.h"

namespace trifold {

// `software` must describe another program's activations. `split`: backward is I and W. `run` as for BlocksOfModel. BadInput
// if its model is not described.
BlockNeeds program_needs(const Software& software, const RunSpec& run, bool split);

}  // namespace trifold
