// Placement: which rectangle of which embedding table lives on which rank.
//
//   table       the whole table on one rank
//   row         ranges of rows on several ranks; each makes partial sums of the bags, which the rank of the
//               samples adds up in rank order
//   column      ranges of columns on several ranks; each of them sees all ids of the table
//   replicated  a copy on every rank: nothing is sent in forward; in backward the gradients of all its rows
//               are summed over the ranks. For tables smaller than a batch
//
// On one rank every table is whole. Few tables on many ranks, or many on few, are no special case.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/recommend_choices.h"
#include "mesh/rect.h"

namespace trifold {

struct EmbeddingTable {
  std::string name;
  int64_t rows = 0;
  int64_t width = 0;  // columns
  int max_ids = 1;    // of one sample
};

// Part p of a table is on rank (first_rank + p) mod ranks.
struct TablePlacement {
  PlacementKind kind = PlacementKind::Table;
  int first_rank = 0;
  int parts = 1;  // Row, Column; never more than there are rows, or columns, or ranks
};

// A part of a table on one rank.
struct Shard {
  int table = 0;
  int rank = 0;
  Rect rect;           // of [rows, width]
  int64_t column = 0;  // where its columns begin among those of all shards of its rank
};

class Placement {
 public:
  // The features of a sample are `leading` vectors (the bottom MLP's, where there is one) and then the
  // tables'.
  Placement(std::vector<EmbeddingTable> tables, std::vector<TablePlacement> choice, int ranks,
            int leading = 1);

  int ranks() const { return ranks_; }
  std::span<const EmbeddingTable> tables() const { return tables_; }
  std::span<const TablePlacement> choice() const { return choice_; }
  // Of everything that is not replicated, by rank, then table, then part.
  std::span<const Shard> shards() const { return shards_; }
  std::span<const Shard> shards_of(int rank) const;
  // Columns of all shards of a rank: what it makes for a sample.
  int64_t columns(int rank) const { return columns_[static_cast<size_t>(rank)]; }
  // The column of a sample's features where the vector of a table begins. All tables are of one width.
  int64_t feature_column(int table) const {
    return (table + leading_) * tables_[static_cast<size_t>(table)].width;
  }
  bool replicated(int table) const;
  // Whether the columns of the table are on more than one rank.
  bool cut_by_columns(int table) const;
  // Shards, by rows, of the table's rows: true for the first that is added to a bag.
  bool first_of_rows(const Shard& shard) const;

 private:
  std::vector<EmbeddingTable> tables_;
  std::vector<TablePlacement> choice_;
  int ranks_;
  int leading_;
  std::vector<Shard> shards_;
  std::vector<size_t> first_;  // shard of each rank; and the end
  std::vector<int64_t> columns_;
};

}  // namespace trifold
