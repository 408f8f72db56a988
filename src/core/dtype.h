// DType: the element types a tensor may have, and dispatches from the run-time type to the C++ type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"
#include "core/float16.h"

namespace trifold {

enum class DType : uint8_t { F64, F32, I64, I32, U16, U8, BF16, F16 };

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
    case DType::I64:
      return 8;
    case DType::F32:
    case DType::I32:
      return 4;
    case DType::U16:
    case DType::BF16:
    case DType::F16:
      return 2;
    case DType::U8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return "f64";
    case DType::F32:
      return "f32";
    case DType::I64:
      return "i64";
    case DType::I32:
      return "i32";
    case DType::U16:
      return "u16";
    case DType::U8:
      return "u8";
    case DType::BF16:
      return "bf16";
    case DType::F16:
      return "f16";
  }
  return "?";
}

// The dtype of sums and of exact values (row statistics, gradients of parameters, master weights, optimizer state) for
// weights and activations in `dtype`: f32 for the 16-bit types, otherwise `dtype`.
constexpr DType accumulate_type(DType dtype) {
  return dtype == DType::BF16 || dtype == DType::F16 ? DType::F32 : dtype;
}

template <class T>
struct TypeOf;
template <>
struct TypeOf<double> {
  static constexpr DType kValue = DType::F64;
};
template <>
struct TypeOf<float> {
  static constexpr DType kValue = DType::F32;
};
template <>
struct TypeOf<int64_t> {
  static constexpr DType kValue = DType::I64;
};
template <>
struct TypeOf<int32_t> {
  static constexpr DType kValue = DType::I32;
};
template <>
struct TypeOf<uint16_t> {
  static constexpr DType kValue = DType::U16;
};
template <>
struct TypeOf<uint8_t> {
  static constexpr DType kValue = DType::U8;
};

template <>
struct TypeOf<Bfloat16> {
  static constexpr DType kValue = DType::BF16;
};
template <>
struct TypeOf<Float16> {
  static constexpr DType kValue = DType::F16;
};

// Calls `body(T{})` with the floating-point C++ type of `dtype`; throws an Error for any other type.
template <class Body>
decltype(auto) dispatch_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F64:
      return body(double{});
    case DType::F32:
      return body(float{});
    case DType::BF16:
      return body(Bfloat16{});
    case DType::F16:
      return body(Float16{});
    default:
      fail("a floating-point tensor is needed here, not {}", name_of(dtype));
  }
}

// dispatch_float for values that are never stored in 16 bits (accumulate_type): only f64 and f32.
template <class Body>
decltype(auto) dispatch_wide_float(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::F64:
      return body(double{});
    case DType::F32:
      return body(float{});
    default:
      fail("an f32 or f64 tensor is needed here, not {}", name_of(dtype));
  }
}

}  // namespace trifold
