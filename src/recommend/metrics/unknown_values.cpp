#include "recommend/metrics/unknown_values.h"

#include <algorithm>

namespace trifold {

UnknownValues::UnknownValues(const ClickSchema& schema) {
  for (size_t t = 0; t < schema.tables.size(); ++t) {
    if (!schema.tables[t].has_other_row()) continue;
    tables_.push_back(t);
    counts_.push_back({schema.tables[t].name});
  }
}

void UnknownValues::add(const ClickBatch& batch) {
  for (size_t i = 0; i < tables_.size(); ++i) {
    const Tensor& of = batch.ids[tables_[i]];
    const auto* const ids = of.as<int32_t>();
    const auto count = [&](int32_t id) { return std::count(ids, ids + of.elements(), id); };
    counts_[i].values += of.elements() - count(ClickTable::kMissingRow);
    counts_[i].unknown += count(ClickTable::kOtherRow);
  }
}

std::vector<TableUnknowns> UnknownValues::finish(Communicator& ranks, Stream& stream) const {
  std::vector<int64_t> sums;
  for (const TableUnknowns& of : counts_) sums.insert(sums.end(), {of.values, of.unknown});
  std::vector<TableUnknowns> all = counts_;
  if (all.empty()) return all;
  ranks.all_reduce({sums.data(), DType::I64, {std::ssize(sums)}}, Reduce::Sum, stream);
  stream.synchronize();
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].values = sums[2 * i];
    all[i].unknown = sums[2 * i + 1];
  }
  return all;
}

}  // namespace trifold
