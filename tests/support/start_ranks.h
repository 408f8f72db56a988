// start_ranks: how runs of tests start their ranks. A program of tests may replace it, to repeat runs over another back
// end of communicators.
#pragma once

#include "run/ranks.h"

namespace trifold::test {

using StartRanks = void(const MeshConfig& mesh, FunctionRef<void(Communicator&)> rank_main);
inline StartRanks* start_ranks = run_on_ranks;

}  // namespace trifold::test
