#include "clicks/click_format.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "clicks/compare_clicks.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "core/stored_name.h"
#include "files/file.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr const char* kFormat = "trifold clicks";
constexpr int64_t kVersion = 1;
constexpr int64_t kWideVersion = 2;  // with dictionaries of 8 bytes
constexpr int64_t kBagVersion = 3;   // with bags
constexpr int64_t kWeightVersion = 4;
constexpr int64_t kLabelVersion = 5;  // with several labels
constexpr int64_t kKeyVersion = 6;    // with keys
constexpr int64_t kShareVersion = 7;  // with tables that columns share
constexpr int64_t kSampleVersion =
    8;  // with weights of samples, samples without a label, or columns that are kept

// Reads members of one JSON object with messages that name file and key.
class Reader {
 public:
  Reader(const json& object, const std::string& path) : object_(object), path_(path) {
    if (!object.is_object()) bad_input("{} was not written by `trifold preprocess`", path);
  }

  const json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) bad_input("{}: the key \"{}\" is missing", path_, key);
    return *found;
  }
  const json& list(const char* key) const {
    if (!at(key).is_array()) bad_input("{}: \"{}\" is not a list", path_, key);
    return at(key);
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) bad_input("{}: \"{}\" is not a string", path_, key);
    return at(key).get<std::string>();
  }
  bool flag(const char* key) const {
    if (!at(key).is_boolean()) bad_input("{}: \"{}\" is not true or false", path_, key);
    return at(key).get<bool>();
  }
  int64_t number(const char* key, int64_t low, int64_t high) const {
    const json& value = at(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
      bad_input("{}: \"{}\" is {}, not a whole number from {} to {}", path_, key, printable_json(value), low,
                high);
    return value.get<int64_t>();
  }
  double real(const char* key) const {
    if (!at(key).is_number()) bad_input("{}: \"{}\" is not a number", path_, key);
    return at(key).get<double>();
  }

 private:
  const json& object_;
  const std::string& path_;
};

constexpr int64_t kMany = std::numeric_limits<int64_t>::max();

ClickFolder::Table read_table(const json& object, const std::string& path) {
  const Reader reader(object, path);
  ClickFolder::Table table;
  table.name = reader.text("name");
  try {
    check_storable_part("table", table.name);
  } catch (Error& error) {
    error.add_context(path);
    throw;
  }
  table.keys = object.contains("keys") && reader.flag("keys");
  table.rows = table.keys ? 0 : reader.number("rows", 1, ClickTable::kMaxRows);
  table.id_bytes = static_cast<int>(reader.number("id_bytes", table.keys ? 4 : 1, table.keys ? 8 : 4));
  if (table.id_bytes == 3) bad_input("{}: \"id_bytes\" is 3, not 1, 2 or 4", path);
  if (table.keys && table.id_bytes != 4 && table.id_bytes != 8)
    bad_input("{}: \"id_bytes\" is {}, not 4 or 8", path, table.id_bytes);
  if (object.contains("most_ids")) {
    table.bag = true;
    table.weighted = object.contains("weighted") && reader.flag("weighted");
    table.most_ids = reader.number("most_ids", 1, ClickFolder::kMostBagIds);
  }
  table.dictionary = reader.flag("dictionary");
  if (object.contains("unknown_values")) table.unknown_values = reader.number("unknown_values", 0, kMany);
  if (object.contains("shares")) table.shares = reader.text("shares");
  if (table.keys && table.dictionary)
    bad_input("{}: table {} has both \"keys\" and \"dictionary\"", path, table.name);
  if (object.contains("dictionary_bytes")) {
    table.dictionary_bytes = static_cast<int>(reader.number("dictionary_bytes", 4, 8));
    if (table.dictionary_bytes != 4 && table.dictionary_bytes != 8)
      bad_input("{}: \"dictionary_bytes\" is {}, not 4 or 8", path, table.dictionary_bytes);
  }
  if (object.contains("dictionary_crc32"))
    table.dictionary_crc =
        static_cast<uint32_t>(reader.number("dictionary_crc32", 0, std::numeric_limits<uint32_t>::max()));
  if (object.contains("grown_from"))
    for (const json& older : reader.list("grown_from")) {
      const Reader one(older, path);
      table.grown_from.push_back({one.number("rows", 1, table.rows), one.text("mapping")});
    }
  return table;
}

