#include "preprocess/preprocess.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "clicks/cells/moment.h"
#include "core/bytes_text.h"
#include "core/printable.h"
#include "launch/click_lines.h"
#include "launch/commands.h"
#include "launch/progress.h"
#include "preprocess/split.h"

namespace trifold::launch {

namespace {

PreprocessOptions options_from(const PreprocessConfig& config) {
  PreprocessOptions options;
  options.inputs = config.input;
  options.output = config.output;
  options.format = config.data_format;
  if (config.label)
    options.columns = NamedColumns{config.label->rules,
                                   config.dense.value_or(ColumnNames{}).names,
                                   config.sparse.value_or(ColumnNames{}).names,
                                   config.bag.value_or(BagColumns{}).columns,
                                   config.bag_weights.value_or(ColumnNames{}).names,
                                   config.separator.character,
                                   config.missing_values,
                                   config.hash_seed,
                                   true,
                                   config.columns.value_or(ColumnNames{}).names,
                                   config.quoting};
  if (config.label && config.weight) options.columns->weight = *config.weight;
  if (config.keep) options.keep = config.keep->names;
  options.unlabelled = config.unlabelled;
  options.transform = config.dense_transform;
  options.max_ind_range = config.max_ind_range;
  options.hash_ids = config.ids == IdSource::Hash;
  options.keep_keys = config.ids == IdSource::Keys;
  options.frequency_threshold = config.frequency_threshold;
  options.dictionaries_of = config.dictionaries_of;
  options.grow_dictionaries = config.grow_dictionaries;
  options.max_bag = config.max_bag;
  if (config.share_table) options.shared = config.share_table->pairs;
  options.drop_negatives = config.drop_negatives;
  options.split_by = config.split_by.value_or("");
  options.seed = config.seed;
  options.max_malformed = config.max_malformed;
  options.memory = static_cast<size_t>(config.dictionary_memory * (1 << 30));
  return options;
}

void print_tables(const ClickFolder& folder) {
  fmt::print(stderr, "{:<12} {:>12}  {:>14}  {}\n", "table", "rows", "bytes of an id",
             "most ids of a sample");
  for (const ClickFolder::Table& table : folder.tables)
    fmt::print(stderr, "{:<12} {:>12}  {:>14}  {}\n", printable(table.name),
               table.keys ? "of keys" : fmt::format("{}", table.rows), table.id_bytes, table.most_ids);
}

void print_growth(const PreprocessResult& result) {
  for (size_t t = 0; t < result.known_rows.size(); ++t) {
    const ClickFolder::Table& table = result.folder.tables[t];
    fmt::print(stderr, "table {}: {} ids known, {} new\n", printable(table.name), result.known_rows[t],
               table.rows - result.known_rows[t]);
  }
}

// Prints the values without an own id, or with a new one.
void print_unknown(const PreprocessResult& result, const PreprocessConfig& config) {
  for (const auto& of_table : result.unknown) {
    const std::string& name = result.folder.tables[static_cast<size_t>(of_table.first)].name;
    const UnknownIds& counts = of_table.second;
    const auto print = [&](int64_t count, const std::string& what) {
      fmt::print(stderr, "{} {}\n", unknown_share(name, counts.values, count), what);
    };
    const int64_t unknown = counts.unknown + counts.added;
    if (!config.dictionaries_of) {
      if (unknown > 0)
        print(unknown, fmt::format("occur less than --frequency-threshold {} times and have id 1",
                                   config.frequency_threshold));
      continue;
    }
    print(unknown, fmt::format("are not in the dictionary of {}{}", printable(*config.dictionaries_of),
                               config.grow_dictionaries ? fmt::format("; {} have id 1", counts.unknown)
                                                        : " and have id 1"));
    if (const std::string warning = unknown_warning(name, counts.values, unknown); !warning.empty())
      fmt::print(stderr, "{}\n", warning);
  }
}

// Names tables with bags that were cut or are unusually long: the longest bag decides the memory of a training step,
// even if most are short.
void print_bags(const PreprocessResult& result) {
  constexpr int64_t kLong = 100;  // ids; shorter bags need little memory
  constexpr double kOutlier = 20;
  for (const PreprocessResult::Bags& bags : result.bags) {
    const ClickFolder::Table& table = result.folder.tables[static_cast<size_t>(bags.table)];
    const std::string name = printable(table.name);
    const double mean = static_cast<double>(bags.ids) / static_cast<double>(result.folder.samples);
    if (table.cut_bags > 0)
      fmt::print(stderr, "table {}: {} of {} bags were longer than --max-bag {}; their first ids were kept\n",
                 name, table.cut_bags, result.folder.samples, *result.folder.max_bag);
    if (table.most_ids >= kLong && static_cast<double>(table.most_ids) > kOutlier * mean)
      fmt::print(
          stderr,
          "table {}: sample {} has {} ids, a bag {:.1f} on average; memory of a training step is for bags as "
          "long as the longest: --max-bag N keeps the first N ids of each\n",
          name, bags.longest_sample, table.most_ids, mean);
  }
}

// Prints the contents of one data set.
void print_result(const PreprocessConfig& config, const PreprocessResult& result) {
  if (const std::string text = result.report.files_text(); !text.empty()) fmt::print(stderr, "{}\n", text);
  if (result.report.malformed > 0) fmt::print(stderr, "{}\n", printable_message(result.report.text()));
  const ClickFolder& folder = result.folder;
  if (const std::string text = result.report.unlabelled_text(config.unlabelled); !text.empty())
    fmt::print(stderr, "{}\n", text);
  if (folder.unlabelled > 0)
    fmt::print(stderr, "{} of {} samples have no label: score predicts them, other commands leave them out\n",
               folder.unlabelled, folder.samples);
  print_tables(folder);
  print_growth(result);
  print_unknown(result, config);
  print_bags(result);
  if (result.partitioned_tables > 0)
    fmt::print(stderr, "{} dictionaries did not fit into {} GiB and were built in several passes\n",
               result.partitioned_tables, config.dictionary_memory);
  for (const ClickFolder::Label& label : folder.labels)
    fmt::print(stderr, "label {}: {} of {} samples are positive, {} have no such label\n",
               printable(label.name), label.clicks, folder.samples, label.missing);
  const double seconds = result.parse_seconds + result.number_seconds;
  fmt::print(stderr, "{} samples, {:.2f} % clicked; parsed in {:.1f} s, numbered in {:.1f} s: {:.0f} MB/s\n",
             folder.samples, 100.0 * static_cast<double>(folder.clicks) / static_cast<double>(folder.samples),
             result.parse_seconds, result.number_seconds,
             static_cast<double>(result.input_bytes) / 1e6 / seconds);
}

// "train: rows before 2024-03-31 18:05:30"
void print_part(const PreprocessConfig& config, const SplitPart& part) {
  const auto shown = [](double time) {
    constexpr double kLikelySeconds = 1e8;  // since 1970; smaller numbers count something else
    const std::optional<Moment> moment = moment_of_number(time);
    return moment && time >= kLikelySeconds ? text_of(*moment) : fmt::format("{}", time);
  };
  std::string rows = "rows drawn at random";
  if (config.split_by && std::isinf(part.rows.first))
    rows = fmt::format("rows before {}", shown(part.rows.end));
  else if (config.split_by && std::isinf(part.rows.end))
    rows = fmt::format("rows from {}", shown(part.rows.first));
  else if (config.split_by)
    rows = fmt::format("rows from {} and before {}", shown(part.rows.first), shown(part.rows.end));
  fmt::print(stderr, "{}: {}\n", part.name, rows);
}

}  // namespace

int run(const PreprocessConfig& config) {
  ThreadPool pool(config.threads.value_or(available_cores()));
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto progress = [&](const PreprocessProgress& done) {
    if (terminal)
      fmt::print(stderr, "\r\033[K{} of {} read, {} samples, {} of {} tables done",
                 bytes_text(static_cast<size_t>(done.bytes_done)),
                 bytes_text(static_cast<size_t>(done.input_bytes)), done.samples, done.tables_done,
                 done.tables);
  };
  const PreprocessOptions options = options_from(config);
  std::vector<SplitPart> parts{{"", {}}};
  if (config.split) {
    parts = split_parts(options, config.split->weights, pool);
    preprocess_parts(options, parts, pool, progress);
  } else {
    parts[0].result = preprocess(options, pool, progress);
  }
  if (terminal) fmt::print(stderr, "\r\033[K");
  for (const SplitPart& part : parts) {
    if (config.split) print_part(config, part);
    print_result(config, part.result);
    fmt::print("{}{}{}\n", config.output, config.split ? "/" : "", part.name);
  }
  return kDone;
}

}  // namespace trifold::launch
