// TrainedRows finds the rows of a table that training has changed: the rows that differ from their initial values. A
// step changes only the rows that it uses, and a changed row never returns to all of its initial values.
//
// The rows of a table may have been initialised by several runs: a later run may have added rows, or given rows to
// other keys, with initial values from its own seed. A row is untrained if it has the initial values of any of these
// runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "embedding/table_part.h"

namespace trifold {

// The parameters of the initial values of a run.
struct TableStart {
  uint64_t seed = 0;
  double range = 0;                     // TablePart::Options::init_range
  std::map<std::string, int64_t> rows;  // rows of each table, by name
  bool operator==(const TableStart&) const = default;
};

class TrainedRows {
 public:
  // For the rectangle `rect` of a table of `dtype`.
  TrainedRows(const EmbeddingTable& table, const Rect& rect, DType dtype, std::span<const TableStart> starts);

  // Whether row `row` of the rectangle has been trained, given its values.
  bool is_trained(int64_t row, const std::byte* values);

 private:
  struct Start {
    InitialRows values;
    int64_t rows;  // rows of the rectangle that the run initialised
  };
  std::vector<Start> starts_;
  std::vector<std::byte> initial_;  // memory for the initial values of a row
};

}  // namespace trifold
