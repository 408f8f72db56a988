#include "clicks/click_files.h"

#include <algorithm>
#include <filesystem>

#include "clicks/click_columns.h"
#include "clicks/click_format.h"
#include "clicks/click_input.h"
#include "clicks/click_text_source.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/suffix.h"
#include "files/byte_reader.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

// A single number applies to all tables.
std::vector<int64_t> for_each_table(std::vector<int64_t> numbers, size_t tables, const std::string& path,
                                    std::string_view option) {
  if (numbers.size() == 1) numbers.resize(tables, numbers[0]);
  if (numbers.size() != tables)
    bad_input("{} has {} tables, but {} has {} values", path, tables, option, numbers.size());
  return numbers;
}

ClickSchema record_schema(const std::string& path, const ClickFileOptions& options) {
  if (options.table_rows.empty())
    bad_input("{}: the file does not record the rows of its tables: give --table-rows", path);
  constexpr int64_t kMostIds = 1 << 20;
  ClickSchema schema;
  schema.dense = static_cast<int>(options.dense.value_or(13));
  const size_t tables = options.table_rows.size();
  const std::vector<int64_t> ids =
      for_each_table(options.table_ids.empty() ? std::vector<int64_t>{1} : options.table_ids, tables, path,
                     "--table-max-ids");
  for (size_t t = 0; t < tables; ++t) {
    if (ids[t] < 1 || ids[t] > kMostIds)
      bad_input("{}: {} ids a sample in table C{}; it has 1 to {}", path, ids[t], t + 1, kMostIds);
    schema.tables.push_back({fmt::format("C{}", t + 1), options.table_rows[t], static_cast<int>(ids[t])});
  }
  return schema;
}

// Labels of binary data may be missing only where they are irrelevant.
LabelNeed binary_need(const ClickFileOptions& options) {
  const LabelNeed need = label_need(options.needs_labels, options.unlabelled);
  return need == LabelNeed::Irrelevant ? need : LabelNeed::Required;
}

ClickRules rules_of(const ClickFileOptions& options, bool counts) {
  return {options.dense_transform.value_or(counts ? DenseTransform::Log1p : DenseTransform::None),
          options.id_policy.value_or(IdPolicy::Error), binary_need(options)};
}

OpenClicks open_text(const std::string& path, const std::string& format, const ClickFileOptions& options) {
  if (options.table_rows.empty())
    bad_input(
        "{}: a text file does not record the rows of its tables: give --table-rows, or convert it with "
        "trifold preprocess, whose output records them",
        path);
  auto text = std::make_unique<TextClicks>(
      path, options.table_rows, rules_of(options, true),
      TextOptions{format == "text" ? "auto" : format, options.needs_labels,
                  options.max_malformed.value_or(kMaxMalformed), options.unlabelled, options.keep});
  ClickFileOptions given = options;
  given.table_rows.clear();       // used
  given.dense_transform.reset();  // used
  check_agreement(path, given, text->schema());
  OpenClicks result;
  result.report = text->report();
  result.source = std::move(text);
  return result;
}

std::unique_ptr<ClickSource> open_folder(const std::string& path, const ClickFileOptions& options) {
  if (options.id_policy.value_or(IdPolicy::Error) != IdPolicy::Error)
    bad_input(
        "{}: its ids were already mapped into their tables by preprocessing; --id-policy {} has no effect",
        path, name_of(*options.id_policy));
  return open_click_folder(path, options.table_rows,
                           {options.with_weights, options.unlabelled == Unlabelled::Negative});
}

std::unique_ptr<ClickSource> open_split_binary(const std::string& path, const ClickFileOptions& options) {
  const SplitBinary split = read_feature_spec(path, options.part);
  const IdPolicy policy = options.id_policy.value_or(IdPolicy::Error);
  return std::make_unique<ColumnClicks>(split.files, split.schema,
                                        ClickRules{DenseTransform::None, policy, binary_need(options)});
}

[[noreturn]] void refuse_raw(const std::string& path, std::string_view kind, std::string_view remedy = "") {
  bad_input(
      "{}: {} must be preprocessed: {}run `trifold preprocess` and give the folder that it makes, "
      "or name with --dictionaries-of the preprocessed folder whose encoding to use",
      path, kind, remedy);
}

void refuse_packed(const std::string& path) {
  if (packing_of(path) != Packing::None) refuse_raw(path, "packed text", "unpack it, or ");
}

}  // namespace

const std::vector<std::string>& click_formats() {
  static const std::vector<std::string> kFormats = {
      "clicks", "split-binary", "mlperf-bin", "hugectr-raw", "hugectr-raw-counts", "tsv", "csv", "csv-hex"};
  return kFormats;
}

bool is_text_format(std::string_view format) {
  return format == "text" || format == "tsv" || format == "csv" || format == "csv-hex";
}

