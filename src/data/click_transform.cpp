#include "data/click_transform.h"

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"

namespace trifold {

namespace {

constexpr std::array<std::pair<DenseTransform, std::string_view>, 4> kTransforms{
    {{DenseTransform::None, "none"},
     {DenseTransform::Log1p, "log1p"},
     {DenseTransform::Log3, "log3"},
     {DenseTransform::LogMin, "logmin"}}};
constexpr std::array<std::pair<IdPolicy, std::string_view>, 3> kPolicies{
    {{IdPolicy::Error, "error"}, {IdPolicy::Modulo, "modulo"}, {IdPolicy::Clip, "clip"}}};

template <class Entries>
std::string_view name_in(const Entries& entries, typename Entries::value_type::first_type value) {
  for (const auto& [entry, name] : entries)
    if (entry == value) return name;
  fail("a value without a name");
}

template <class Entries>
auto parse_in(const Entries& entries, std::string_view text, std::string_view what) {
  std::vector<std::string_view> names;
  for (const auto& [entry, name] : entries) {
    if (name == text) return entry;
    names.push_back(name);
  }
  bad_input("there is no {} called '{}'; there are {}", what, text, fmt::join(names, ", "));
}

}  // namespace

std::string_view name_of(DenseTransform transform) { return name_in(kTransforms, transform); }

DenseTransform parse_dense_transform(std::string_view name) {
  return parse_in(kTransforms, name, "transform of dense numbers");
}

std::string_view name_of(IdPolicy policy) { return name_in(kPolicies, policy); }

std::string mapping_of(IdPolicy policy) {
  return policy == IdPolicy::Error ? std::string() : std::string(name_of(policy));
}

IdPolicy parse_id_policy(std::string_view name) { return parse_in(kPolicies, name, "policy for ids"); }

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
