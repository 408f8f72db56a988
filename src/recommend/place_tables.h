// Where the tables of a recommender go, so that every rank's memory is enough for all that it holds
// (recommender_memory.h).
#pragma once

#include "config/fields/recommend_config.h"
#include "recommend/recommender.h"

namespace trifold {

// Fills in setup.placement for `ranks` ranks; all else of `setup` must be there. The planner's choice
// (--placement auto) is kept where it fits --memory-limit; if it does not, it chooses again with the room
// that is left beside what a rank needs for the exchanges of the first, and at last every table is cut by
// rows. BadInput where a rank needs more than its limit, with what it needs that for, and how many ranks
// would do.
void place_tables(RecommenderSetup& setup, const RecommendConfig& config, int ranks);

}  // namespace trifold
