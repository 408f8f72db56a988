// UnknownValues counts the values of predicted samples that have no row of their own: those that a dictionary lacks, and
// keys without a row (ClickTable::has_other_row).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clicks/click_batch.h"
#include "comm/communicator.h"

namespace trifold {

struct TableUnknowns {
  std::string table;
  int64_t values = 0;   // that are not missing
  int64_t unknown = 0;  // of these
};

class UnknownValues {
 public:
  // The tables of `schema` that have such values are counted.
  explicit UnknownValues(const ClickSchema& schema);

  void add(const ClickBatch& batch);
  // The counts of all ranks so far. Collective.
  std::vector<TableUnknowns> finish(Communicator& ranks, Stream& stream) const;

 private:
  std::vector<size_t> tables_;
  std::vector<TableUnknowns> counts_;  // of this rank
};

}  // namespace trifold
