// Converts another program's activations (plan/forecast/kept_activations.h) to the BlockNeeds from which the memory of
// layouts is estimated (plan/layout_memory.h).
#pragma once

#include "layout/run_spec.h"
#include "plan/block_needs.h"
#include "plan/forecast/software.h"

namespace trifold {

// `software` must describe another program's activations. `split`: backward is divided into I and W. `run` as for
// BlocksOfModel. BadInput for a model whose activations the description does not cover.
BlockNeeds program_needs(const Software& software, const RunSpec& run, bool split);

}  // namespace trifold
