// Arrays in NumPy's format .npy, versions 1 to 3 (numpy.lib.format): a file of one, or a member of an .npz file
// (files/npz_file.h). Their numbers are little-endian, in C order: integers of 1 to 8 bytes, booleans or floats of 2 to
// 8.
//
//   NpyFile file(path);
//   while (...) for (row in file.next(1000)) file.header().number(...)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/mapped_file.h"

namespace trifold {

// The header, in front of the numbers.
class NpyHeader {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;

  // `beginning`: the array's first bytes, kMostBytes or all `bytes` of it. BadInput, naming the array, for one that is
  // damaged or holds something else.
  NpyHeader(std::string_view beginning, int64_t bytes, const std::string& name);

  const std::vector<int64_t>& shape() const { return shape_; }
  // "2000 x 13"; "() (one number)"
  std::string shape_text() const;
  // Bytes of the header, and of one number.
  int64_t first() const { return first_; }
  int64_t number_bytes() const { return size_; }
  // Along the first dim, and bytes of each.
  int64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
  int64_t row_bytes() const;

  // The number whose first byte is this.
  double number(const std::byte* at) const;
  // The same as a whole number; nothing for floats that are not whole or do not fit in 64 bits.
  struct Whole {
    uint64_t bits = 0;
    bool negative = false;  // the bits are those of an int64_t
    bool operator==(const Whole&) const = default;
  };
  std::optional<Whole> whole(const std::byte* at) const;

 private:
  template <class Body>
  auto visit(const std::byte* at, Body body) const;

  std::vector<int64_t> shape_;
  char kind_ = '\0';   // 'i', 'u', 'b' or 'f'
  int size_ = 0;       // of a number, bytes
  int64_t first_ = 0;  // byte of the first
};

// Reads an array once, from its first row on.
class NpyRows {
 public:
  virtual ~NpyRows() = default;
  const std::string& name() const { return name_; }
  const NpyHeader& header() const { return *header_; }
  const std::vector<int64_t>& shape() const { return header_->shape(); }
  std::string shape_text() const { return header_->shape_text(); }

  // The next `count` rows, which must be there; theirs until the next call. BadInput, naming the array, where they are
  // damaged.
  virtual std::span<const std::byte> next(int64_t count) = 0;

 protected:
  explicit NpyRows(std::string name) : name_(std::move(name)) {}
  std::string name_;
  std::optional<NpyHeader> header_;  // set by the constructor
};

// The array of a file of its own, mapped into memory.
class NpyFile final : public NpyRows {
 public:
  // BadInput, naming the file, for one that is missing, damaged, or holds something else.
  explicit NpyFile(const std::string& path);

  int64_t bytes() const { return file_.size(); }
  std::span<const std::byte> next(int64_t count) override;

 private:
  MappedFile file_;
  int64_t at_ = 0;        // byte of the next row
  int64_t released_ = 0;  // of what the system may forget
};

}  // namespace trifold
