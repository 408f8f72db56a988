#include "recommend/planning/place_tables.h"

#include <algorithm>

#include "config/commands/validate.h"
#include "core/bytes_text.h"
#include "recommend/recommender_setup.h"

namespace trifold {

namespace {

using Choice = std::vector<TablePlacement>;

Choice all_by_rows(size_t tables, int ranks) { return Choice(tables, {PlacementKind::Row, 0, ranks}); }

Choice choice_of(std::vector<PlacementKind> kinds, size_t tables, int ranks) {
  if (kinds.size() == 1) kinds.resize(tables, kinds[0]);
  if (kinds.size() != tables)
    bad_input("--placement names {} kinds for {} tables: give one for all, or one for each", kinds.size(),
              tables);
  Choice choice;
  int next = 0;
  for (const PlacementKind where : kinds) {
    const bool cut = where == PlacementKind::Row || where == PlacementKind::Column;
    choice.push_back({where, cut ? 0 : next, cut ? ranks : 1});
    if (where == PlacementKind::Table) next = (next + 1) % ranks;
  }
  return choice;
}

// Compares --memory-limit with the needs of the ranks under a placement.
class MemoryLimit {
 public:
  MemoryLimit(const RecommenderSetup& setup, const std::vector<EmbeddingTable>& tables, bool on_device,
              int64_t bytes)
      : setup_(setup), tables_(tables), on_device_(on_device), bytes_(static_cast<size_t>(bytes)) {}

  std::vector<RecommenderMemory> needs(const Choice& choice, int ranks) const {
    RecommenderSetup other = setup_;
    other.placement = choice;
    return memory_of_ranks(other, placement_of(other, ranks), on_device_);
  }
  bool allows(const std::vector<RecommenderMemory>& needs) const {
    return needs[busiest(needs)].total() <= bytes_;
  }
  [[noreturn]] void refuse(const std::vector<RecommenderMemory>& needs) const;

 private:
  static size_t busiest(const std::vector<RecommenderMemory>& needs) {
    const auto less = [](const auto& a, const auto& b) { return a.total() < b.total(); };
    return static_cast<size_t>(std::max_element(needs.begin(), needs.end(), less) - needs.begin());
  }
  bool allows_rows_of(int ranks) const { return allows(needs(all_by_rows(tables_.size(), ranks), ranks)); }
  std::string ranks_that_would_do(int ranks) const;

  const RecommenderSetup& setup_;
  const std::vector<EmbeddingTable>& tables_;
  bool on_device_;
  size_t bytes_;
};

// If every table is sharded by rows, a rank's part falls with the number of ranks, but the exchange of the global
// batch's vectors does not: there may be no such number.
std::string MemoryLimit::ranks_that_would_do(int ranks) const {
  static const int kMostRanks = 1024;
  const int most = static_cast<int>(std::min<int64_t>(setup_.global_batch, kMostRanks));
  int enough = ranks;
  int too_few = ranks - 1;
  while (enough < most && !allows_rows_of(enough)) {
    too_few = enough;
    enough = std::min(most, 2 * enough);
  }
  if (!allows_rows_of(enough))
    return fmt::format(
        "not even {} ranks with every table sharded by rows (--placement row) would suffice; a smaller "
        "--global-batch-size needs less",
        enough);
  while (enough - too_few > 1) {
    const int middle = (too_few + enough) / 2;
    (allows_rows_of(middle) ? enough : too_few) = middle;
  }
  return fmt::format("with every table sharded by rows (--placement row), {} rank{} would suffice", enough,
                     enough == 1 ? "" : "s");
}

void MemoryLimit::refuse(const std::vector<RecommenderMemory>& needs) const {
  const size_t rank = busiest(needs);
  const RecommenderMemory& most = needs[rank];
  bad_input(
      "rank {} of {} needs {} (tables {}, their state {}, batches and exchange {}, MLPs {}, activations {}, "
      "work space {}), --memory-limit is {}: {}",
      rank, needs.size(), bytes_text(most.total()), bytes_text(most.tables), bytes_text(most.table_state),
      bytes_text(most.exchange), bytes_text(most.dense), bytes_text(most.activations),
      bytes_text(most.workspace), bytes_text(bytes_), ranks_that_would_do(static_cast<int>(needs.size())));
}

// BadInput if a rank has no room for the rows of two batches.
void check_cache(const RecommenderSetup& setup, int ranks) {
  if (!setup.storage.is_cached()) return;
  const std::vector<TableGroup> groups = group_tables(placement_of(setup, ranks));
  size_t least = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    size_t needed = 0;
    for (const TableGroup& group : groups)
      needed += EmbeddingTables::least_cache(group.placement, rank, setup.tables(ranks, group.bags));
    least = std::max(least, needed);
  }
  if (least > setup.storage.cache)
    bad_input(
        "--table-cache {} is less than the rows of two batches take on a rank, {}: give as much, or a smaller "
        "--global-batch-size",
        bytes_text(setup.storage.cache), bytes_text(least));
}

}  // namespace

void place_tables(RecommenderSetup& setup, const RecommendConfig& config, int ranks) {
  const std::vector<EmbeddingTable> tables = setup.uses().tables;
  const TablePlacements& wanted = config.placement.placement;
  const bool choose = wanted.is_auto();
  PlacementInput input = placement_input(config, setup.schema, ranks);
  const std::optional<int64_t> most = input.memory_of_rank;
  // Cached tables take the same memory in any placement, that of the cache.
  if (setup.storage.is_cached()) {
    input.memory_of_rank.reset();
    input.balance_bytes = false;
  }
  setup.placement = choose ? plan_placement(tables, input) : choice_of(wanted.kinds, tables.size(), ranks);
  check_cache(setup, ranks);
  if (!most) return;
  const MemoryLimit limit(setup, tables, config.mesh.device == ComputeDevice::Cuda, *most);
  std::vector<RecommenderMemory> needs = limit.needs(setup.placement, ranks);
  const auto try_instead = [&](Choice choice) {
    setup.placement = std::move(choice);
    needs = limit.needs(setup.placement, ranks);
  };
  if (choose && input.memory_of_rank && !limit.allows(needs)) {
    // What a rank needs in addition to its tables depends on their placement.
    size_t beside = 0;
    for (const RecommenderMemory& rank : needs)
      beside = std::max(beside, rank.total() - rank.tables - rank.table_state);
    *input.memory_of_rank -= static_cast<int64_t>(beside);
    try_instead(plan_placement(tables, input));
  }
  if (choose && !limit.allows(needs)) try_instead(all_by_rows(tables.size(), ranks));
  if (!limit.allows(needs)) limit.refuse(needs);
}

}  // namespace trifold
