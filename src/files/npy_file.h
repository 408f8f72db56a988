// Reads arrays in NumPy's format .npy, versions 1 to 3 (numpy.lib.format): a whole file, or a member of an .npz file
// (files/npz_file.h). Elements are little-endian, in C order: integers of 1 to 8 bytes, booleans, or floats of 2 to 8
// bytes.
//
//   NpyFile file(path);
//   while (...) for (row in file.next(1000)) file.header().visit(...)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/float16.h"
#include "files/mapped_file.h"

namespace trifold {

// The header, which precedes the elements.
class NpyHeader {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 20;

  // `beginning`: the array's first bytes, kMostBytes or all `bytes` of it. BadInput, naming the array, if it is damaged
  // or contains something else.
  NpyHeader(std::string_view beginning, int64_t bytes, const std::string& name);

  const std::vector<int64_t>& shape() const { return shape_; }
  // "2000 x 13"; "() (one number)"
  std::string shape_text() const;
  // Bytes of the header, and of one element.
  int64_t first() const { return first_; }
  int64_t number_bytes() const { return size_; }
  // The extent of the first dim, and the bytes of each of its rows.
  int64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
  int64_t row_bytes() const;

  // Calls body with the element whose first byte is at `at`, in its type: an integer, Float16, float or double.
  template <class Body>
  auto visit(const std::byte* at, Body body) const {
    const auto load = [&]<class T>(T value) {
      std::memcpy(&value, at, sizeof value);
      return body(value);
    };
    if (kind_ == 'f') return size_ == 2 ? load(Float16{}) : size_ == 4 ? load(float{}) : load(double{});
    if (kind_ == 'i') {
      if (size_ == 8) return load(int64_t{});
      return size_ == 4 ? load(int32_t{}) : size_ == 2 ? load(int16_t{}) : load(int8_t{});
    }
    if (size_ == 8) return load(uint64_t{});
    return size_ == 4 ? load(uint32_t{}) : size_ == 2 ? load(uint16_t{}) : load(uint8_t{});
  }

 private:
  std::vector<int64_t> shape_;
  char kind_ = '\0';   // 'i', 'u', 'b' or 'f'
  int size_ = 0;       // bytes of an element
  int64_t first_ = 0;  // offset of the first element
};

// Reads an array once, from its first row on.
class NpyRows {
 public:
  virtual ~NpyRows() = default;
  const std::string& name() const { return name_; }
  const NpyHeader& header() const { return *header_; }
  const std::vector<int64_t>& shape() const { return header_->shape(); }
  std::string shape_text() const { return header_->shape_text(); }

  // The next `count` rows, which must exist; valid until the next call. BadInput, naming the array, if they are
  // damaged.
  virtual std::span<const std::byte> next(int64_t count) = 0;

 protected:
  explicit NpyRows(std::string name) : name_(std::move(name)) {}
  std::string name_;
  std::optional<NpyHeader> header_;  // set by the constructor
};

// An array that is a whole file, mapped into memory.
class NpyFile final : public NpyRows {
 public:
  // BadInput, naming the file, if it is missing, damaged, or contains something else.
  explicit NpyFile(const std::string& path);

  int64_t bytes() const { return file_.size(); }
  std::span<const std::byte> next(int64_t count) override;

 private:
  MappedFile file_;
  int64_t at_ = 0;        // offset of the next row
  int64_t released_ = 0;  // bytes that were released to the system
};

// The content of a file in this format whose elements are these, in f64.
std::string npy_content(std::span<const double> numbers);

}  // namespace trifold