void check_shares(const ClickFolder& clicks, const std::string& path) {
  for (const ClickFolder::Table& table : clicks.tables) {
    if (table.shares.empty()) continue;
    const auto owner =
        std::find_if(clicks.tables.begin(), clicks.tables.end(),
                     [&](const ClickFolder::Table& other) { return other.name == table.shares; });
    if (owner == clicks.tables.end() || !owner->shares.empty() || owner->rows != table.rows || owner->keys ||
        table.keys)
      bad_input(
          "{}: table {} \"shares\" {}, which must be a table with rows of "
          "its own, as many as this one, and without keys",
          path, table.name, table.shares);
  }
}

ClickFolder::Label read_label(const json& object, const std::string& path, const ClickFolder& clicks) {
  const Reader reader(object, path);
  return {reader.text("name"), reader.number("clicks", 0, clicks.samples),
          reader.number("missing", 0, clicks.samples)};
}

IdBase base_of(int64_t number, const std::string& path) {
  for (const IdBase base : {IdBase::Text, IdBase::Decimal, IdBase::Hexadecimal})
    if (number == static_cast<int64_t>(base)) return base;
  bad_input("{}: \"id_base\" is {}, not 0, 10 or 16", path, number);
}

}  // namespace

std::string ClickFolder::kept_file(const std::string& folder, const std::string& column) {
  return fmt::format("{}/{}.kept", folder, table_name_of(column));
}

std::string ClickFolder::kept_ends_file(const std::string& folder, const std::string& column) {
  return kept_file(folder, column) + "_ends";
}

std::string ClickFolder::ids_file(const std::string& folder, int table) const {
  return fmt::format("{}/{}.ids", folder, tables[static_cast<size_t>(table)].name);
}

std::string ClickFolder::ends_file(const std::string& folder, int table) const {
  return fmt::format("{}/{}.ends", folder, tables[static_cast<size_t>(table)].name);
}

std::string ClickFolder::weights_file(const std::string& folder, int table) const {
  return fmt::format("{}/{}.weights", folder, tables[static_cast<size_t>(table)].name);
}

std::string ClickFolder::unknown_file(const std::string& folder, int table) const {
  return fmt::format("{}/{}.unknown", folder, tables[static_cast<size_t>(table)].name);
}

std::string ClickFolder::dictionary_file(const std::string& folder, int table) const {
  const Table& of = tables[static_cast<size_t>(table)];
  return fmt::format("{}/{}.dict", folder, of.shares.empty() ? of.name : of.shares);
}

uint32_t ClickFolder::dictionary_checksum(const std::string& folder, int table) const {
  return crc_of_file(File(dictionary_file(folder, table), File::Mode::Read));
}

std::string ClickFolder::mapping(const std::string& folder, int table) const {
  const Table& t = tables[static_cast<size_t>(table)];
  if (t.keys)
    return std::string(ClickTable::kKeys) +
           (base == IdBase::Text ? fmt::format("texts with seed {}", hash_seed) : "numbers");
  if (!t.dictionary)
    return base == IdBase::Text ? fmt::format("hashes of texts with seed {}", hash_seed)
                                : mapping_of(IdPolicy::Modulo);
  std::error_code ignored;
  if (!t.dictionary_crc && !std::filesystem::exists(dictionary_file(folder, table), ignored))
    return std::string(kUnknownMapping);
  const uint32_t crc = t.dictionary_crc ? *t.dictionary_crc : dictionary_checksum(folder, table);
  return fmt::format("{}{:08x}{}", ClickTable::kDictionary, crc,
                     max_ind_range > 0 ? fmt::format(" of values modulo {}", max_ind_range) : "");
}

