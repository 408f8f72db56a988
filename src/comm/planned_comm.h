// PlannedCommunicator: a communicator of ranks that are not started. With it a model can be built for one rank
// of a mesh of thousands and walked dry; any real communication is an Error. On a Dry stream with a log
// (core/work_log.h) it logs the messages.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace trifold {

// Operations send nothing on a Dry stream and throw on any other. `split`, which cannot know the colors of the other
// ranks, and `barrier` always throw. `group` is Work::group of the logged work.
std::unique_ptr<Communicator> planned_communicator(int rank, int size, unsigned group = 0);

}  // namespace trifold
