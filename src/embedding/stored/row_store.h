// RowStore holds all rows of a table of which a RowCache caches some: as records in a file (row_file.h), or as arrays
// in shared host memory, which a device reads and writes in place.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <span>

#include "core/tensor.h"
#include "embedding/stored/row_file.h"

namespace trifold {

// One array of a table: its values, or a state of the optimizer. `begin` is the byte offset of the array in shared
// memory, or in a file the offset of the array's part in each record.
struct RowArray {
  size_t begin = 0;
  size_t row_bytes = 0;
  std::byte* slots = nullptr;   // [slots, row_bytes], in the memory that operations read
  bool sum_of_squares = false;  // values of a row grow whenever it is used

  size_t place_of(int64_t row) const { return begin + static_cast<size_t>(row) * row_bytes; }
  std::byte* slot(int64_t slot) const { return slots + static_cast<size_t>(slot) * row_bytes; }
};

// One move between cache and store: writes `victim` back if given, then loads `row` into `slot`. With `row` -1 the slot
// keeps its row, which is only written back.
struct RowMove {
  int32_t slot = 0;
  int32_t row = -1;
  int32_t victim = -1;  // row to write back from the slot; -1: none
};

// Writes the initial value of a row to the first array; the other arrays begin as 0. May be called on any thread.
using InitialRow = std::function<void(int64_t row, std::byte* to)>;

// Writes the initial values of a row for all arrays; place(array) is where they go.
template <class Place>
void begin_row(std::span<const RowArray> arrays, int64_t row, const InitialRow& initial, Place place) {
  for (const RowArray& array : arrays)
    if (&array == arrays.data())
      initial(row, place(array));
    else
      std::memset(place(array), 0, array.row_bytes);
}

class RowStore {
 public:
  // No backing store, for moves that only initialise rows (RowTransfer).
  RowStore() = default;
  RowStore(const MemoryFolder& folder, int64_t rows, const RowRecords& layout, int64_t waiting)
      : file_(std::make_unique<RowFile>(folder, rows, layout, waiting)) {}
  // Shared memory of `bytes` bytes, initialised to zero.
  RowStore(size_t bytes, Device* device) : memory_(Buffer::shared(bytes, device)) {}

  // The file; null if there is none.
  RowFile* file() const { return file_.get(); }
  // Whether the store is host memory that the device can access.
  bool is_shared() const { return memory_.bytes() > 0; }
  std::byte* data() const { return memory_.data(); }
  size_t file_bytes() const { return file_ ? file_->bytes() : 0; }
  size_t shared_bytes() const { return memory_.bytes(); }

 private:
  std::unique_ptr<RowFile> file_;
  Buffer memory_;
};

// What all files of a rank share: the queue for their pages, and the merging thread.
struct RowDisk {
  PageQueue& queue;
  RowMerger& merger;
};

}  // namespace trifold
