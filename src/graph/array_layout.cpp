#include "graph/array_layout.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/error.h"
#include "core/printable.h"

namespace trifold::graph {

namespace {

constexpr int64_t kAlignment = 64;

DType border_type(ElementType type, DType floats) {
  return is_float(type) || type == ElementType::Bool ? floats : DType::I32;
}

// An element that is not in the range of i32, if there is one.
template <class T>
std::optional<int64_t> too_large(const T* elements, int64_t count) {
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
  if constexpr (!std::is_same_v<T, int64_t>) return std::nullopt;
  int64_t least = 0, most = 0;
  for (int64_t i = 0; i < count; ++i) {
    least = std::min(least, static_cast<int64_t>(elements[i]));
    most = std::max(most, static_cast<int64_t>(elements[i]));
  }
  if (least < kLeast) return least;
  return most > kMost ? std::optional(most) : std::nullopt;
}

template <class To, class From>
void write_elements(const From* from, int64_t count, void* to) {
  auto* out = static_cast<To*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<To>(from[i]);
}

}  // namespace

ArrayLayout::ArrayLayout(const Graph& graph, std::span<const ValueId> values, DType floats) {
  check(floats == DType::F32 || floats == DType::F64, "floats of a batch are f32 or f64, not {}",
        name_of(floats));
  for (const ValueId id : values) {
    const Value& value = graph.at(id);
    entries_.push_back({id, value.name, value.dims, border_type(value.type, floats)});
  }
}

std::optional<size_t> ArrayLayout::find(ValueId value) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.value == value; });
  if (at == entries_.end()) return std::nullopt;
  return static_cast<size_t>(at - entries_.begin());
}

std::vector<int64_t> ArrayLayout::dims(size_t i, int64_t batch) const {
  std::vector<int64_t> dims;
  for (const Extent& extent : entries_[i].dims)
    dims.push_back(extent.per_sample ? extent.value * batch : extent.value);
  return dims;
}

int64_t ArrayLayout::offset(size_t i, int64_t batch) const {
  int64_t offset = 0;
  for (size_t e = 0; e < i; ++e) {
    const Entry& entry = entries_[e];
    auto bytes = static_cast<int64_t>(size_of(entry.dtype));
    bool fits = true;
    for (const Extent& extent : entry.dims) {
      fits = fits && !__builtin_mul_overflow(bytes, extent.value, &bytes);
      if (extent.per_sample) fits = fits && !__builtin_mul_overflow(bytes, batch, &bytes);
    }
    fits = fits && !__builtin_add_overflow(offset, bytes, &offset) && offset <= int64_t{1} << 62;
    if (!fits)
      bad_input("value '{}' of shape {} is too large for a batch of {} samples", printable(entry.name),
                to_text(entry.dims), batch);
    offset = (offset + kAlignment - 1) / kAlignment * kAlignment;
  }
  return offset;
}

void ArrayLayout::write(size_t i, const Array& array, int64_t batch, std::span<std::byte> block) const {
  const Entry& entry = entries_[i];
  const int64_t count = array.elements(), begin = offset(i, batch);
  const auto wanted = static_cast<size_t>(count) * size_of(entry.dtype);
  check(begin >= 0 && static_cast<size_t>(begin) + wanted <= block.size(),
        "value '{}' of {} bytes does not fit in a block of {} bytes at {}", printable(entry.name), wanted,
        block.size(), begin);
  void* to = block.data() + begin;
  dispatch_stored(array.type, [&]<class T>(T) {
    const T* from = array.as<T>();
    if constexpr (std::is_integral_v<T>) {
      if (entry.dtype == DType::I32) {
        if (const auto element = too_large(from, count))
          bad_input("value '{}' has the element {}; integers that the model reads must fit 32 bits",
                    printable(entry.name), *element);
        return write_elements<int32_t>(from, count, to);
      }
    }
    if (entry.dtype == DType::F64) return write_elements<double>(from, count, to);
    if (entry.dtype == DType::F32) return write_elements<float>(from, count, to);
    fail("value '{}' of type {} cannot be written as {}", printable(entry.name), name_of(array.type),
         name_of(entry.dtype));
  });
}

}  // namespace trifold::graph
