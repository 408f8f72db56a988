#include "recommend/grown_start.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "clicks/compare_clicks.h"
#include "core/error.h"
#include "embedding/table_part.h"
#include "recommend/click_record.h"

namespace trifold {

namespace {

// The tables that have more rows in the data than in the checkpoint.
std::vector<size_t> grown_tables(const ClickSchema& stored, const ClickSchema& schema) {
  std::vector<size_t> grown;
  for (size_t t = 0; t < std::min(stored.tables.size(), schema.tables.size()); ++t)
    if (can_grow(stored.tables[t], schema.tables[t])) grown.push_back(t);
  return grown;
}

// How to make the data compatible with the model: tables of keys keep their rows, and other tables may grow.
std::string advice(const ClickSchema& stored, const ClickSchema& schema) {
  if (!stored.keyed())
    return "Preprocess the data with --dictionaries-of the folder that it was trained on, and --grow-dictionaries";
  std::vector<int64_t> rows, now;
  for (const ClickTable& table : stored.tables) rows.push_back(table.rows);
  for (const ClickTable& table : schema.tables) now.push_back(table.rows);
  if (schema.keyed() && now.size() == rows.size() && now != rows)
    return fmt::format("Tables of keys keep their rows: give --table-rows {}", fmt::join(rows, "-"));
  return "Preprocess the data with --ids keys, and the columns and --hash-seed of those that it was trained on";
}

// BadInput unless a model of the checkpoint can continue with the clicks.
void check_growth(const CheckpointReader& reader, const std::string& data, const ClickSchema& schema) {
  const std::string name = reader.directory().string();
  const ClickSchema stored = recorded_schema(reader, schema);
  if (stored.tables.empty()) return;  // a different model: reported with its other fields
  ClickSchema grown = stored;
  std::vector<std::string> shrunk;
  for (size_t t = 0; !stored.keyed() && t < std::min(stored.tables.size(), schema.tables.size()); ++t) {
    const ClickTable& table = stored.tables[t];
    if (const int64_t rows = schema.tables[t].rows; rows < table.rows)
      shrunk.push_back(
          fmt::format("table {}: {} rows in {}, {} in {}", table.name, rows, data, table.rows, name));
  }
  for (const size_t t : grown_tables(stored, schema)) grown.tables[t] = schema.tables[t];
  if (!shrunk.empty())
    bad_input(
        "tables may grow, but these are smaller than the checkpoint's:\n  {}\nPreprocess the data with "
        "--dictionaries-of the folder that the checkpoint was trained on",
        fmt::join(shrunk, "\n  "));
  for (ClickTable& table : grown.tables) table.grown_from.clear();
  const std::vector<std::string> differences = click_differences({name, grown}, {data, schema});
  if (!differences.empty())
    bad_input("{} was trained on clicks other than {}:\n  {}\n{}", name, data, fmt::join(differences, "\n  "),
              advice(stored, schema));
}

}  // namespace

nlohmann::json model_to_go_on(const CheckpointReader& reader, LoadPart part, const std::string& data,
                              const ClickSchema& schema) {
  nlohmann::json model = reader.meta().model;
  if (part != LoadPart::State) {
    compare_with_record(reader, data, schema, ClickUse::Train);
    return model;
  }
  check_growth(reader, data, schema);
  const ClickSchema stored = recorded_schema(reader, schema);
  for (const size_t t : grown_tables(stored, schema)) model["tables"][t]["rows"] = schema.tables[t].rows;
  return model;
}

std::vector<std::string> growth_notes(const CheckpointReader& reader, const ClickSchema& schema) {
  const ClickSchema stored = recorded_schema(reader, schema);
  std::vector<std::string> notes;
  for (const size_t t : grown_tables(stored, schema)) {
    const int64_t rows = stored.tables[t].rows;
    notes.push_back(fmt::format("table {}: {} rows of the checkpoint and {} new ones", schema.tables[t].name,
                                rows, schema.tables[t].rows - rows));
  }
  return notes;
}

std::vector<NamedTensor> stored_parts(std::vector<NamedTensor> boxes, const CheckpointReader& reader,
                                      const ClickSchema& schema) {
  const ClickSchema stored = recorded_schema(reader, schema);
  for (const size_t t : grown_tables(stored, schema)) {
    const int64_t known = stored.tables[t].rows;
    const std::string tensors_end = "/" + weight_name({.name = schema.tables[t].name});
    for (NamedTensor& box : boxes) {
      if (!box.spec.name.ends_with(tensors_end)) continue;
      Rect& rect = box.spec.local;
      box.spec.global[0] = known;
      rect.extent[0] = std::clamp<int64_t>(known - rect.offset[0], 0, rect.extent[0]);
      box.data = box.data.flat(0, rect.elements());
    }
  }
  std::erase_if(boxes, [](const NamedTensor& box) { return box.spec.local.elements() == 0; });
  return boxes;
}

}  // namespace trifold
