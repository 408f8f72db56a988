#include "embedding/table_storage.h"

#include <algorithm>
#include <cmath>

#include "embedding/stored/row_cache.h"
#include "embedding/stored/row_file.h"
#include "embedding/stored/row_records.h"

namespace trifold {

namespace {

using Parts = std::vector<PartShape>;

int64_t least_slots(const PartShape& part) { return std::min(part.rows, 2 * part.batch_ids); }

// A part has no store unless its slots need less memory than the whole part.
int64_t useful_slots(const PartShape& part, double wanted, const TableStorage& storage) {
  const double most = static_cast<double>(part.rows);
  const int64_t slots = std::max(least_slots(part), static_cast<int64_t>(std::floor(std::min(wanted, most))));
  const bool saves =
      bytes_of_part(part, slots, storage).memory() < bytes_of_part(part, part.rows, storage).memory();
  return saves ? slots : part.rows;
}

std::vector<int64_t> slots_at(const Parts& parts, double rows_of_id, const TableStorage& storage) {
  std::vector<int64_t> slots;
  for (const PartShape& part : parts)
    slots.push_back(useful_slots(part, rows_of_id * static_cast<double>(part.batch_ids), storage));
  return slots;
}

size_t memory_at(const Parts& parts, double rows_of_id, const TableStorage& storage) {
  const std::vector<int64_t> slots = slots_at(parts, rows_of_id, storage);
  size_t bytes = 0;
  for (size_t i = 0; i < parts.size(); ++i) bytes += bytes_of_part(parts[i], slots[i], storage).memory();
  return bytes;
}

// The largest number of rows in memory per id of a batch that the cache allows.
double rows_of_id(const Parts& parts, const TableStorage& storage) {
  double most = 0;
  for (const PartShape& part : parts)
    if (part.batch_ids > 0)
      most = std::max(most, static_cast<double>(part.rows) / static_cast<double>(part.batch_ids));
  double low = 0, high = most + 1;
  if (memory_at(parts, high, storage) <= storage.cache) return high;
  // Memory grows with the rows; halves are exact to a slot long before this many.
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (memory_at(parts, middle, storage) <= storage.cache ? low : high) = middle;
  }
  return low;
}

}  // namespace

MemoryFolder TableStorage::place() const {
  return {folder, "--table-storage", "shard the tables over ranks of more hosts"};
}

PartBytes bytes_of_part(const PartShape& part, int64_t slots, const TableStorage& storage) {
  const auto of = [](int64_t rows, size_t row_bytes) { return static_cast<size_t>(rows) * row_bytes; };
  PartBytes bytes{of(slots, part.value_bytes), of(slots, part.state_bytes)};
  const size_t row_bytes = part.value_bytes + part.state_bytes;
  if (slots == part.rows) {
    if (part.begins && storage.on_device) bytes.shared = beginning_bytes(part.rows, row_bytes);
    return bytes;
  }
  size_t bookkeeping = RowCache::bookkeeping_bytes(part.rows, slots, part.batch_ids);
  if (storage.in_files()) {
    const RowRecords layout(row_bytes);
    const int64_t waiting = waiting_rows(part.rows, slots);
    bytes.file = RowFile::file_bytes(part.rows, layout, waiting);
    bookkeeping += RowFile::memory_bytes(part.rows, layout, waiting);
  } else {
    bytes.shared = of(part.rows, row_bytes);
  }
  if (storage.on_device)
    bytes.shared += RowTransfer::shared_bytes(part.batch_ids, row_bytes, storage.in_files());
  (storage.on_device ? bytes.host : bytes.bookkeeping) = bookkeeping;
  return bytes;
}

int64_t waiting_rows(int64_t rows, int64_t slots) {
  constexpr int64_t kRowsForOne = 15;
  return std::min(rows / kRowsForOne, slots);
}

size_t beginning_bytes(int64_t rows, size_t row_bytes) {
  return RowTransfer::shared_bytes(std::min(rows, RowTransfer::kBegun), row_bytes, true);
}

std::vector<int64_t> divide_cache(const Parts& parts, const TableStorage& storage) {
  return slots_at(parts, rows_of_id(parts, storage), storage);
}

std::vector<size_t> caches_of_groups(const std::vector<Parts>& groups, const TableStorage& storage) {
  Parts all;
  for (const Parts& group : groups) all.insert(all.end(), group.begin(), group.end());
  const double rows = rows_of_id(all, storage);
  std::vector<size_t> caches;
  for (const Parts& group : groups) caches.push_back(memory_at(group, rows, storage));
  return caches;
}

size_t least_cache(const Parts& parts, const TableStorage& storage) { return memory_at(parts, 0, storage); }

}  // namespace trifold
