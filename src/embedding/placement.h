// Placement: the assignment of rectangles of embedding tables to ranks. A table has one of four kinds of placement:
//
//   table       the whole table on one rank
//   row         ranges of rows on several ranks; each computes partial sums of the bags, which the rank with the
//               samples adds in rank order
//   column      ranges of columns on several ranks; each of them receives all ids of the table
//   replicated  a copy on every rank: forward sends nothing; backward sums the gradients of all its rows over
//               the ranks. For tables smaller than a batch
//
// With one rank every table is whole. Any number of tables works with any number of ranks.
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
  int max_ids = 1;    // ids of the largest bag
  int weights = 0;    // the last `weights` columns are first-order weights (models/dlrm.h), initially 0
  int64_t bags = 1;   // bags per sample, each with up to max_ids ids (embedding/table_groups.h)
  // Ids are keys: a row is initialised again when it gets another owner (clicks/keys/key_table.h).
  bool keyed = false;
};

// Part p of a table is on rank (first_rank + p) mod ranks.
struct TablePlacement {
  PlacementKind kind = PlacementKind::Table;
  int first_rank = 0;
  int parts = 1;  // for Row and Column; at most the number of rows or columns, and of ranks
};

// A part of a table on one rank.
struct Shard {
  int table = 0;
  int rank = 0;
  Rect rect;           // rectangle of the table, [rows, width]
  int64_t column = 0;  // its first column among the columns of all shards of its rank
};

class Placement {
 public:
  // The features of a sample are `leading` vectors (1 for a bottom MLP, else 0) followed by one vector per table.
  Placement(std::vector<EmbeddingTable> tables, std::vector<TablePlacement> choice, int ranks,
            int leading = 1);

  int ranks() const { return ranks_; }
  int leading() const { return leading_; }
  std::span<const EmbeddingTable> tables() const { return tables_; }
  std::span<const TablePlacement> choice() const { return choice_; }
  // All shards of tables that are not replicated, by rank, then table, then part.
  std::span<const Shard> shards() const { return shards_; }
  std::span<const Shard> shards_of(int rank) const;
  // The columns of all shards of a rank: the elements that it looks up per sample.
  int64_t columns(int rank) const { return columns_[static_cast<size_t>(rank)]; }
  // The column in a sample's features at which the vector of a table begins. All tables have the same width.
  int64_t feature_column(int table) const {
    return (table + leading_) * tables_[static_cast<size_t>(table)].width;
  }
  bool replicated(int table) const;
  // Whether the columns of the table are on more than one rank.
  bool cut_by_columns(int table) const;
  // Whether this shard's partial sum is the first of a bag; the shards with other rows of the table add to it.
  bool first_of_rows(const Shard& shard) const;

 private:
  std::vector<EmbeddingTable> tables_;
  std::vector<TablePlacement> choice_;
  int ranks_;
  int leading_;
  std::vector<Shard> shards_;
  std::vector<size_t> first_;  // index of each rank's first shard; then the number of shards
  std::vector<int64_t> columns_;
};

}  // namespace trifold