void write_click_folder(const ClickFolder& clicks, const std::string& folder) {
  json tables = json::array();
  int64_t version = kVersion;
  for (const ClickFolder::Table& table : clicks.tables) {
    tables.push_back({{"name", table.name},
                      {"rows", table.rows},
                      {"id_bytes", table.id_bytes},
                      {"dictionary", table.dictionary}});
    if (table.keys) {
      tables.back()["keys"] = true;
      tables.back().erase("rows");
    }
    if (table.dictionary_crc) tables.back()["dictionary_crc32"] = *table.dictionary_crc;
    for (const ClickTable::Older& older : table.grown_from)
      tables.back()["grown_from"].push_back({{"rows", older.rows}, {"mapping", older.mapping}});
    if (!table.shares.empty()) tables.back()["shares"] = table.shares;
    if (table.unknown_values) tables.back()["unknown_values"] = *table.unknown_values;
    if (table.dictionary_bytes == 8) {
      tables.back()["dictionary_bytes"] = 8;
      version = std::max(version, kWideVersion);
    }
    if (!table.bag) continue;
    tables.back()["most_ids"] = table.most_ids;
    if (clicks.max_bag) tables.back()["cut_bags"] = table.cut_bags;
    version = std::max(version, table.weighted ? kWeightVersion : kBagVersion);
    if (table.weighted) tables.back()["weighted"] = true;
  }
  const bool keys = std::any_of(clicks.tables.begin(), clicks.tables.end(),
                                [](const ClickFolder::Table& table) { return table.keys; });
  json labels = json::array();
  for (const ClickFolder::Label& label : clicks.labels)
    labels.push_back({{"name", label.name}, {"clicks", label.clicks}, {"missing", label.missing}});
  if (!clicks.labels.empty()) version = kLabelVersion;
  if (keys) version = kKeyVersion;
  if (std::any_of(clicks.tables.begin(), clicks.tables.end(),
                  [](const ClickFolder::Table& table) { return !table.shares.empty(); }))
    version = kShareVersion;
  if (clicks.sample_weights || clicks.unlabelled > 0 || !clicks.kept.empty()) version = kSampleVersion;
  json sources = json::array();
  for (const ClickFolder::Source& source : clicks.sources)
    sources.push_back({{"file", source.file},
                       {"lines", source.lines},
                       {"malformed", source.malformed},
                       {"samples", source.samples}});
  json manifest = {{"format", kFormat},
                   {"version", version},
                   {"samples", clicks.samples},
                   {"clicks", clicks.clicks},
                   {"dense", clicks.dense},
                   {"dense_transform", name_of(clicks.transform)},
                   {"dense_least", clicks.least},
                   {"id_base", static_cast<int>(clicks.base)},
                   {"hash_seed", clicks.hash_seed},
                   {"max_ind_range", clicks.max_ind_range},
                   {"frequency_threshold", clicks.frequency_threshold},
                   {"drop_negatives", clicks.drop_negatives},
                   {"max_malformed", clicks.max_malformed},
                   {"texts_as_written", clicks.texts_as_written},
                   {"tables", tables},
                   {"sources", sources}};
  if (clicks.max_bag) manifest["max_bag"] = *clicks.max_bag;
  if (!clicks.labels.empty()) manifest["labels"] = labels;
  if (!clicks.labeled) manifest["labeled"] = false;
  if (clicks.unlabelled > 0) manifest["unlabelled"] = clicks.unlabelled;
  if (clicks.sample_weights) manifest["sample_weights"] = true;
  if (!clicks.kept.empty()) manifest["kept"] = clicks.kept;
  if (clicks.columns) manifest["columns"] = to_json(*clicks.columns);
  const std::string path = ClickFolder::manifest(folder);
  std::ofstream out(path);
  out << json_text(manifest, 1) << '\n';
  out.close();
  check(out.good(), "{} cannot be written", path);
}

