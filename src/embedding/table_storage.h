// Tables of which a RowCache keeps rows in memory: which of a rank's tables are there as a whole, and how many rows of
// the others. The memory is that of a device if operations have one.
//
// The cache of a rank is divided so that each table has the same number of rows in memory for each id that a sample
// has in it: tables of clicks follow similar laws of frequency, and a table with ten ids in a sample is looked up ten
// times as often. Tables that are smaller than their share are in memory as a whole and have no store. Every other
// table has at least the rows of two batches, even where that exceeds the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "files/file_memory.h"

namespace trifold {

struct TableStorage {
  std::string folder;      // of the files; empty: no files
  size_t cache = 0;        // bytes of memory of a rank for the tables that it shards
  bool on_host = false;    // without files: whole tables are in host memory that the device shares
  bool on_device = false;  // operations have a device
  bool in_files() const { return !folder.empty(); }
  bool is_cached() const { return in_files() || (on_host && on_device); }
  MemoryFolder place() const;
};

// What decides the size of a part of a table.
struct PartShape {
  int64_t rows = 0;
  int64_t batch_ids = 0;   // the most in a global batch
  size_t value_bytes = 0;  // of a row
  size_t state_bytes = 0;  // of a row
  bool begins = false;     // rows may be initialised again (EmbeddingTable::keyed)
};

// Memory of a part with `slots` rows in memory; with all of its rows there is no store.
struct PartBytes {
  size_t values = 0, state = 0,
         bookkeeping = 0;  // in memory; of a device without bookkeeping, which is on the host
  size_t shared = 0;       // host memory that the device shares
  size_t host = 0;         // other host memory of a device's tables
  size_t file = 0;
  size_t memory() const { return values + state + bookkeeping; }
};
PartBytes bytes_of_part(const PartShape& part, int64_t slots, const TableStorage& storage);
// About how many rows wait in a file's log (row_file.h) for their places: enough that a page gets four or more of them at a
// time, and no more than there are in memory, because each has an entry of 12 bytes in the index.
int64_t waiting_rows(int64_t rows, int64_t slots);
// Shared memory from which rows of a part that is on a device as a whole are initialised again.
size_t beginning_bytes(int64_t rows, size_t row_bytes);

// The slots of each part, of a rank's parts together; `storage` is cached.
std::vector<int64_t> divide_cache(const std::vector<PartShape>& parts, const TableStorage& storage);

// Divides a rank's cache among groups of parts: returns the part of it that each group gets, with which divide_cache
// finds the slots that all of them together would have.
std::vector<size_t> caches_of_groups(const std::vector<std::vector<PartShape>>& groups,
                                     const TableStorage& storage);

// The least cache with which nothing exceeds it.
size_t least_cache(const std::vector<PartShape>& parts, const TableStorage& storage);

}  // namespace trifold
