#include "embedding/placement.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace trifold {

Placement::Placement(std::vector<EmbeddingTable> tables, std::vector<TablePlacement> choice, int ranks,
                     int leading)
    : tables_(std::move(tables)), choice_(std::move(choice)), ranks_(ranks), leading_(leading) {
  check(ranks >= 1 && tables_.size() == choice_.size(),
        "{} tables are placed on {} ranks, but {} were requested", choice_.size(), ranks, tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    const EmbeddingTable& table = tables_[t];
    TablePlacement& placed = choice_[t];
    if (ranks == 1) placed = {};
    check(table.rows >= 1 && table.width >= 1, "embedding table {} is {} x {}", table.name, table.rows,
          table.width);
    const int64_t most = placed.kind == PlacementKind::Row      ? table.rows
                         : placed.kind == PlacementKind::Column ? table.width
                                                                : 1;
    placed.parts = static_cast<int>(std::clamp<int64_t>(placed.parts, 1, std::min<int64_t>(most, ranks)));
    if (placed.kind == PlacementKind::Replicated) continue;
    for (int p = 0; p < placed.parts; ++p) {
      Rect rect = Rect::whole({table.rows, table.width});
      const int dim = placed.kind == PlacementKind::Column ? 1 : 0;
      const int64_t extent = rect.extent[dim];
      rect.offset[dim] = extent * p / placed.parts;
      rect.extent[dim] = extent * (p + 1) / placed.parts - rect.offset[dim];
      shards_.push_back({static_cast<int>(t), (placed.first_rank + p) % ranks, rect, 0});
    }
  }
  std::stable_sort(shards_.begin(), shards_.end(),
                   [](const Shard& a, const Shard& b) { return a.rank < b.rank; });
  columns_.resize(static_cast<size_t>(ranks));
  for (Shard& shard : shards_) {
    int64_t& columns = columns_[static_cast<size_t>(shard.rank)];
    shard.column = columns;
    columns += shard.rect.extent[1];
  }
  for (int rank = 0; rank <= ranks; ++rank)
    first_.push_back(static_cast<size_t>(
        std::find_if(shards_.begin(), shards_.end(), [&](const Shard& s) { return s.rank >= rank; }) -
        shards_.begin()));
}

std::span<const Shard> Placement::shards_of(int rank) const {
  const size_t begin = first_[static_cast<size_t>(rank)];
  return std::span(shards_).subspan(begin, first_[static_cast<size_t>(rank) + 1] - begin);
}

bool Placement::replicated(int table) const {
  return choice_[static_cast<size_t>(table)].kind == PlacementKind::Replicated;
}

bool Placement::cut_by_columns(int table) const {
  const TablePlacement& choice = choice_[static_cast<size_t>(table)];
  return choice.kind == PlacementKind::Column && choice.parts > 1;
}

bool Placement::first_of_rows(const Shard& shard) const {
  for (const Shard& other : shards_)
    if (other.table == shard.table && other.rect.offset[1] == shard.rect.offset[1])
      return &other == &shard || other.rect == shard.rect;
  return true;
}

}  // namespace trifold
