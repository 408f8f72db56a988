// PlannedCommunicator: a communicator of ranks that do not exist. It allows a model to be built for one rank
// of a mesh of thousands and to be walked dry; any real communication is an Error. On a Dry stream with a log
// (core/work_log.h) it writes down what would be sent.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace trifold {

// Operations send nothing on a Dry stream and throw on any other. `split` and `barrier` always throw; `split`
// could not know the colors of the other ranks. `group` is the Work::group of what is written down.
std::unique_ptr<Communicator> planned_communicator(int rank, int size, unsigned group = 0);

}  // namespace trifold
