#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/printable.h"

namespace trifold::graph {

namespace {

struct TypeRow {
  std::string_view name;
  int64_t size;
  bool is_float;
  std::optional<DType> dtype;
};

// In the order of ElementType.
constexpr std::array kTypes{TypeRow{"f64", 8, true, DType::F64},    TypeRow{"f32", 4, true, DType::F32},
                            TypeRow{"bf16", 2, true, DType::BF16},  TypeRow{"f16", 2, true, DType::F16},
                            TypeRow{"i64", 8, false, DType::I64},   TypeRow{"i32", 4, false, DType::I32},
                            TypeRow{"i16", 2, false, std::nullopt}, TypeRow{"i8", 1, false, std::nullopt},
                            TypeRow{"u16", 2, false, DType::U16},   TypeRow{"u8", 1, false, DType::U8},
                            TypeRow{"bool", 1, false, std::nullopt}};
static_assert(kTypes.size() == static_cast<size_t>(ElementType::Bool) + 1);

const TypeRow& row_of(ElementType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

std::string_view name_of(ElementType type) { return row_of(type).name; }
int64_t size_of(ElementType type) { return row_of(type).size; }
bool is_float(ElementType type) { return row_of(type).is_float; }
std::optional<DType> dtype_of(ElementType type) { return row_of(type).dtype; }

std::string to_text(const Extent& extent) {
  if (!extent.per_sample) return fmt::format("{}", extent.value);
  return extent.value == 1 ? "batch" : fmt::format("{}*batch", extent.value);
}

std::string to_text(const std::vector<Extent>& extents) {
  std::string text = "[";
  for (const Extent& extent : extents) text += (text.size() > 1 ? ", " : "") + to_text(extent);
  return text + "]";
}

bool counts_samples(const std::vector<Extent>& dims) {
  return !dims.empty() && dims[0] == Extent{1, true} &&
         std::none_of(dims.begin() + 1, dims.end(), [](const Extent& extent) { return extent.per_sample; });
}

ValueId Graph::add(Value value) {
  values.push_back(std::move(value));
  return {static_cast<int>(values.size()) - 1};
}

int64_t Graph::elements(ValueId id, int64_t batch) const {
  int64_t count = 1;
  for (const Extent& extent : at(id).dims)
    if (__builtin_mul_overflow(count, extent.value, &count) ||
        (extent.per_sample && __builtin_mul_overflow(count, batch, &count)))
      bad_input("value '{}' of shape {} has too many elements for {} samples", printable(at(id).name),
                to_text(at(id).dims), batch);
  return count;
}

std::string to_text(const Node& node) {
  std::string text = fmt::format("node '{}' ({})", printable(node.origin.node), printable(node.name));
  if (!node.origin.module.empty()) text += fmt::format(" of {}", printable(node.origin.module));
  if (!node.origin.line.empty()) text += fmt::format(", {}", printable(node.origin.line));
  return text;
}

}  // namespace trifold::graph
