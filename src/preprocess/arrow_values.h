// Reads single values from columns in Arrow's C interface (preprocess/arrow_abi.h), of any type that clicks may have.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "clicks/cells/cell.h"
#include "preprocess/arrow_abi.h"

namespace trifold {

// Owns an ArrowSchema, ArrowArray or ArrowArrayStream and releases it.
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

  // Out-parameter for a function that makes a struct; releases the old one.
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

// The kind of a type's values. Moment: a date or timestamp. Other: a type that clicks cannot have.
enum class ArrowKind { Nothing, Flag, Whole, Real, Text, Moment, List, Map, Other };

// The kind of a type; for a dictionary, that of its values.
ArrowKind kind_of(const ArrowSchema& type);
// The name of a type for messages: "int64", "list of string", "dictionary of string"; unknown types by their format in
// the interface.
std::string type_text(const ArrowSchema& type);

// A column of values. Refers to type and values, which must outlive it.
class ArrowColumn {
 public:
  ArrowColumn(const ArrowSchema& type, const ArrowArray& values);

  int64_t size() const { return values_->length; }
  ArrowKind kind() const { return kind_; }  // List for a column of lists
  // Value i, of any kind but List and Other.
  Cell value(int64_t i) const;
  // The range [first, end) of elements of element() in list i, or of entries in map i; empty if that is missing.
  std::pair<int64_t, int64_t> list(int64_t i) const;
  // Key and value of entry e, which `list` counts, of a column of maps.
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
  char letter_;        // letter of the format that identifies the type
  int64_t width_ = 0;  // elements of a list of fixed size, or bytes of a decimal or a text of fixed size
  int scale_ = 0;      // digits after the point of a decimal
};

}  // namespace trifold
