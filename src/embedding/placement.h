// Placement: which rectangle of which embedding table lives on which rank.
//
//   table       the whole table on one rank
//   row         ranges of rows on several ranks; each makes partial sums of the bags, which the rank of the
//               samples adds in rank order
//   column      ranges of columns on several ranks; each of them receives all ids of the table
//   replicated  a copy on every rank: forward sends nothing; backward sums the gradients of all its rows over
//               the ranks. For tables smaller than a batch
//
// On one rank every table is whole. Any number of tables works with any number of ranks.
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
  int max_ids = 1;    // of a bag
  int weights = 0;    // the last so many columns are first-order weights (models/dlrm.h), which begin as 0
  int64_t bags = 1;   // of a sample, each with up to max_ids ids (embedding/table_groups.h)
  bool keyed =
      false;  // its ids are keys: rows begin anew when they get another owner (clicks/keys/key_table.h)
};

// Part p of a table is on rank (first_rank + p) mod ranks.
struct TablePlacement {
  PlacementKind kind = PlacementKind::Table;
  int first_rank = 0;
  int parts = 1;  // for Row and Column; at most the number of rows, or columns, and of ranks
};

// A part of a table on one rank.
struct Shard {
  int table = 0;
  int rank = 0;
  Rect rect;           // of [rows, width]
  int64_t column = 0;  // the begin of its columns among those of all shards of its rank
};

class Placement {
 public:
  // The features of a sample are `leading` vectors (those of the bottom MLP, if there is one) followed by
  // those of the tables.
  Placement(std::vector<EmbeddingTable> tables, std::vector<TablePlacement> choice, int ranks,
            int leading = 1);

  int ranks() const { return ranks_; }
  int leading() const { return leading_; }
  std::span<const EmbeddingTable> tables() const { return tables_; }
  std::span<const TablePlacement> choice() const { return choice_; }
  // All shards of tables that are not replicated, by rank, then table, then part.
  std::span<const Shard> shards() const { return shards_; }
  std::span<const Shard> shards_of(int rank) const;
  // The number of columns of all shards of a rank: the numbers it looks up per sample.
  int64_t columns(int rank) const { return columns_[static_cast<size_t>(rank)]; }
  // The column in a sample's features at which the vector of a table begins. All tables have the same width.
  int64_t feature_column(int table) const {
    return (table + leading_) * tables_[static_cast<size_t>(table)].width;
  }
  bool replicated(int table) const;
  // Whether the columns of the table are on more than one rank.
  bool cut_by_columns(int table) const;
  // Among the shards with different rows of the table: whether this one is the first to be added to a bag.
  bool first_of_rows(const Shard& shard) const;

 private:
  std::vector<EmbeddingTable> tables_;
  std::vector<TablePlacement> choice_;
  int ranks_;
  int leading_;
  std::vector<Shard> shards_;
  std::vector<size_t> first_;  // the first shard of each rank; and the end
  std::vector<int64_t> columns_;
};

}  // namespace trifold
