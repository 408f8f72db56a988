// The assignment of columns of ids to tables, and groups of tables with equally many bags per sample.
//
// Usually a column has its own table, in which its ids are one bag of a sample, pooled to a vector. Columns may
// also share a table (ClickTable::shares), and the ids of a column may be looked up one by one, so that each has its
// own vector: in both cases a sample has several bags in a table. The other classes of this room assume one bag per
// sample and table. A group of tables with P bags per sample is therefore passed to them as b P samples of one bag, in
// the order (sample, bag):
//
//   features of a group   [b P, V E], or as rows of samples [b, P V E], for V tables with rows of E elements:
//                         bag p of the sample in table v begins at column (p V + v) E
//
// So every placement, exchange, optimizer and storage supports several bags. A sample with fewer bags is padded with
// empty bags; their zeros are exchanged like other vectors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clicks/click_batch.h"
#include "embedding/placement.h"

namespace trifold {

// Bags [first, first + bags) of a sample in table `table`: the ids of one column.
struct TableUse {
  int table = 0;
  int64_t first = 0;
  int64_t bags = 1;
  bool one_by_one = false;  // each id is a bag of its own
};

struct TableUses {
  std::vector<EmbeddingTable> tables;
  std::vector<TableUse> columns;

  // Whether each column has its own table and is one bag in it. Then there is one group, in the order of the columns.
  bool simple() const;
};

// `width` is the number of columns of every table, the last `weights` of which are first-order weights. `one_by_one`:
// the columns whose ids are looked up one by one. BadInput if a column shares a table that does not exist or whose ids
// are keys.
TableUses table_uses(const ClickSchema& schema, int64_t width, int weights,
                     const std::vector<int64_t>& one_by_one = {});

struct TableGroup {
  int64_t bags = 1;         // bags per sample in each table
  std::vector<int> tables;  // indices into TableUses::tables
  Placement placement;      // placement of these tables
};

// The groups of all tables, ascending by their number of bags.
std::vector<TableGroup> group_tables(const Placement& all);

// Converts batches of clicks to the bags of a group's tables. Owns memory for tables whose bags are not the bags of a
// single column.
class BagBatch {
 public:
  // `samples`: this rank's samples of a batch.
  BagBatch(const TableUses& uses, const TableGroup& group, const ClickSchema& schema, int64_t samples);

  // The result is valid as long as `clicks`, and until the next call.
  const ClickBatch& arrange(const ClickBatch& clicks);
  // Bytes of the memory that it owns; the second form needs no instance.
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