ClickFolder read_click_folder(const std::string& folder) {
  const std::string path = ClickFolder::manifest(folder);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (error) bad_input("{} cannot be read: {}", path, error.message());
    bad_input("{} is not a folder of clicks: it has no {}, which `trifold preprocess` writes", folder, path);
  }
  const json manifest = read_json_file(path);
  const Reader reader(manifest, path);
  if (reader.text("format") != kFormat) bad_input("{} was not written by `trifold preprocess`", path);
  if (const int64_t version = reader.number("version", 1, kMany); version > kSampleVersion)
    bad_input("{} has version {} of the format; this program reads versions {} to {}", path, version,
              kVersion, kSampleVersion);
  ClickFolder clicks;
  clicks.samples = reader.number("samples", 1, kMany);
  clicks.clicks = reader.number("clicks", 0, clicks.samples);
  if (manifest.contains("labels"))
    for (const json& object : reader.list("labels"))
      clicks.labels.push_back(read_label(object, path, clicks));
  if (manifest.contains("labeled")) clicks.labeled = reader.flag("labeled");
  if (manifest.contains("unlabelled")) clicks.unlabelled = reader.number("unlabelled", 0, clicks.samples);
  if (manifest.contains("sample_weights")) clicks.sample_weights = reader.flag("sample_weights");
  if (manifest.contains("kept"))
    JsonView(manifest, path).at("kept").each([&](const JsonView& name) {
      clicks.kept.push_back(name.text());
    });
  if (clicks.labels.size() == 1) bad_input("{}: \"labels\" names a single label", path);
  clicks.dense = static_cast<int>(reader.number("dense", 0, 1 << 20));
  clicks.transform = parse_dense_transform(reader.text("dense_transform"));
  clicks.least = reader.real("dense_least");
  if (manifest.contains("id_base")) clicks.base = base_of(reader.number("id_base", 0, 16), path);
  if (manifest.contains("hash_seed"))
    clicks.hash_seed = JsonView(manifest, path).at("hash_seed").whole_number();
  if (manifest.contains("columns")) {
    clicks.columns = named_columns_from_json(manifest.at("columns"), path);
    clicks.columns->hash_seed = clicks.hash_seed;
  }
  clicks.max_ind_range = reader.number("max_ind_range", 0, int64_t{1} << 32);
  if (manifest.contains("max_bag")) clicks.max_bag = reader.number("max_bag", 1, ClickFolder::kMostBagIds);
  clicks.frequency_threshold = reader.number("frequency_threshold", 0, kMany);
  clicks.drop_negatives = reader.real("drop_negatives");
  if (!(clicks.drop_negatives >= 0 && clicks.drop_negatives < 1))
    bad_input("{}: \"drop_negatives\" is {}, not a share from 0 to below 1", path, clicks.drop_negatives);
  if (manifest.contains("max_malformed")) clicks.max_malformed = reader.real("max_malformed");
  clicks.texts_as_written = !manifest.contains("texts_as_written") || reader.flag("texts_as_written");
  for (const json& table : reader.list("tables")) clicks.tables.push_back(read_table(table, path));
  check_shares(clicks, path);
  for (const json& object : reader.list("sources")) {
    const Reader source(object, path);
    clicks.sources.push_back({source.text("file"), source.number("lines", 0, kMany),
                              source.number("malformed", 0, kMany), source.number("samples", 0, kMany)});
  }
  return clicks;
}

