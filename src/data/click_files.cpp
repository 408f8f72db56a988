#include "data/click_files.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "data/click_columns.h"
#include "data/click_format.h"
#include "data/click_text_source.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

std::string find_format(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (fs::exists(ClickFolder::manifest(path), ignored)) return "preprocessed";
    if (fs::exists(path + "/feature_spec.yaml", ignored)) return "split-binary";
    bad_input("{}: is a folder without clicks.json (of `trifold preprocess`) and without feature_spec.yaml",
              path);
  }
  if (!fs::exists(path, ignored)) bad_input("{}: does not exist", path);
  const std::string name = fs::path(path).filename().string();
  if (name.ends_with(".bin")) return "mlperf-bin";
  for (const char* ending : {".txt", ".tsv", ".csv"})
    if (name.ends_with(ending)) return "text";
  if (name.starts_with("day_")) return "text";
  bad_input("{}: the name does not tell the format; it is one of {}", path, fmt::join(click_formats(), ", "));
}

void refuse(bool given, const std::string& path, const std::string& format, std::string_view what) {
  if (given) bad_input("{}: {} given, but the format {} knows it by itself", path, what, format);
}

ClickSchema record_schema(const std::string& path, const ClickFileOptions& options) {
  if (options.table_rows.empty())
    bad_input("{}: the rows of each table must be given; the file has none", path);
  ClickSchema schema;
  schema.dense = options.dense;
  for (size_t t = 0; t < options.table_rows.size(); ++t)
    schema.tables.push_back({fmt::format("C{}", t + 1), options.table_rows[t], 1});
  if (options.table_ids.empty()) return schema;
  if (options.table_ids.size() != options.table_rows.size())
    bad_input("{}: ids a sample are given for {} tables, rows for {}", path, options.table_ids.size(),
              options.table_rows.size());
  for (size_t t = 0; t < options.table_ids.size(); ++t) {
    if (options.table_ids[t] < 1 || options.table_ids[t] > 1 << 20)
      bad_input("{}: {} ids a sample in table C{}", path, options.table_ids[t], t + 1);
    schema.tables[t].max_ids = static_cast<int>(options.table_ids[t]);
  }
  return schema;
}

}  // namespace

const std::vector<std::string>& click_formats() {
  static const std::vector<std::string> kFormats = {"preprocessed", "split-binary",       "mlperf-bin",
                                                    "hugectr-raw",  "hugectr-raw-counts", "text"};
  return kFormats;
}

OpenClicks open_clicks(const std::string& path, const ClickFileOptions& options) {
  const std::string format = options.format == "auto" ? find_format(path) : options.format;
  if (std::find(click_formats().begin(), click_formats().end(), format) == click_formats().end())
    bad_input("there is no format of clicks called '{}'; there are {}", format,
              fmt::join(click_formats(), ", "));
  const bool counts = format != "hugectr-raw";
  const ClickRules rules{parse_dense_transform(options.dense_transform.value_or(counts ? "log1p" : "none")),
                         parse_id_policy(options.id_policy.value_or(format == "text" ? "modulo" : "error"))};
  OpenClicks result;
  if (format == "preprocessed" || format == "split-binary") {
    refuse(!options.table_rows.empty(), path, format, "the rows of tables are");
    refuse(options.dense_transform.has_value(), path, format, "a dense transform is");
  }
  refuse(!options.table_ids.empty() && !format.starts_with("hugectr"), path, format, "ids a sample are");
  if (format == "preprocessed") {
    result.source = open_click_folder(path);
  } else if (format == "split-binary") {
    const SplitBinary split = read_feature_spec(path, options.part);
    result.source = std::make_unique<ColumnClicks>(split.files, split.schema,
                                                   ClickRules{DenseTransform::None, rules.policy});
  } else if (format == "text") {
    if (options.table_rows.empty())
      bad_input("{}: the rows of the tables must be given: ids are hashes modulo them", path);
    auto text = std::make_unique<TextClicks>(path, options.table_rows, rules);
    result.report = text->report();
    result.source = std::move(text);
  } else {
    const RecordLayout layout = format == "mlperf-bin" ? kMlperfBin
                                : counts               ? kHugeCtrRawCounts
                                                       : kHugeCtrRaw;
    result.source = std::make_unique<RecordClicks>(path, record_schema(path, options), layout, rules);
  }
  return result;
}

}  // namespace trifold
