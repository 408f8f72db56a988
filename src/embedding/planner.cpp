#include "embedding/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trifold {

namespace {

constexpr int64_t kLeastColumns = 4;

int64_t row_bytes(const EmbeddingTable& table, const PlacementInput& input) {
  return table.width * input.element_bytes + input.state_bytes_of_row;
}

// Bytes moved for `samples` samples by a part that receives `ids` ids per sample and has `columns` columns.
double looked_up(double samples, double ids, double columns, int element_bytes) {
  const double row = columns * element_bytes;
  return samples * (ids * (4 + row) + row);
}
double updated(double samples, double ids, double columns, int element_bytes) {
  const double row = columns * element_bytes;
  return samples * (ids * 2 * row + row);
}

double cost(const EmbeddingTable& table, const PlacementInput& input) {
  const auto samples = static_cast<double>(input.global_batch * table.bags);
  const auto columns = static_cast<double>(table.width);
  return looked_up(samples, table.max_ids, columns, input.element_bytes) +
         updated(samples, table.max_ids, columns, input.element_bytes);
}

// How a table is cut that is neither replicated nor too large for a rank; `fair` and `fair_bytes` are a rank's shares.
TablePlacement cut_of(const EmbeddingTable& table, const PlacementInput& input, double fair,
                      double fair_bytes) {
  const auto bytes = static_cast<double>(table.rows * row_bytes(table, input));
  const bool is_large = input.balance_bytes && bytes > PlacementInput::kSmallTable && bytes > fair_bytes;
  const auto widest = std::max<int64_t>(1, std::min<int64_t>(input.ranks, table.width / kLeastColumns));
  if (is_large && bytes / static_cast<double>(widest) > 2 * fair_bytes)
    return {PlacementKind::Row, 0, input.ranks};
  const double shares = std::max(cost(table, input) / fair, is_large ? bytes / fair_bytes : 0);
  const auto parts = std::min<int64_t>(widest, static_cast<int64_t>(std::ceil(shares)));
  if (parts > 1) return {PlacementKind::Column, 0, static_cast<int>(parts)};
  return {};
}

struct Piece {
  size_t table;
  double cost;
  int64_t bytes;
};

}  // namespace

std::vector<RankLoad> loads_of(const Placement& placement, const PlacementInput& input) {
  const int ranks = placement.ranks();
  std::vector<RankLoad> loads(static_cast<size_t>(ranks));
  // Each rank's part of the batch is rounded up: the last ranks may have padding, which is sent like samples.
  const int64_t rounded_up = (input.global_batch + ranks - 1) / ranks;
  const auto share = static_cast<double>(rounded_up);
  const double batch = share * ranks;
  const auto tables = placement.tables();
  for (const Shard& shard : placement.shards()) {
    const EmbeddingTable& table = tables[static_cast<size_t>(shard.table)];
    RankLoad& load = loads[static_cast<size_t>(shard.rank)];
    const auto bags = static_cast<double>(table.bags);
    const auto columns = static_cast<double>(shard.rect.extent[1]);
    const double ids =
        table.max_ids * static_cast<double>(shard.rect.extent[0]) / static_cast<double>(table.rows);
    ++load.tables;
    load.bytes += shard.rect.extent[0] * row_bytes(table, input) * shard.rect.extent[1] / table.width;
    load.lookup_bytes += looked_up(batch * bags, ids, columns, input.element_bytes);
    load.update_bytes += updated(batch * bags, ids, columns, input.element_bytes);
    const double of_a_rank = share * bags * columns * input.exchange_bytes;
    load.vectors_out += of_a_rank * (ranks - 1);
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == shard.rank) continue;
      loads[static_cast<size_t>(rank)].vectors_back += of_a_rank;
      loads[static_cast<size_t>(rank)].ids_out += share * bags * 4 * (1 + ids);
    }
  }
  for (RankLoad& load : loads) load.ids_out += 8.0 * (ranks - 1);
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!placement.replicated(static_cast<int>(t))) continue;
    const auto columns = static_cast<double>(tables[t].width);
    const double bags = share * static_cast<double>(tables[t].bags);
    const double dense = static_cast<double>(tables[t].rows) * columns * input.element_bytes;
    for (RankLoad& load : loads) {
      ++load.tables;
      load.bytes += tables[t].rows * row_bytes(tables[t], input);
      load.lookup_bytes += looked_up(bags, tables[t].max_ids, columns, input.element_bytes);
      load.update_bytes += updated(bags, tables[t].max_ids, columns, input.element_bytes) + 3 * dense;
      // Plus one element per row: whether it was touched.
      load.copies_out +=
          2 * static_cast<double>(tables[t].rows) * (columns + 1) * input.element_bytes * (ranks - 1) / ranks;
    }
  }
  return loads;
}

