// Tells which rows of a table training has touched: those that differ from their initial values. A step changes only the
// rows that it uses, and no row that it changes gets all of its initial values again.
//
// A table may have begun in several runs: rows that a later one added, or gave to other keys, have initial values that
// follow from its seed. A row is untouched if it has those of any of these runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "embedding/table_part.h"

namespace trifold {

// From what the initial values of tables follow in a run.
struct TableStart {
  uint64_t seed = 0;
  double range = 0;                     // as TablePart::Options::init_range
  std::map<std::string, int64_t> rows;  // of each table by its name
  bool operator==(const TableStart&) const = default;
};

class TrainedRows {
 public:
  // For the rectangle `rect` of a table of `dtype`.
  TrainedRows(const EmbeddingTable& table, const Rect& rect, DType dtype, std::span<const TableStart> starts);

  // Whether row `row` of the rectangle, with these values, has been trained.
  bool is_trained(int64_t row, const std::byte* values);

 private:
  struct Start {
    InitialRows values;
    int64_t rows;  // of the rectangle
  };
  std::vector<Start> starts_;
  std::vector<std::byte> initial_;  // a row
};

}  // namespace trifold
