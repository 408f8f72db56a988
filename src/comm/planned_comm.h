// PlannedCommunicator: a communicator of ranks that do not exist. It allows a model to be built for one rank
// of a mesh of thousands and to be walked dry; any real communication is an Error.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace trifold {

// Operations do nothing on a Dry stream and throw on any other. `split` and `barrier` always throw; `split`
// could not know the colors of the other ranks.
std::unique_ptr<Communicator> planned_communicator(int rank, int size);

}  // namespace trifold
