// The planner assigns embedding tables to ranks, from their sizes, their use and the number of ranks.
//
// Each step, a table costs the bytes its memory moves: for L ids per sample and D columns of s bytes,
//   B (L (4 + 3 D s) + 2 D s)       ids and rows read, rows updated, bags written, their gradients read
// for a global batch of B samples (with several bags in a sample, B bags), and its memory is rows (D s + state) bytes.
//   1. A table with fewer rows than a rank has samples is replicated: summing the gradients of all its rows
//      sends less than bags and their gradients would.
//   2. A table that does not fit a rank's memory, or fills more than half of it, is cut by rows over all
//      ranks.
//   3. A table that alone costs more than a rank's fair share, or has more bytes than that and more than
//      kSmallTable, is cut by columns, into as few parts as bring it below that; parts are at least 4 columns
//      wide. If so few columns leave its parts more than twice the fair share of bytes, it is cut by rows over
//      all ranks.
//   4. The other tables, and the parts of 3., are assigned one after another, by descending cost, then size, to the
//      rank with the lowest cost so far that has room; ties go to the rank with the fewest bytes. Apart from memory
//      limits, no rank then costs more than 4/3 of the best plan of whole parts (Graham, 1969). A part that fits
//      nowhere goes to the first rank: callers with a memory limit must check the loads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "embedding/placement.h"

namespace trifold {

struct PlacementInput {
  int ranks = 1;
  int64_t global_batch = 0;
  int element_bytes = 4;                                 // bytes of a table's element
  int exchange_bytes = 4;                                // bytes of an element in messages
  int64_t state_bytes_of_row = 0;                        // bytes of optimizer state per row
  std::optional<int64_t> memory_of_rank = std::nullopt;  // bytes for tables and state
  bool balance_bytes = true;                             // false: 3. and 4. consider only costs
  // Tables of at most this many bytes are not cut because of their bytes.
  static constexpr int64_t kSmallTable = int64_t{64} << 20;
};

// The memory of a rank of a placement, and its work in a step with the maximum number of ids. Bytes sent, for b samples
// on each of N ranks and W columns of shards on this rank:
//   vectors_out   (N - 1) b W s; if every rank has F / N whole tables, b F D s (N - 1) / N
//   vectors_back  the gradients of b samples, to every other rank: b s (sum of the others' W)
//   ids_out       lengths and ids for the shards of other ranks (id_exchange.h)
//   copies_out    sums over the ranks of the gradients of replicated tables
struct RankLoad {
  int64_t tables = 0;       // parts of tables, including copies
  int64_t bytes = 0;        // bytes of tables and state
  double lookup_bytes = 0;  // memory traffic of lookups in a step
  double update_bytes = 0;  // memory traffic of updates in a step
  double vectors_out = 0;
  double vectors_back = 0;
  double ids_out = 0;
  double copies_out = 0;

  double moved_bytes() const { return lookup_bytes + update_bytes; }
  double sent_bytes() const { return vectors_out + vectors_back + ids_out + copies_out; }
};

std::vector<RankLoad> loads_of(const Placement& placement, const PlacementInput& input);

// The work of the busiest rank relative to the mean, by moved bytes: 1 is perfectly balanced.
double imbalance(const std::vector<RankLoad>& loads);

std::vector<TablePlacement> plan_placement(const std::vector<EmbeddingTable>& tables,
                                           const PlacementInput& input);

}  // namespace trifold
