// The planner: where embedding tables go, from their sizes, their use and the number of ranks.
//
// A table costs, for each step, the bytes its memory moves: of L ids a sample and D columns of s bytes,
//   B (L (4 + 3 D s) + 2 D s)       ids and rows read, rows updated, bags written, their gradients read
// and holds rows (D s + state) bytes.
//   1. A table with fewer rows than a rank has samples is replicated: adding up all its rows' gradients moves
//      less than sending bags and their gradients would.
//   2. One that does not fit a rank's memory, or fills more than half of it, is cut by rows over all ranks.
//   3. One that alone costs more than a rank's fair share is cut by columns, in as few parts as bring it
//      below that; parts are at least 4 columns wide.
//   4. The rest, and the parts of 3., go one after another, dearest first, to the rank that has least to do
//   and
//      has room. No rank is then dearer than 4/3 of the best plan of whole parts, but for memory (Graham,
//      1969).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "embedding/placement.h"

namespace trifold {

struct PlacementInput {
  int ranks = 1;
  int64_t global_batch = 0;
  int number_bytes = 4;                   // of an element of a table
  int64_t state_bytes_of_row = 0;         // of the optimizer
  std::optional<int64_t> memory_of_rank;  // bytes for tables and state
};

// What a rank of a placement has to hold and to do for a step. Ids are counted as many as there can be.
struct RankLoad {
  int64_t tables = 0;      // parts, copies included
  int64_t bytes = 0;       // tables and state
  double moved_bytes = 0;  // by its memory in a step: the cost above
  double sent_bytes = 0;   // vectors forward and gradients back, in the tables' type
};

std::vector<RankLoad> loads_of(const Placement& placement, const PlacementInput& input);

// BadInput where the tables do not fit, saying how many ranks would do.
std::vector<TablePlacement> plan_placement(const std::vector<EmbeddingTable>& tables,
                                           const PlacementInput& input);

// BadInput where a rank's part of a given placement does not fit.
void check_fits(const Placement& placement, const PlacementInput& input);

}  // namespace trifold
