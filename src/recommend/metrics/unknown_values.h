// UnknownValues counts the values of predicted samples that have no row of their own: values that a dictionary lacks,
// and keys without a row (ClickTable::has_other_row).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clicks/click_batch.h"
#include "comm/communicator.h"

namespace trifold {

struct TableUnknowns {
  std::string table;
  int64_t values = 0;   // values that are not missing
  int64_t unknown = 0;  // values without a row of their own
};

class UnknownValues {
 public:
  // Counts for the tables of `schema` that can have such values.
  explicit UnknownValues(const ClickSchema& schema);

  void add(const ClickBatch& batch);
  // The counts so far, summed over all ranks. Collective.
  std::vector<TableUnknowns> finish(Communicator& ranks, Stream& stream) const;

 private:
  std::vector<size_t> tables_;
  std::vector<TableUnknowns> counts_;  // on this rank
};

}  // namespace trifold
