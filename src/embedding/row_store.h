// RowStore holds all rows of a table of which a RowCache keeps some in the memory that operations read: in a file, or in
// host memory that a device shares and so reads in place.
#pragma once

#include <cstring>
#include <functional>
#include <span>

#include "core/tensor.h"
#include "files/file_memory.h"

namespace trifold {

// One array of a table: values, or state of the optimizer. Row r is at begin + r row_bytes in the store.
struct RowArray {
  size_t begin = 0;
  size_t row_bytes = 0;
  std::byte* slots = nullptr;  // [slots, row_bytes], in the memory of operations

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
  // Initialised to zero.
  RowStore(const MemoryFolder& folder, size_t bytes) : file_(folder, bytes) {}
  RowStore(size_t bytes, Device* device) : memory_(Buffer::shared(bytes, device)) {}

  std::byte* data() const { return is_shared() ? memory_.data() : file_.data(); }
  // Whether operations of the device can use data().
  bool is_shared() const { return memory_.bytes() > 0; }
  size_t file_bytes() const { return file_.bytes(); }
  size_t shared_bytes() const { return memory_.bytes(); }

  // As FileMemory's.
  void expect(size_t begin, size_t end) const {
    if (!is_shared()) file_.expect(begin, end);
  }
  void release(size_t begin, size_t end) const {
    if (!is_shared()) file_.release(begin, end);
  }
  void read(std::byte* to, size_t begin, size_t bytes) const { file_.read(to, begin, bytes); }
  void write(const std::byte* from, size_t begin, size_t bytes) const { file_.write(from, begin, bytes); }

 private:
  FileMemory file_;
  Buffer memory_;
};

}  // namespace trifold