double imbalance(const std::vector<RankLoad>& loads) {
  double most = 0, all = 0;
  for (const RankLoad& load : loads) {
    most = std::max(most, load.moved_bytes());
    all += load.moved_bytes();
  }
  return all == 0 ? 1 : most * static_cast<double>(loads.size()) / all;
}

std::vector<TablePlacement> plan_placement(const std::vector<EmbeddingTable>& tables,
                                           const PlacementInput& input) {
  std::vector<TablePlacement> placement(tables.size());
  const int64_t samples = input.global_batch / input.ranks;
  double total = 0, all_bytes = 0;
  for (const EmbeddingTable& table : tables) {
    total += cost(table, input);
    all_bytes += static_cast<double>(table.rows * row_bytes(table, input));
  }
  const double fair = total / input.ranks;
  const double fair_bytes = all_bytes / input.ranks;
  std::vector<Piece> pieces;
  std::vector<double> work(static_cast<size_t>(input.ranks), 0.0);
  std::vector<int64_t> held(work.size(), 0);
  for (size_t t = 0; input.ranks > 1 && t < tables.size(); ++t) {
    const EmbeddingTable& table = tables[t];
    const int64_t bytes = table.rows * row_bytes(table, input);
    if (table.rows < samples * table.bags) {
      placement[t].kind = PlacementKind::Replicated;
      for (int64_t& h : held) h += bytes;
      continue;
    }
    const bool is_too_large = input.memory_of_rank && bytes > *input.memory_of_rank / 2;
    placement[t] = is_too_large ? TablePlacement{PlacementKind::Row, 0, input.ranks}
                                : cut_of(table, input, fair, fair_bytes);
    if (placement[t].kind != PlacementKind::Row) {
      pieces.push_back({t, cost(table, input), bytes});
      continue;
    }
    for (size_t r = 0; r < work.size(); ++r) {
      held[r] += bytes / input.ranks;
      work[r] += cost(table, input) / input.ranks;
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(), [&](const Piece& a, const Piece& b) {
    return a.cost != b.cost || !input.balance_bytes ? a.cost > b.cost : a.bytes > b.bytes;
  });
  for (const Piece& piece : pieces) {
    TablePlacement& choice = placement[piece.table];
    const auto ranks = static_cast<size_t>(input.ranks);
    const auto parts = static_cast<size_t>(choice.parts);
    // The parts of a table go to consecutive ranks: of the ranges with room, the one with the lowest maximum cost.
    std::optional<size_t> best;
    std::pair<double, int64_t> best_load;  // largest cost and largest memory of its ranks
    for (size_t start = 0; start < ranks; ++start) {
      std::pair<double, int64_t> load;
      bool fits = true;
      for (size_t p = 0; p < parts; ++p) {
        const size_t rank = (start + p) % ranks;
        load.first = std::max(load.first, work[rank]);
        if (input.balance_bytes) load.second = std::max(load.second, held[rank]);
        fits = fits && (!input.memory_of_rank ||
                        held[rank] + piece.bytes / static_cast<int64_t>(parts) <= *input.memory_of_rank);
      }
      if (fits && (!best || load < best_load)) {
        best = start;
        best_load = load;
      }
    }
    choice.first_rank = static_cast<int>(best.value_or(0));
    for (size_t p = 0; p < parts; ++p) {
      work[(static_cast<size_t>(choice.first_rank) + p) % ranks] += piece.cost / static_cast<double>(parts);
      held[(static_cast<size_t>(choice.first_rank) + p) % ranks] += piece.bytes / static_cast<int64_t>(parts);
    }
  }
  return placement;
}

}  // namespace trifold
