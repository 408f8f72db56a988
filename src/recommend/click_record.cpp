#include "recommend/click_record.h"

#include "clicks/compare_clicks.h"

namespace trifold {

namespace {

using nlohmann::json;

// A member that is missing or of another type counts as unknown.
template <class T>
std::optional<T> recorded(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end()) return std::nullopt;
  if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) return std::nullopt;
  } else {
    if (!found->is_number_integer()) return std::nullopt;
  }
  return found->get<T>();
}

json member(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key) : json();
}

}  // namespace

std::vector<std::string> labels_in(const json& model) {
  std::vector<std::string> labels;
  const json stored = member(model, "labels");
  for (const json& label : stored.is_array() ? stored : json::array())
    if (label.is_string()) labels.push_back(label.get<std::string>());
  return labels;
}

json click_record(const ClickSchema& schema) {
  json mappings = json::array();
  for (const ClickTable& table : schema.tables) mappings.push_back(table.mapping);
  json record = {{"dense_transform", schema.dense_transform}, {"mappings", std::move(mappings)}};
  if (schema.weighted) record["weighted"] = true;
  if (schema.dropped_negatives > 0) record["dropped_negatives"] = schema.dropped_negatives;
  for (size_t t = 0; t < schema.tables.size(); ++t)
    for (const ClickTable::Older& older : schema.tables[t].grown_from)
      record["grown_from"].push_back({{"table", t}, {"rows", older.rows}, {"mapping", older.mapping}});
  return record;
}

ClickSchema recorded_schema(const CheckpointReader& reader, const ClickSchema& schema) {
  const json& model = reader.meta().model;
  const json record = member(reader.meta().state, "clicks");
  const json tables = member(model, "tables");
  const json mappings = member(record, "mappings");
  ClickSchema stored;
  if (!tables.is_array()) return stored;
  stored.dense = static_cast<int>(recorded<int64_t>(model, "dense").value_or(schema.dense));
  stored.dense_transform = recorded<std::string>(record, "dense_transform").value_or(schema.dense_transform);
  stored.labels = labels_in(model);
  stored.weighted =
      record.is_object() ? record.value("weighted", json(false)) == json(true) : schema.weighted;
  for (size_t t = 0; t < tables.size(); ++t) {
    ClickTable table = t < schema.tables.size() ? schema.tables[t] : ClickTable{};
    table.name = recorded<std::string>(tables[t], "name").value_or(table.name);
    table.rows = recorded<int64_t>(tables[t], "rows").value_or(table.rows);
    table.shares = recorded<std::string>(tables[t], "shares").value_or("");
    table.mapping = mappings.is_array() && t < mappings.size() && mappings[t].is_string()
                        ? mappings[t].get<std::string>()
                        : std::string(kUnknownMapping);
    table.grown_from.clear();
    stored.tables.push_back(std::move(table));
  }
  if (const json grown = member(record, "grown_from"); grown.is_array())
    for (const json& older : grown) {
      const auto t = recorded<int64_t>(older, "table"), rows = recorded<int64_t>(older, "rows");
      const auto mapping = recorded<std::string>(older, "mapping");
      if (t && rows && mapping && *t >= 0 && *t < stored.table_count())
        stored.tables[static_cast<size_t>(*t)].grown_from.push_back({*rows, *mapping});
    }
  return stored;
}

void compare_with_record(const CheckpointReader& reader, const std::string& data, const ClickSchema& schema,
                         ClickUse use) {
  ClickSchema stored = recorded_schema(reader, schema);
  if (stored.tables.empty()) return;  // a different model: reported with its other fields
  bool all_grow = true;               // all tables that differ can grow
  for (size_t t = 0; t < stored.tables.size(); ++t) {
    if (use == ClickUse::Train) stored.tables[t].grown_from.clear();
    if (t < schema.tables.size())
      all_grow = all_grow && (can_read(stored.tables[t], schema.tables[t]) ||
                              can_grow(stored.tables[t], schema.tables[t]));
  }
  const std::string name = reader.directory().string();
  const std::vector<std::string> differences = click_differences({name, stored}, {data, schema});
  if (differences.empty()) return;
  const bool can_go_on = use == ClickUse::Train && all_grow;
  bad_input("{} was not trained on clicks like those of {}:\n  {}{}", name, data,
            fmt::join(differences, "\n  "),
            can_go_on ? "\nTables have grown: --finetune continues with larger tables" : "");
}

}  // namespace trifold
