// Array: a tensor on the host that owns its memory. The values of a graph that do not depend on parameters are computed
// with it (graph/host/evaluate.h).
//
// Elements are contiguous and in row-major order. A bool is one byte, 0 or 1; the code that fills an array ensures that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/float16.h"
#include "graph/graph.h"

namespace trifold::graph {

// Leaves new elements of a vector as they are in memory: every array is filled right after it is made.
template <class T>
struct Unfilled : std::allocator<T> {
  template <class U>
  struct rebind {               // NOLINT(readability-identifier-naming): as std::allocator_traits wants it
    using other = Unfilled<U>;  // NOLINT(readability-identifier-naming)
  };
  template <class U>
  void construct(U* at) noexcept {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
};

struct Array {
  ElementType type = ElementType::F32;
  std::vector<int64_t> dims;
  std::vector<std::byte, Unfilled<std::byte>> bytes;  // elements() * size_of(type)

  int64_t elements() const;
  // The elements in their C++ type, which the caller knows from `type`.
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
};

// An array with unspecified elements. BadInput if it has more than 2^36 bytes or a negative extent.
Array make_array(ElementType type, std::vector<int64_t> dims);
// All bytes are zero.
Array zero_array(ElementType type, std::vector<int64_t> dims);
// A number as an array without dims.
Array number_array(int64_t value);
Array number_array(double value);
Array number_array(bool value);

// The elements in another type, as PyTorch converts them: rounded to nearest between floats, cut towards zero from
// floats to integers, modulo 2^bits to smaller integers, and true if not zero.
Array converted(const Array& from, ElementType type);
Array converted(Array&& from, ElementType type);

// "[2, 3]"
std::string dims_text(std::span<const int64_t> dims);

// The type in which elements of `type` are computed: f64, f32, i64 or bool.
ElementType computed_type(ElementType type);

// Calls body(T{}) with the C++ type of the elements.
template <class Body>
decltype(auto) dispatch_stored(ElementType type, Body&& body) {
  switch (type) {
    case ElementType::F64:
      return body(double{});
    case ElementType::F32:
      return body(float{});
    case ElementType::BF16:
      return body(Bfloat16{});
    case ElementType::F16:
      return body(Float16{});
    case ElementType::I64:
      return body(int64_t{});
    case ElementType::I32:
      return body(int32_t{});
    case ElementType::I16:
      return body(int16_t{});
    case ElementType::I8:
      return body(int8_t{});
    case ElementType::U16:
      return body(uint16_t{});
    case ElementType::U8:
      return body(uint8_t{});
    case ElementType::Bool:
      return body(bool{});
  }
  fail("element type {} is unknown", static_cast<int>(type));
}

// Calls body(T{}) with the C++ type of elements that are computed (computed_type).
template <class Body>
decltype(auto) dispatch_computed(ElementType type, Body&& body) {
  switch (type) {
    case ElementType::F64:
      return body(double{});
    case ElementType::F32:
      return body(float{});
    case ElementType::I64:
      return body(int64_t{});
    case ElementType::Bool:
      return body(bool{});
    default:
      fail("elements of type {} are not computed directly", name_of(type));
  }
}

// Calls body(T{}) with an unsigned integer of the size of an element, for operations that only move elements.
template <class Body>
decltype(auto) dispatch_size(ElementType type, Body&& body) {
  switch (size_of(type)) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}

}  // namespace trifold::graph
