#include "clicks/click_transform.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/printable.h"

namespace trifold {

DenseTransform parse_dense_transform(std::string_view name) {
  if (const auto transform = value_named<DenseTransform>(name)) return *transform;
  std::vector<std::string_view> names;
  for (const Named<DenseTransform>& entry : Names<DenseTransform>::kAll) names.push_back(entry.name);
  bad_input("there is no dense transform '{}'; there are {}", name, fmt::join(names, ", "));
}

namespace {

constexpr std::string_view kMinimum = " with the minimum ";

}  // namespace

AppliedTransform AppliedTransform::parse(std::string_view text) {
  const size_t end = text.find(kMinimum);
  AppliedTransform applied{parse_dense_transform(text.substr(0, end))};
  const bool has_least = applied.transform == DenseTransform::LogMin;
  if (has_least != (end != std::string_view::npos))
    bad_input("the dense transform '{}' {} a minimum", printable(text), has_least ? "lacks" : "cannot have");
  if (!has_least) return applied;
  const std::string_view number = text.substr(end + kMinimum.size());
  double least = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), least);
  applied.least = static_cast<float>(least);
  if (error != std::errc() || stop != number.data() + number.size() || !std::isfinite(applied.least))
    bad_input("the minimum of the dense transform '{}' is not a number", printable(text));
  return applied;
}

std::string AppliedTransform::text() const {
  const std::string name(name_of(transform));
  return transform == DenseTransform::LogMin ? fmt::format("{}{}{}", name, kMinimum, double{least}) : name;
}

std::string mapping_of(IdPolicy policy) {
  return policy == IdPolicy::Error ? std::string() : std::string(name_of(policy));
}

void report_id(const IdLocation& place, const ClickTable& table, uint64_t id) {
  report_id(place, table, fmt::format("{}", id));
}

void report_id(const IdLocation& place, const ClickTable& table, std::string_view id) {
  bad_input(
      "{}: {} {}, column {}: id {} is outside the table, which has {} rows; give the table more rows, or "
      "choose the id policy modulo or clip",
      place.file, place.unit, place.number, table.name, id, table.rows);
}

}  // namespace trifold
