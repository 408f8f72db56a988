// StoredRows gives access to a tensor's box whose rows (the indices of its first dim) are not contiguous in memory,
// such as the rows of a table in a file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trifold {

class StoredRows {
 public:
  virtual ~StoredRows() = default;
  // Copy rows [first, first + count) of the box to and from contiguous memory.
  virtual void read(int64_t first, int64_t count, std::byte* to) = 0;
  virtual void write(int64_t first, int64_t count, const std::byte* from) = 0;

 protected:
  StoredRows() = default;
  StoredRows(const StoredRows&) = default;
  StoredRows& operator=(const StoredRows&) = default;
};

}  // namespace trifold
