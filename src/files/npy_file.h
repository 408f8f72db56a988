// NpyFile: an array in NumPy's format .npy, versions 1 to 3 (numpy.lib.format), mapped into memory. Its numbers
// are little-endian, in C order: integers of 1 to 8 bytes or floats of 4 or 8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "files/mapped_file.h"

namespace trifold {

class NpyFile {
 public:
  // BadInput, naming the file, for one that is missing, damaged, or holds something else.
  explicit NpyFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t bytes() const { return file_.size(); }
  // "2000 x 13"
  std::string shape_text() const;

  // The number at this place, counted in C order; `place` must be below the product of shape().
  double number(int64_t place) const;
  // The same as an unsigned integer: negative integers wrap modulo 2^bits, which restores 32-bit hashes that were
  // stored as signed. nullopt for floats that are negative or not whole.
  std::optional<uint64_t> whole(int64_t place) const;

 private:
  template <class Body>
  auto visit(int64_t place, Body body) const;
  void read_header();

  MappedFile file_;
  std::vector<int64_t> shape_;
  char kind_ = '\0';   // 'i', 'u', 'b' or 'f'
  int size_ = 0;       // of a number, bytes
  int64_t first_ = 0;  // byte of the first
};

}  // namespace trifold
