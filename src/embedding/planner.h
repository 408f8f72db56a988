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
//      and has room. No rank is then dearer than 4/3 of the best plan of whole parts, but for memory (Graham,
//      1969). What finds no room anywhere goes to the first rank: whoever has a limit looks at the loads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "embedding/placement.h"

namespace trifold {

struct PlacementInput {
  int ranks = 1;
  int64_t global_batch = 0;
  int number_bytes = 4;                                  // of an element of a table
  int travel_bytes = 4;                                  // of an element on its way between ranks
  int64_t state_bytes_of_row = 0;                        // of the optimizer
  std::optional<int64_t> memory_of_rank = std::nullopt;  // bytes for tables and state
};

// What a rank of a placement has to hold and to do for a step. Ids are counted as many as there can be. What
// travels, for b samples of each of N ranks and W columns of shards on this rank:
//   vectors_out   (N - 1) b W s; where every rank has F / N whole tables, b F D s (N - 1) / N
//   vectors_back  the gradients of b samples, to every other rank: b s (sum of the others' W)
//   ids_out       lengths and ids for the shards of other ranks (id_exchange.h)
//   copies_out    sums over the ranks of the gradients of replicated tables
struct RankLoad {
  int64_t tables = 0;       // parts, copies included
  int64_t bytes = 0;        // tables and state
  double lookup_bytes = 0;  // moved by its memory in a step: by lookups
  double update_bytes = 0;  //   and by updates; the cost above is the sum
  double vectors_out = 0;
  double vectors_back = 0;
  double ids_out = 0;
  double copies_out = 0;

  double moved_bytes() const { return lookup_bytes + update_bytes; }
  double sent_bytes() const { return vectors_out + vectors_back + ids_out + copies_out; }
};

std::vector<RankLoad> loads_of(const Placement& placement, const PlacementInput& input);

// The work of the busiest rank over the mean, by moved bytes: 1 is even.
double imbalance(const std::vector<RankLoad>& loads);

std::vector<TablePlacement> plan_placement(const std::vector<EmbeddingTable>& tables,
                                           const PlacementInput& input);

}  // namespace trifold
