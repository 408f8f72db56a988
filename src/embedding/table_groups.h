// Which tables the columns of ids look up, and the groups of tables in which samples have equally many bags.
//
// Usually a column has a table of its own, in which its ids are one bag of a sample, pooled to a vector. Columns may
// also share a table (ClickTable::shares), and the ids of a column may be looked up one by one, so that each has its
// own vector: both give a sample several bags in a table. The parts of this room know samples of one bag; a group of
// tables in which samples have P bags is one of b P such samples for them, in the order (sample, bag):
//
//   features of group g   [b P, V E], or as rows of samples [b, P V E], V tables with rows of E numbers:
//                         bag p of the sample in table v begins at column (p V + v) E
//
// So every placement, exchange, optimizer and storage serves them. Bags without ids pad a sample to P; they are zeros,
// which travel with the rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clicks/click_batch.h"
#include "embedding/placement.h"

namespace trifold {

// The bags of a column of ids in its table.
struct TableUse {
  int table = 0;
  int64_t first = 0;
  int64_t bags = 1;
  bool one_by_one = false;  // each id is a bag of its own
};

struct TableUses {
  std::vector<EmbeddingTable> tables;
  std::vector<TableUse> columns;

  // Whether each column has a table of its own, in which its ids are one bag: there is one group then, in the order of the
  // columns.
  bool simple() const;
};

// `width` counts the numbers of a row, of which the last `weights` are first-order weights; `one_by_one`: the columns
// whose ids are looked up one by one. BadInput if a column shares a table that there is not, or one of keys.
TableUses table_uses(const ClickSchema& schema, int64_t width, int weights,
                     const std::vector<int64_t>& one_by_one = {});

struct TableGroup {
  int64_t bags = 1;         // of a sample in each table
  std::vector<int> tables;  // their places among all
  Placement placement;      // of these
};

// By their number of bags, ascending.
std::vector<TableGroup> group_tables(const Placement& all);

// Arranges batches of clicks as a group's tables see them. Owns memory where bags are not simply those of a column.
class BagBatch {
 public:
  // `samples` of this rank.
  BagBatch(const TableUses& uses, const TableGroup& group, const ClickSchema& schema, int64_t samples);

  // Valid as long as `clicks`, and until the next call.
  const ClickBatch& arrange(const ClickBatch& clicks);
  // Bytes of the memory that it owns, or would own.
  size_t bytes() const;
  static size_t bytes(const TableUses& uses, const TableGroup& group, const ClickSchema& schema,
                      int64_t samples);

 private:
  struct Column {
    size_t index;
    TableUse use;
  };
  struct Table {
    std::vector<Column> columns;  // by their first bag
    Buffer lengths, ids, weights;
  };

  void fill(const ClickBatch& clicks, const Table& table, size_t place);

  int64_t bags_;
  std::vector<Table> tables_;
  ClickBatch batch_;
};

}  // namespace trifold
