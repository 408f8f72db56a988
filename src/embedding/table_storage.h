// Storage of tables that are larger than memory, and the division of a rank's cache among its tables. The cache is
// device memory if operations have a device.
//
// The cache is divided so that each table has the same number of rows in memory per id of a sample: tables of clicks
// have similar distributions of frequency, and a table with ten ids per sample is looked up ten times as often. Tables
// that are smaller than their share are entirely in memory and have no store. Every other table has at least the rows
// of two batches in memory, even if that exceeds the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "files/file_memory.h"

namespace trifold {

struct TableStorage {
  std::string folder;      // folder for files; empty: no files
  size_t cache = 0;        // bytes of a rank's memory for its shards
  bool on_host = false;    // without files: tables are in host memory that the device shares
  bool on_device = false;  // operations have a device
  bool in_files() const { return !folder.empty(); }
  bool is_cached() const { return in_files() || (on_host && on_device); }
  MemoryFolder place() const;
};

// The values that determine the size of a part of a table.
struct PartShape {
  int64_t rows = 0;
  int64_t batch_ids = 0;   // maximum ids in a global batch
  size_t value_bytes = 0;  // bytes of values per row
  size_t state_bytes = 0;  // bytes of optimizer state per row
  bool begins = false;     // rows may be initialised again (EmbeddingTable::keyed)
};

// Memory of a part with `slots` rows in memory; if these are all of its rows, there is no store.
struct PartBytes {
  // In the memory of operations. Bookkeeping of a device's tables counts as `host`.
  size_t values = 0, state = 0, bookkeeping = 0;
  size_t shared = 0;  // host memory that the device shares
  size_t host = 0;    // other host memory of a device's tables
  size_t file = 0;
  size_t memory() const { return values + state + bookkeeping; }
};
PartBytes bytes_of_part(const PartShape& part, int64_t slots, const TableStorage& storage);
// The approximate capacity, in rows, of a file's log (row_file.h): enough that a merge changes four or more rows per
// page, and at most the number of slots, because each row in the log has an entry of 12 bytes in the index.
int64_t waiting_rows(int64_t rows, int64_t slots);
// Bytes of the staging area from which rows of a part that is entirely on a device are initialised again.
size_t beginning_bytes(int64_t rows, size_t row_bytes);

// Divides the cache among all parts of a rank: the slots of each. `storage` must be cached.
std::vector<int64_t> divide_cache(const std::vector<PartShape>& parts, const TableStorage& storage);

// Divides a rank's cache among groups of parts: returns the bytes for each group, so that divide_cache for the groups
// finds the same slots as for all parts together.
std::vector<size_t> caches_of_groups(const std::vector<std::vector<PartShape>>& groups,
                                     const TableStorage& storage);

// The smallest cache that the required rows do not exceed.
size_t least_cache(const std::vector<PartShape>& parts, const TableStorage& storage);

}  // namespace trifold
