#include "embedding/trained_rows.h"

#include <cstring>

namespace trifold {

TrainedRows::TrainedRows(const EmbeddingTable& table, const Rect& rect, DType dtype,
                         std::span<const TableStart> starts)
    : initial_(static_cast<size_t>(rect.extent[1]) * size_of(dtype)) {
  for (const TableStart& start : starts) {
    const auto rows = start.rows.find(table.name);
    if (rows == start.rows.end()) continue;
    EmbeddingTable then = table;
    then.rows = rows->second;
    starts_.push_back({InitialRows(then, rect, dtype, start.seed, start.range), then.rows - rect.offset[0]});
  }
}

bool TrainedRows::is_trained(int64_t row, const std::byte* values) {
  for (const Start& start : starts_) {
    if (row >= start.rows) continue;
    start.values.write(row, initial_.data());
    if (std::memcmp(initial_.data(), values, initial_.size()) == 0) return false;
  }
  return true;
}

}  // namespace trifold
