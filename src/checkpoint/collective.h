// Collective execution with a common outcome: a failure on one rank becomes an Error on all ranks, so that no rank
// waits for one that has failed.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/function_ref.h"

namespace trifold {

// Collective. Runs `body` on every rank and returns the texts of all ranks, in rank order. If any `body` threw, every
// rank throws one SharedError that names the ranks and their messages; it is BadInput if all errors were. `doing` names
// the work in the message.
std::vector<std::string> gather_texts(Communicator& world, const std::string& doing,
                                      FunctionRef<std::string()> body);

}  // namespace trifold
