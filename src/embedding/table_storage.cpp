#include "embedding/table_storage.h"

#include <algorithm>
#include <cmath>

#include "embedding/row_cache.h"

namespace trifold {

namespace {

int64_t least_slots(const PartShape& part) { return std::min(part.rows, 2 * part.batch_ids); }

// A part whose rows do not take less than the whole part has no file.
int64_t useful_slots(const PartShape& part, double wanted) {
  const double most = static_cast<double>(part.rows);
  const int64_t slots = std::max(least_slots(part), static_cast<int64_t>(std::floor(std::min(wanted, most))));
  const bool saves = bytes_of_part(part, slots).memory() < bytes_of_part(part, part.rows).memory();
  return saves ? slots : part.rows;
}

std::vector<int64_t> slots_at(const std::vector<PartShape>& parts, double rows_of_id) {
  std::vector<int64_t> slots;
  for (const PartShape& part : parts)
    slots.push_back(useful_slots(part, rows_of_id * static_cast<double>(part.batch_ids)));
  return slots;
}

size_t memory_of(const std::vector<PartShape>& parts, const std::vector<int64_t>& slots) {
  size_t bytes = 0;
  for (size_t i = 0; i < parts.size(); ++i) bytes += bytes_of_part(parts[i], slots[i]).memory();
  return bytes;
}

}  // namespace

MemoryFolder TableStorage::place() const {
  return {folder, "--table-storage", "shard the tables over ranks of more hosts"};
}

PartBytes bytes_of_part(const PartShape& part, int64_t slots) {
  const auto of = [](int64_t rows, size_t row_bytes) { return static_cast<size_t>(rows) * row_bytes; };
  PartBytes bytes{of(slots, part.value_bytes), of(slots, part.state_bytes), 0, 0};
  if (slots == part.rows) return bytes;
  bytes.bookkeeping = RowCache::bookkeeping_bytes(part.rows, slots, part.batch_ids);
  bytes.file = of(part.rows, part.value_bytes + part.state_bytes);
  return bytes;
}

std::vector<int64_t> divide_cache(const std::vector<PartShape>& parts, const TableStorage& storage) {
  double most = 0;
  for (const PartShape& part : parts)
    if (part.batch_ids > 0)
      most = std::max(most, static_cast<double>(part.rows) / static_cast<double>(part.batch_ids));
  double low = 0, high = most + 1;
  if (memory_of(parts, slots_at(parts, high)) <= storage.cache) return slots_at(parts, high);
  // Memory grows with the rows; halves are exact to a slot long before this many.
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (memory_of(parts, slots_at(parts, middle)) <= storage.cache ? low : high) = middle;
  }
  return slots_at(parts, low);
}

size_t least_cache(const std::vector<PartShape>& parts) { return memory_of(parts, slots_at(parts, 0)); }

}  // namespace trifold
