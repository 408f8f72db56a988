// For tests of crashes: ends the process, as kill -9 does, at a phase of a save.
#pragma once

#include <functional>

#include "checkpoint/new_checkpoint.h"

namespace trifold::launch {

// What TRIFOLD_TEST_KILL_AT asks for, "PHASE" or "PHASE:N" for the Nth time that this process reaches it;
// empty when it is not set. BadInput for an unknown phase.
std::function<void(SavePhase)> kill_at_save_phase();

}  // namespace trifold::launch