void check_dictionaries(const ClickFolder& clicks, const std::string& folder) {
  for (int t = 0; t < static_cast<int>(clicks.tables.size()); ++t) {
    const ClickFolder::Table& table = clicks.tables[static_cast<size_t>(t)];
    if (!table.dictionary) continue;
    const std::string path = clicks.dictionary_file(folder, t);
    const int64_t size = File(path, File::Mode::Read).size();
    const int64_t expected = (table.rows - 2) * table.dictionary_bytes;
    if (size != expected)
      bad_input("{} has {} bytes; the {} rows of table {} need {}: one of the files was changed", path, size,
                table.rows, table.name, expected);
    if (table.dictionary_crc && clicks.dictionary_checksum(folder, t) != *table.dictionary_crc)
      bad_input("{} is not the dictionary that clicks.json describes: its checksum differs", path);
  }
}

namespace {

// The rows that a run gives to a table of keys.
int64_t rows_of_keys(const ClickFolder& clicks, const std::string& folder, size_t table,
                     const std::vector<int64_t>& rows) {
  if (rows.empty())
    bad_input(
        "{}: its ids are keys, which get rows while a model trains: give the rows of each table as --table-rows, "
        "or data without --ids keys to a model that was trained on such",
        folder);
  if (rows.size() != 1 && rows.size() != clicks.tables.size())
    bad_input("{} has {} tables, but --table-rows has {} values", folder, clicks.tables.size(), rows.size());
  const int64_t count = rows[rows.size() == 1 ? 0 : table];
  if (count <= 2 || count > ClickTable::kMaxRows)
    bad_input(
        "{}: --table-rows gives table {} {} rows; it needs 3 or more, for missing values, for values without a "
        "row of their own, and for those with one, and can have {}",
        folder, clicks.tables[table].name, count, ClickTable::kMaxRows);
  return count;
}

}  // namespace

std::unique_ptr<ColumnClicks> open_click_folder(const std::string& folder, const std::vector<int64_t>& rows,
                                                const SampleUse& use) {
  const ClickFolder clicks = read_click_folder(folder);
  ColumnFiles files;
  files.labels = ClickFolder::labels_file(folder);
  files.dense = ClickFolder::dense_file(folder);
  for (const std::string& column : clicks.kept)
    files.kept.push_back(
        {column, ClickFolder::kept_file(folder, column), ClickFolder::kept_ends_file(folder, column)});
  ClickSchema schema;
  schema.sample_weights = clicks.sample_weights && use.weights;
  if (schema.sample_weights) files.sample_weights = ClickFolder::sample_weights_file(folder);
  schema.dense = clicks.dense;
  schema.labeled = clicks.labeled;
  schema.dropped_negatives = clicks.drop_negatives;
  for (const ClickFolder::Label& label : clicks.labels) schema.labels.push_back(label.name);
  for (int t = 0; t < static_cast<int>(clicks.tables.size()); ++t) {
    const ClickFolder::Table& table = clicks.tables[static_cast<size_t>(t)];
    const int64_t table_rows =
        table.keys ? rows_of_keys(clicks, folder, static_cast<size_t>(t), rows) : table.rows;
    schema.tables.push_back({table.name, table_rows, static_cast<int>(table.most_ids),
                             clicks.mapping(folder, t), table.grown_from, table.shares});
    files.ids.push_back(
        {clicks.ids_file(folder, t), table.id_bytes, table.bag ? clicks.ends_file(folder, t) : std::string(),
         table.weighted ? clicks.weights_file(folder, t) : std::string(),
         table.unknown_values.value_or(0) > 0 ? clicks.unknown_file(folder, t) : std::string()});
    schema.weighted = schema.weighted || table.weighted;
  }
  const auto least = static_cast<float>(clicks.least);
  schema.dense_transform = AppliedTransform{clicks.transform, least}.text();
  ClickRules rules;
  if (clicks.unlabelled > 0) rules.need = LabelNeed::Optional;
  rules.missing_negative = use.missing_negative;
  auto source = std::make_unique<ColumnClicks>(files, schema, rules);
  if (source->samples() != clicks.samples)
    bad_input("{} has {} samples, {} says {}: it is damaged", files.labels, source->samples(),
              ClickFolder::manifest(folder), clicks.samples);
  return source;
}

}  // namespace trifold
