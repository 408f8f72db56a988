// PlannedCommunicator: a rank's view of ranks that do not exist. A model that is built for a place in a mesh
// of thousands can be walked dry with it; anything that would really talk is an Error.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace trifold {

// Operations do nothing on a Dry stream and throw on any other. `split` cannot know the other ranks' colors
// and throws, as `barrier` does.
std::unique_ptr<Communicator> planned_communicator(int rank, int size);

}  // namespace trifold
