#include "clicks/click_transform.h"

#include <vector>

#include "core/error.h"

namespace trifold {

DenseTransform parse_dense_transform(std::string_view name) {
  if (const auto transform = value_named<DenseTransform>(name)) return *transform;
  std::vector<std::string_view> names;
  for (const Named<DenseTransform>& entry : Names<DenseTransform>::kAll) names.push_back(entry.name);
  bad_input("there is no dense transform '{}'; there are {}", name, fmt::join(names, ", "));
}

std::string mapping_of(IdPolicy policy) {
  return policy == IdPolicy::Error ? std::string() : std::string(name_of(policy));
}

void report_id(const IdPlace& place, const ClickTable& table, uint64_t id) {
  report_id(place, table, fmt::format("{}", id));
}

void report_id(const IdPlace& place, const ClickTable& table, std::string_view id) {
  bad_input(
      "{}: {} {}, column {}: id {} is outside the table, which has {} rows; give the table more rows, or "
      "choose the id policy modulo or clip",
      place.file, place.unit, place.number, table.name, id, table.rows);
}

}  // namespace trifold