std::string find_click_format(const std::string& path) {
  refuse_packed(path);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (fs::exists(ClickFolder::manifest(path), ignored)) return "clicks";
    if (fs::exists(path + "/feature_spec.yaml", ignored)) return "split-binary";
    bad_input("{} is a folder without clicks.json (of `trifold preprocess`) and without feature_spec.yaml",
              path);
  }
  if (!fs::exists(path, ignored)) bad_input("{}: there is no such file or folder", path);
  const std::string name = fs::path(path).filename().string();
  for (const char* ending : {".parquet", ".npz", ".npy"})
    if (has_suffix(name, ending)) refuse_raw(path, std::string(ending) + " files");
  if (is_norm_file(path)) refuse_raw(path, "HugeCTR's Norm files");
  if (has_suffix(name, ".bin")) return "mlperf-bin";
  for (const char* ending : {".txt", ".tsv", ".csv"})
    if (has_suffix(name, ending)) return "text";
  if (name.starts_with("day_")) return "text";
  bad_input(
      "{}: the format cannot be inferred from its name: give --data-format, one of {}; a text with other columns "
      "becomes clicks with trifold preprocess, or is read with --dictionaries-of CLICKS",
      path, fmt::join(click_formats(), ", "));
}

void check_agreement(const std::string& path, const ClickFileOptions& options, const ClickSchema& schema) {
  std::vector<std::string> problems;
  if (options.dense && *options.dense != schema.dense)
    problems.push_back(fmt::format("it has {} dense feature{}, but --dense-features is {}", schema.dense,
                                   schema.dense == 1 ? "" : "s", *options.dense));
  if (options.dense_transform && *options.dense_transform != DenseTransform::None &&
      name_of(*options.dense_transform) != schema.dense_transform && schema.dense > 0)
    problems.push_back(
        fmt::format("its dense transform is {}, so --dense-transform {} cannot be applied to it",
                    schema.dense_transform, name_of(*options.dense_transform)));
  if (!options.table_rows.empty()) {
    const std::vector<int64_t> rows =
        for_each_table(options.table_rows, schema.tables.size(), path, "--table-rows");
    const size_t before = problems.size();
    for (size_t t = 0; t < rows.size(); ++t)
      if (rows[t] != schema.tables[t].rows)
        problems.push_back(fmt::format("table {} has {} rows, but --table-rows is {}", schema.tables[t].name,
                                       schema.tables[t].rows, rows[t]));
    if (problems.size() > before) problems.back() += "; --table-rows data takes those of the data";
  }
  if (std::any_of(options.table_ids.begin(), options.table_ids.end(), [](int64_t n) { return n != 1; }))
    problems.emplace_back("the data say how many ids a sample has in each table: leave out --table-max-ids");
  if (!problems.empty()) bad_input("{}: {}", path, fmt::join(problems, "\n  "));
}

namespace {

OpenClicks open_binary(const std::string& path, const std::string& format, const ClickFileOptions& options) {
  OpenClicks result;
  if (format == "clicks" || format == "split-binary") {
    result.source = format == "clicks" ? open_folder(path, options) : open_split_binary(path, options);
    check_agreement(path, options, result.source->schema());
    return result;
  }
  const bool mlperf = format == "mlperf-bin";
  if (mlperf &&
      std::any_of(options.table_ids.begin(), options.table_ids.end(), [](int64_t n) { return n != 1; }))
    bad_input(
        "{}: a sample of mlperf-bin has one id in each table; --table-max-ids is for the formats hugectr-raw",
        path);
  const RecordLayout layout = mlperf ? kMlperfBin : format == "hugectr-raw" ? kHugeCtrRaw : kHugeCtrRawCounts;
  result.source = std::make_unique<RecordClicks>(path, record_schema(path, options), layout,
                                                 rules_of(options, format != "hugectr-raw"));
  return result;
}

}  // namespace

OpenClicks open_clicks(const std::string& path, const ClickFileOptions& options) {
  refuse_packed(path);
  const std::string format = options.format == "auto" ? find_click_format(path) : options.format;
  if (format != "text" &&
      std::find(click_formats().begin(), click_formats().end(), format) == click_formats().end())
    bad_input("there is no click format '{}'; there are {}", format, fmt::join(click_formats(), ", "));
  if (is_text_format(format)) return open_text(path, format, options);
  OpenClicks result = open_binary(path, format, options);
  const std::vector<std::string> kept = result.source->kept_columns();
  for (const std::string& name : options.keep)
    if (std::find(kept.begin(), kept.end(), name) == kept.end())
      bad_input("{}: --keep names the column '{}', {}", path, printable(name),
                format == "clicks" ? "which `trifold preprocess --keep` has to keep in this folder"
                                   : "but its columns have no names");
  return result;
}

}  // namespace trifold
