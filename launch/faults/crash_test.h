// For tests of crashes: ends the process, like kill -9, at a phase of a save.
#pragma once

#include <functional>

#include "checkpoint/new_checkpoint.h"

namespace trifold::launch {

// The function that TRIFOLD_TEST_KILL_AT requests: "PHASE", or "PHASE:N" for the Nth time that this process reaches it;
// empty if it is not set. BadInput for an unknown phase.
std::function<void(SavePhase)> kill_at_save_phase();

}  // namespace trifold::launch
