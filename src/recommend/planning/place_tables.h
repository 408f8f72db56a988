// Places the tables of a recommender so that everything a rank holds fits its memory (recommender_memory.h).
#pragma once

#include "config/fields/recommend_config.h"
#include "recommend/recommender.h"

namespace trifold {

// Fills in setup.placement for `ranks` ranks; the rest of `setup` must be complete. The planner's choice (--placement
// auto) is kept if it fits --memory-limit. If not, the planner chooses again with the memory that the exchanges of its
// first choice leave, and finally shards every table by rows. BadInput if a rank needs more than its limit; the message
// gives the needs by purpose and the number of ranks that would suffice.
void place_tables(RecommenderSetup& setup, const RecommendConfig& config, int ranks);

}  // namespace trifold
