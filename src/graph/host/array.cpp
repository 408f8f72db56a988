#include "graph/host/array.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace trifold::graph {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 36;

// Beyond the range of i64 the result is the smallest integer, as on x86 processors.
int64_t whole_part(double value) {
  constexpr double kLimit = 9223372036854775808.0;
  return value >= -kLimit && value < kLimit ? static_cast<int64_t>(value)
                                            : std::numeric_limits<int64_t>::min();
}

template <class T>
constexpr bool kIsFloat16 = std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>;

template <class To, class From>
To convert_element(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (kIsFloat16<From>)
    return convert_element<To>(static_cast<float>(value));
  else if constexpr (kIsFloat16<To>)
    return To(static_cast<double>(value));
  else if constexpr (std::is_same_v<To, bool>)
    return value != From{};
  else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>)
    return static_cast<To>(whole_part(static_cast<double>(value)));
  else
    return static_cast<To>(value);
}

template <class T>
Array one_number(ElementType type, T value) {
  Array array = make_array(type, {});
  *array.as<T>() = value;
  return array;
}

}  // namespace

int64_t Array::elements() const { return static_cast<int64_t>(bytes.size()) / size_of(type); }

Array make_array(ElementType type, std::vector<int64_t> dims) {
  int64_t count = 1;
  bool empty = false, fits = true;
  for (const int64_t extent : dims) {
    if (extent < 0) bad_input("an array of shape {} has a negative extent", dims_text(dims));
    empty = empty || extent == 0;
    fits = fits && !__builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count);
  }
  if (!fits || (!empty && count > kMostBytes / size_of(type)))
    bad_input("an array of shape {} of {} has more than {} bytes, the most that are computed on the host",
              dims_text(dims), name_of(type), kMostBytes);
  Array array{type, std::move(dims), {}};
  array.bytes.resize(empty ? 0 : static_cast<size_t>(count * size_of(type)));
  return array;
}

Array zero_array(ElementType type, std::vector<int64_t> dims) {
  Array array = make_array(type, std::move(dims));
  std::fill(array.bytes.begin(), array.bytes.end(), std::byte{0});
  return array;
}

Array number_array(int64_t value) { return one_number(ElementType::I64, value); }
Array number_array(double value) { return one_number(ElementType::F64, value); }
Array number_array(bool value) { return one_number(ElementType::Bool, value); }

Array converted(const Array& from, ElementType type) {
  if (from.type == type) return from;
  Array to = make_array(type, from.dims);
  const int64_t count = from.elements();
  dispatch_stored(type, [&]<class To>(To) {
    dispatch_stored(from.type, [&]<class From>(From) {
      const From* in = from.as<From>();
      To* out = to.as<To>();
      for (int64_t i = 0; i < count; ++i) out[i] = convert_element<To>(in[i]);
    });
  });
  return to;
}

Array converted(Array&& from, ElementType type) {
  if (from.type == type) return std::move(from);
  return converted(static_cast<const Array&>(from), type);
}

std::string dims_text(std::span<const int64_t> dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

ElementType computed_type(ElementType type) {
  if (type == ElementType::F64 || type == ElementType::Bool) return type;
  return is_float(type) ? ElementType::F32 : ElementType::I64;
}

}  // namespace trifold::graph
