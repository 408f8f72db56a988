// For tests of crashes: ends the process at a phase of a save, as kill -9 would.
#pragma once

#include <functional>

#include "checkpoint/new_checkpoint.h"

namespace trifold::launch {

// The function requested by TRIFOLD_TEST_KILL_AT: "PHASE", or "PHASE:N" for the Nth time that this process reaches the
// phase; empty if the variable is not set. BadInput for an unknown phase.
std::function<void(SavePhase)> kill_at_save_phase();

}  // namespace trifold::launch
