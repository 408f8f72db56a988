// `trifold rehearse` of recommenders.
#include "core/error.h"
#include "launch/commands.h"

namespace trifold::launch {

int run(const RehearseRecommenderConfig&) { bad_input("rehearsals of recommenders are not connected yet"); }

}  // namespace trifold::launch
