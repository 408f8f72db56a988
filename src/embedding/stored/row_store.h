// RowStore holds all rows of a table of which a RowCache keeps some in the memory that operations read: as records in a
// file (row_file.h), or as arrays in host memory that a device shares and so reads in place.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <span>

#include "core/tensor.h"
#include "embedding/stored/row_file.h"

namespace trifold {

// One array of a table: values, or state of the optimizer. In shared memory it begins at `begin`, in a file its part of
// each record does.
struct RowArray {
  size_t begin = 0;
  size_t row_bytes = 0;
  std::byte* slots = nullptr;   // [slots, row_bytes], in the memory of operations
  bool sum_of_squares = false;  // its numbers grow whenever a row is used

  size_t place_of(int64_t row) const { return begin + static_cast<size_t>(row) * row_bytes; }
  std::byte* slot(int64_t slot) const { return slots + static_cast<size_t>(slot) * row_bytes; }
};

// A slot of the cache gets another row; or, without `row`, its row is only written to the store.
struct RowMove {
  int32_t slot = 0;
  int32_t row = -1;
  int32_t victim = -1;  // the row that has to be written to the store first; -1: none
};

// Writes the initial value of a row, in the first array; in the others it begins as 0. Called on any thread.
using InitialRow = std::function<void(int64_t row, std::byte* to)>;

// Writes the first values of a row in all arrays, in array a to `place(a)`.
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
  // Stores nothing, for rows that only begin (RowTransfer).
  RowStore() = default;
  RowStore(const MemoryFolder& folder, int64_t rows, const RowRecords& layout, int64_t waiting)
      : file_(std::make_unique<RowFile>(folder, rows, layout, waiting)) {}
  // Initialised to zero.
  RowStore(size_t bytes, Device* device) : memory_(Buffer::shared(bytes, device)) {}

  // Null without one.
  RowFile* file() const { return file_.get(); }
  // Memory that operations of the device can use.
  bool is_shared() const { return memory_.bytes() > 0; }
  std::byte* data() const { return memory_.data(); }
  size_t file_bytes() const { return file_ ? file_->bytes() : 0; }
  size_t shared_bytes() const { return memory_.bytes(); }

 private:
  std::unique_ptr<RowFile> file_;
  Buffer memory_;
};

// How files of a rank are moved.
struct RowDisk {
  PageQueue& queue;
  RowMerger& merger;
};

}  // namespace trifold
