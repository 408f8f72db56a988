#include "graph/data/stored_array.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "core/printable.h"

namespace trifold::graph {

namespace {

struct NumberRow {
  std::string_view name;
  int64_t size;
};
// In the order of NumberType.
constexpr std::array kNumbers{
    NumberRow{"f64", 8}, NumberRow{"f32", 4}, NumberRow{"bf16", 2}, NumberRow{"f16", 2}, NumberRow{"i64", 8},
    NumberRow{"i32", 4}, NumberRow{"i16", 2}, NumberRow{"i8", 1},   NumberRow{"u64", 8}, NumberRow{"u32", 4},
    NumberRow{"u16", 2}, NumberRow{"u8", 1},  NumberRow{"bool", 1}};
static_assert(kNumbers.size() == static_cast<size_t>(NumberType::Bool) + 1);

// Calls body(T{}) with the C++ type of the elements in the file; a bool is a byte.
template <class Body>
decltype(auto) dispatch_number(NumberType type, Body&& body) {
  switch (type) {
    case NumberType::F64:
      return body(double{});
    case NumberType::F32:
      return body(float{});
    case NumberType::BF16:
      return body(Bfloat16{});
    case NumberType::F16:
      return body(Float16{});
    case NumberType::I64:
      return body(int64_t{});
    case NumberType::I32:
      return body(int32_t{});
    case NumberType::I16:
      return body(int16_t{});
    case NumberType::I8:
      return body(int8_t{});
    case NumberType::U64:
      return body(uint64_t{});
    case NumberType::U32:
      return body(uint32_t{});
    case NumberType::U16:
      return body(uint16_t{});
    case NumberType::U8:
    case NumberType::Bool:
      return body(uint8_t{});
  }
  fail("number type {} is unknown", static_cast<int>(type));
}

template <class From, class To>
constexpr bool can_convert() {
  if constexpr (std::is_same_v<From, To>) return true;
  if constexpr (std::is_integral_v<From>) return std::is_integral_v<To> || std::is_floating_point_v<To>;
  return std::is_floating_point_v<To> && sizeof(From) < sizeof(To);
}

template <class To, class From>
bool represents(From value) {
  if constexpr (std::is_same_v<To, bool>)
    return value == 0 || value == 1;
  else if constexpr (std::is_integral_v<To>)
    return std::in_range<To>(value);
  else if constexpr (std::is_integral_v<From>) {
    constexpr auto kExact = uint64_t{1} << (std::is_same_v<To, double> ? 53 : 24);
    const auto size = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    return size <= kExact;
  } else
    return true;
}

template <class From>
From load(const std::byte* from, int64_t i) {
  From value;
  std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Converts a row; returns the index of the first element that does not fit, or `count`.
template <class From, class To>
int64_t convert_row(const std::byte* from, int64_t count, To* to) {
  bool all = true;
  for (int64_t i = 0; i < count; ++i) {
    const From value = load<From>(from, i);
    all &= represents<To>(value);
    to[i] = static_cast<To>(value);
  }
  int64_t bad = count;
  for (int64_t i = 0; !all && bad == count && i < count; ++i)
    if (!represents<To>(load<From>(from, i))) bad = i;
  return bad;
}

template <class From>
std::string number_text(From value) {
  if constexpr (std::is_integral_v<From>)
    return fmt::format("{}", value);
  else
    return fmt::format("{}", static_cast<double>(value));
}

}  // namespace

std::string_view name_of(NumberType type) { return kNumbers[static_cast<size_t>(type)].name; }
int64_t size_of(NumberType type) { return kNumbers[static_cast<size_t>(type)].size; }

std::string to_text(const StoredArray& array) {
  return fmt::format("'{}' ({})", printable(array.name), printable(array.where));
}

bool converts(NumberType from, ElementType to) {
  return dispatch_number(from, [&]<class From>(From) {
    return dispatch_stored(to, [&]<class To>(To) { return can_convert<From, To>(); });
  });
}

void gather_samples(const StoredArray& from, std::span<const int64_t> positions, Array& to) {
  int64_t each = 1;
  for (size_t d = 1; d < from.dims.size(); ++d) each *= from.dims[d];
  check(to.elements() == each * std::ssize(positions), "{} samples of {} do not fill an array of shape {}",
        positions.size(), to_text(from), dims_text(to.dims));
  const int64_t row_bytes = each * size_of(from.type);
  dispatch_number(from.type, [&]<class From>(From) {
    dispatch_stored(to.type, [&]<class To>(To) {
      if constexpr (can_convert<From, To>()) {
        for (size_t i = 0; i < positions.size(); ++i) {
          const std::byte* row = from.data + positions[i] * row_bytes;
          To* out = to.as<To>() + static_cast<int64_t>(i) * each;
          if constexpr (std::is_same_v<From, To>) {
            if (each > 0) std::memcpy(out, row, static_cast<size_t>(row_bytes));
          } else if (const int64_t bad = convert_row<From>(row, each, out); bad < each) {
            bad_input("{}: element {} of sample {} is {}, which {} cannot represent; the model takes {}",
                      to_text(from), bad, positions[i], number_text(load<From>(row, bad)), name_of(to.type),
                      name_of(to.type));
          }
        }
      } else {
        fail("{} of type {} is read as {}", to_text(from), name_of(from.type), name_of(to.type));
      }
    });
  });
}

}  // namespace trifold::graph
