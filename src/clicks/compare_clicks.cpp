#include "clicks/compare_clicks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trifold {

namespace {

bool is_number_text(std::string_view mapping) {
  return mapping.empty() || mapping == "modulo" || mapping == "clip";
}

// Ids that are all within their table are the same under every policy.
bool same_mapping(std::string_view a, std::string_view b) {
  if (a == b || a == kUnknownMapping || b == kUnknownMapping) return true;
  return is_number_text(a) && is_number_text(b) && (a.empty() || b.empty());
}

std::string words_of_mapping(std::string_view mapping) {
  if (mapping.empty()) return "the numbers of the file";
  if (is_number_text(mapping)) return fmt::format("the numbers of the file ({})", mapping);
  return std::string(mapping);
}

std::string labels_text(const ClickSchema& schema) {
  return schema.labels.empty() ? "one" : fmt::format("{}", fmt::join(schema.labels, ", "));
}

bool has_table(const ClickSchema& schema, const std::string& name) {
  return std::any_of(schema.tables.begin(), schema.tables.end(),
                     [&](const ClickTable& table) { return table.name == name; });
}

}  // namespace

bool can_read(const ClickTable& model, const ClickTable& data) {
  if (model.rows == data.rows && same_mapping(model.mapping, data.mapping)) return true;
  return std::any_of(model.grown_from.begin(), model.grown_from.end(), [&](const ClickTable::Older& older) {
    return older.rows == data.rows && older.mapping == data.mapping;
  });
}

bool can_grow(const ClickTable& stored, const ClickTable& data) {
  if (data.rows <= stored.rows || stored.keyed()) return false;
  return can_read(data, stored) || (stored.mapping.empty() && is_number_text(data.mapping));
}

std::vector<std::string> click_differences(const NamedSchema& first, const NamedSchema& other) {
  std::vector<std::string> differences;
  const ClickSchema& a = first.schema;
  const ClickSchema& b = other.schema;
  if (a.dense != b.dense)
    differences.push_back(
        fmt::format("dense features: {} in {}, {} in {}", b.dense, other.name, a.dense, first.name));
  else if (a.dense > 0 && a.dense_transform != b.dense_transform)
    differences.push_back(fmt::format("dense transform: {} in {}, {} in {}", b.dense_transform, other.name,
                                      a.dense_transform, first.name));
  if (a.labeled && b.labeled && a.labels != b.labels)
    differences.push_back(
        fmt::format("labels: {} in {}, {} in {}", labels_text(b), other.name, labels_text(a), first.name));
  if (a.weighted != b.weighted)
    differences.push_back(fmt::format("ids have weights in {}, but not in {}",
                                      a.weighted ? first.name : other.name,
                                      a.weighted ? other.name : first.name));
  if (a.tables.size() != b.tables.size()) {
    differences.push_back(
        fmt::format("tables: {} in {}, {} in {}", b.tables.size(), other.name, a.tables.size(), first.name));
    return differences;
  }
  for (int t = 0; t < a.table_count(); ++t) {
    const ClickTable& one = a.table(t);
    const ClickTable& two = b.table(t);
    const auto add = [&](std::string_view what, const auto& there, const auto& here) {
      differences.push_back(fmt::format("table {}: {}: {} in {}, {} in {}", one.name, what, there, other.name,
                                        here, first.name));
    };
    if (one.name != two.name && has_table(b, one.name)) add("table in its place", two.name, one.name);
    const auto rows_of = [](const ClickTable& table) {
      return table.shares.empty() ? table.name : table.shares;
    };
    if (one.shares.empty() != two.shares.empty()) add("rows are those of", rows_of(two), rows_of(one));
    if (can_read(one, two)) continue;
    if (one.rows != two.rows) add("rows", two.rows, one.rows);
    if (!same_mapping(one.mapping, two.mapping))
      add("ids", words_of_mapping(two.mapping), words_of_mapping(one.mapping));
  }
  return differences;
}

}  // namespace trifold
