// Values in columns of Apache Arrow (preprocess/arrow_abi.h), whatever type they have.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "clicks/cells/cell.h"
#include "preprocess/arrow_abi.h"

namespace trifold {

// The owner of one of the structs.
template <class T>
class ArrowOwner {
 public:
  ArrowOwner() = default;
  ~ArrowOwner() { release(); }
  ArrowOwner(ArrowOwner&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  ArrowOwner& operator=(ArrowOwner&& other) noexcept {
    if (this == &other) return *this;
    release();
    value_ = std::exchange(other.value_, T{});
    return *this;
  }
  ArrowOwner(const ArrowOwner&) = delete;
  ArrowOwner& operator=(const ArrowOwner&) = delete;

  // Where a function puts it; what was there is released.
  T* out() {
    release();
    return &value_;
  }
  T& operator*() { return value_; }
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }
  T* operator->() { return &value_; }
  explicit operator bool() const { return value_.release != nullptr; }

 private:
  void release() {
    if (value_.release != nullptr) value_.release(&value_);
    value_ = T{};
  }
  T value_{};
};

// The kind of a type's values. Moment: a date or timestamp. Other: of no use in clicks.
enum class ArrowKind { Nothing, Flag, Whole, Real, Text, Moment, List, Map, Other };

// The kind of a type; for a dictionary, that of its values.
ArrowKind kind_of(const ArrowSchema& type);
// "int64", "list of string", "dictionary of string"; what is of no use by its spelling in the interface.
std::string type_text(const ArrowSchema& type);

// Reads single values of a column, which must outlive it.
class ArrowColumn {
 public:
  ArrowColumn(const ArrowSchema& type, const ArrowArray& values);

  int64_t size() const { return values_->length; }
  ArrowKind kind() const { return kind_; }  // List: of lists
  // Value i, of any kind but List and Other.
  Cell value(int64_t i) const;
  // The elements [first, end) of element() that list i holds, or the entries of map i; none where it is not there.
  std::pair<int64_t, int64_t> list(int64_t i) const;
  // Key and value of an entry of a map.
  std::pair<Cell, Cell> entry(int64_t e) const;
  ArrowColumn element() const { return {*type_->children[0], *values_->children[0]}; }

 private:
  bool is_there(int64_t place) const;
  template <class T>
  T load(int buffer, int64_t place) const {
    T value;
    std::memcpy(&value, static_cast<const char*>(values_->buffers[buffer]) + place * int64_t{sizeof(T)},
                sizeof value);
    return value;
  }
  template <class Offset>
  std::string_view text(int64_t place) const;
  std::string_view view(int64_t place) const;
  int64_t whole(int64_t place) const;
  DecimalNumber decimal(int64_t place) const;
  Moment moment(int64_t place) const;

  const ArrowSchema* type_;
  const ArrowArray* values_;
  ArrowKind kind_;
  char letter_;        // of the type
  int64_t width_ = 0;  // of lists that all have as many, and the bytes of decimals and of texts of fixed size
  int scale_ = 0;      // of decimals: digits after the point
};

}  // namespace trifold
