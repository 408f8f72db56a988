#include "preprocess/preprocess.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "clicks/click_input.h"
#include "clicks/click_layout.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/random.h"
#include "files/mapped_file.h"
#include "preprocess/click_reader.h"
#include "preprocess/ids/given_encoding.h"
#include "preprocess/ids/number_tables.h"
#include "preprocess/new_output.h"
#include "preprocess/parse_clicks.h"
#include "preprocess/text_inputs.h"

namespace trifold {

namespace {

constexpr int64_t kJudgedLines =
    1'000'000;  // after these, an input with too many malformed lines is rejected

constexpr size_t kLongestTableName = 200;  // in bytes; names of files have endings and at most 255

class Job {
 public:
  Job(const PreprocessOptions& options, ThreadPool& pool,
      FunctionRef<void(const PreprocessProgress&)> progress)
      : options_(options), pool_(pool), progress_(progress) {
    check_options();
    if (options.dictionaries_of) {
      given_ = read_click_folder(*options.dictionaries_of);
      check_dictionaries(*given_, *options.dictionaries_of);
      if (!options_.columns && options_.format == "auto") options_.columns = given_->columns;
      if (options_.as_there) take_options(*given_, options_);
    }
    max_malformed_ = options_.max_malformed.value_or(given_ ? given_->max_malformed : kMaxMalformed);
    if (options_.columns && !options_.with_weights) options_.columns->weight.clear();
    // Each is opened for its layout, closed, and reopened later: there may be thousands.
    const std::vector<std::string> inputs =
        without_empty_texts(click_inputs(options.inputs, &result_.report.files_left_out));
    if (options_.columns) {
      NamedColumns& columns = *options_.columns;
      columns.needs_labels = options_.needs_labels;
      columns.as_written = given_ && given_->texts_as_written;
      if (columns.quoting == Quoting::Auto) columns.quoting = quoting_of_inputs(inputs, columns.separator);
    }
    options_.norm_bags = decide_norm_bags(inputs);
    for (const std::string& path : inputs) add_layout(path);
    describe(result_.folder);
    if (options.grow_dictionaries)
      for (const ClickFolder::Table& table : given_->tables) result_.known_rows.push_back(table.rows);
    if (options.max_bag && layout_.bags == 0)
      bad_input("--max-bag {}: {} has no column of bags: leave it out, or name one with --bag",
                *options.max_bag, paths_[0]);
    for (int t = layout_.tables - layout_.bags; t < layout_.tables; ++t) result_.bags.push_back({t});
  }

  PreprocessResult run() {
    const std::unique_ptr<ScratchFolder> scratch = scratch_beside(options_.output);
    const std::string unfinished = scratch->file("clicks").string();
    std::filesystem::create_directory(unfinished);
    auto start = Clock::now();
    ClickColumnWriter writer(unfinished, layout_, key_bytes(), result_.folder);
    for (size_t i = 0; i < paths_.size(); ++i) parse(i, writer);
    ClickFolder& folder = result_.folder;
    folder.samples = writer.samples();
    if (folder.samples == 0) refuse_no_samples();
    check_malformed(result_.report, max_malformed_);
    if (options_.transform == DenseTransform::LogMin) {
      folder.least = given_ ? given_->least : std::isinf(least_) ? 0 : least_;
      shift_dense(writer.dense());
    }
    result_.parse_seconds = seconds_since(start);
    start = Clock::now();
    const NumberingJob job{options_, given_ ? &*given_ : nullptr, writer, unfinished, key_bytes()};
    NumberedTables numbered = number_tables(job, folder, pool_, [&](int done) {
      progress_({total_bytes_, total_bytes_, writer.samples(), layout_.tables, done});
    });
    result_.partitioned_tables = numbered.partitioned;
    result_.unknown = std::move(numbered.unknown);
    write_click_folder(folder, unfinished);
    scratch->move_out("clicks", options_.output);
    result_.number_seconds = seconds_since(start);
    result_.input_bytes = total_bytes_;
    return result_;
  }

 private:
  [[noreturn]] void refuse_no_samples() const {
    const std::string malformed = result_.report.text();
    if (malformed.empty() && result_.report.lines > 0 && options_.drop_negatives > 0)
      bad_input(
          "{}: --drop-negatives {} dropped all of the {} samples, none of which has a click: leave it out",
          options_.inputs[0], options_.drop_negatives, result_.report.lines);
    if (malformed.empty() && result_.report.lines > 0 && options_.rows)
      bad_input("{}: a part gets none of the {} rows: give other shares with --split", options_.inputs[0],
                result_.report.lines);
    bad_input("{} {}", options_.inputs[0],
              malformed.empty() ? "contains no samples" : "has no valid line\n" + malformed);
  }

  void check_options() const {
    const PreprocessOptions& o = options_;
    if (o.inputs.empty()) bad_input("there is no input");
    if (o.max_ind_range < 0 || o.max_ind_range > int64_t{1} << 32)
      bad_input("the range of hashes is {}; it must be from 0 to 2^32", o.max_ind_range);
    if (o.hash_ids && (o.max_ind_range < 1 || o.max_ind_range > ClickTable::kMaxRows))
      bad_input("ids that are hashes need a range to be taken modulo, from 1 to {}", ClickTable::kMaxRows);
    if (o.hash_ids && (o.dictionaries_of || o.frequency_threshold > 1))
      bad_input("ids that are hashes have no dictionary and no frequency threshold");
    if (o.keep_keys && (o.hash_ids || o.dictionaries_of || o.frequency_threshold > 1 || o.max_ind_range > 0))
      bad_input("ids that are keys have no dictionary, no frequency threshold and no range");
    if (o.grow_dictionaries && !o.dictionaries_of) bad_input("there are no dictionaries to grow");
    if (!(o.drop_negatives >= 0 && o.drop_negatives < 1))
      bad_input("the fraction of negatives to drop is {}; it must be at least 0 and less than 1",
                o.drop_negatives);
    if (o.frequency_threshold < 0)
      bad_input("the frequency threshold is {}; it must be 0 or more", o.frequency_threshold);
  }

  // Criteo's hashes have 32 bits, and so has any id modulo a range.
  int key_bytes() const { return layout_.base == IdBase::Hexadecimal || options_.max_ind_range > 0 ? 4 : 8; }

  // Whether the tables given are bags, or slots of any input have several keys.
  bool decide_norm_bags(const std::vector<std::string>& inputs) const {
    if (given_ && std::any_of(given_->tables.begin(), given_->tables.end(),
                              [](const ClickFolder::Table& table) { return table.bag; }))
      return true;
    return std::any_of(inputs.begin(), inputs.end(),
                       [](const std::string& path) { return is_norm_file(path) && has_norm_bags(path); });
  }

  void add_layout(const std::string& path) {
    const std::unique_ptr<ClickReader> input = open_click_reader(path, options_, pool_.size());
    const TextLayout& layout = input->layout();
    if (options_.needs_labels) check_labels(layout, path);
    if (!paths_.empty() && layout.base != layout_.base)
      bad_input("{}: its ids are {}, those of {} are {}: give --data-format", path, name_of(layout.base),
                paths_[0], name_of(layout_.base));
    if (!paths_.empty() &&
        (layout.dense != layout_.dense || layout.tables != layout_.tables || layout.bags != layout_.bags))
      bad_input("{} has {} dense columns and {} columns of ids ({} of bags), {} has {} and {} ({})", path,
                layout.dense, layout.tables, layout.bags, paths_[0], layout_.dense, layout_.tables,
                layout_.bags);
    const bool labeled = layout.labeled && layout.labels > 0;
    if (!paths_.empty() && labeled != result_.folder.labeled)
      bad_input("{} has {}labels, {} has {}: preprocess them separately", path, labeled ? "" : "no ",
                paths_[0], labeled ? "none" : "some");
    result_.folder.labeled = labeled;
    if (paths_.empty()) layout_ = layout;
    paths_.push_back(path);
    total_bytes_ += input->size();
    if (given_ && (given_->dense != layout.dense || std::ssize(given_->tables) != layout.tables))
      bad_input("{} has {} dense columns and {} columns of ids, {} has {} and {}", path, layout.dense,
                layout.tables, *options_.dictionaries_of, given_->dense, given_->tables.size());
  }

  void parse(size_t number, ClickColumnWriter& writer) {
    const std::unique_ptr<ClickReader> reader = open_click_reader(paths_[number], options_, pool_.size());
    const DropRule drop{options_.drop_negatives,
                        philox_key(options_.seed, fmt::format("negatives of file {}", number)), options_.rows,
                        philox_key(options_.seed, fmt::format("parts of file {}", number))};
    ClickFolder::Source source{paths_[number], 0, 0, writer.samples()};
    int64_t line_number = reader->first_line();
    std::vector<ClickPiece> pieces(static_cast<size_t>(pool_.size()));
    while (reader->next(pieces, pool_, drop)) {
      writer.write(pieces, pool_);
      for (const ClickPiece& piece : pieces) take_in(piece, source, line_number);
      if (result_.report.lines > kJudgedLines) check_malformed(result_.report, max_malformed_);
      const auto done = static_cast<int64_t>(reader->share() * static_cast<double>(reader->size()));
      progress_({total_bytes_, done_bytes_ + done, writer.samples(), layout_.tables, 0});
    }
    done_bytes_ += reader->size();
    source.samples = writer.samples() - source.samples;
    result_.folder.sources.push_back(source);
  }

  void take_in(const ClickPiece& piece, ClickFolder::Source& source, int64_t& line_number) {
    if (piece.too_long) refuse_long_line(source.file, line_number + *piece.too_long);
    TextReport report;
    for (const auto& [line, problem] : piece.problems) report.add(source.file, line_number + line, problem);
    for (const int64_t row : piece.left_out) report.left_out.push_back(result_.report.lines + row);
    report.lines = piece.lines - piece.blank;
    report.malformed = piece.malformed;
    report.unlabelled = piece.unlabelled;
    report.kinds = piece.kinds;
    result_.report.append(report);
    source.lines += report.lines;
    source.malformed += piece.malformed;
    line_number += piece.lines;
    take_in_labels(piece);
    least_ = std::min(least_, piece.least);
    for (size_t b = 0; b < piece.lengths.size(); ++b) take_in_bags(piece, b);
    samples_ += piece.samples();
  }

  void take_in_labels(const ClickPiece& piece) {
    ClickFolder& folder = result_.folder;
    for (size_t at = 0; at < piece.labels.size(); at += piece.label_count) {
      const auto of_sample = std::span(piece.labels).subspan(at, piece.label_count);
      for (size_t l = 0; l < folder.labels.size(); ++l) {
        folder.labels[l].clicks += of_sample[l] == 1 ? 1 : 0;
        folder.labels[l].missing += of_sample[l] == kNoLabel ? 1 : 0;
      }
      if (std::find(of_sample.begin(), of_sample.end(), uint8_t{1}) != of_sample.end()) ++folder.clicks;
      if (std::count(of_sample.begin(), of_sample.end(), kNoLabel) == std::ssize(of_sample))
        ++folder.unlabelled;
    }
  }

  void take_in_bags(const ClickPiece& piece, size_t b) {
    PreprocessResult::Bags& bags = result_.bags[b];
    ClickFolder::Table& table = result_.folder.tables[static_cast<size_t>(bags.table)];
    table.cut_bags += piece.cut_bags[b];
    for (int64_t i = 0; i < piece.samples(); ++i) {
      const int64_t length = piece.lengths[b][static_cast<size_t>(i)];
      bags.ids += length;
      if (length <= table.most_ids) continue;
      table.most_ids = length;
      bags.longest_sample = samples_ + i;
    }
  }

  void describe(ClickFolder& folder) const {
    folder.dense = layout_.dense;
    folder.transform = options_.transform;
    folder.base = layout_.base;
    folder.max_ind_range = options_.max_ind_range;
    folder.frequency_threshold = options_.frequency_threshold;
    folder.max_bag = options_.max_bag;
    folder.drop_negatives = options_.drop_negatives;
    folder.max_malformed = max_malformed_;
    folder.texts_as_written = layout_.rules.as_written;
    folder.tables.resize(static_cast<size_t>(layout_.tables));
    for (int t = layout_.tables - layout_.bags; t < layout_.tables; ++t)
      folder.tables[static_cast<size_t>(t)].bag = true;
    for (const TextColumn& column : layout_.columns)
      for_each_role(column, [&](const TextColumn& role) {
        if (role.kind != TextColumn::Kind::Id) return true;
        ClickFolder::Table& table = folder.tables[static_cast<size_t>(role.index)];
        table.name = layout_.named ? table_name_of(role.name) : role.name;
        table.weighted = role.weighted;
        return true;
      });
    folder.sample_weights = layout_.sample_weights;
    folder.kept = options_.keep;
    for (size_t k = 0; k < folder.kept.size(); ++k)
      for (size_t other = 0; other < k; ++other)
        if (table_name_of(folder.kept[k]) == table_name_of(folder.kept[other]))
          bad_input("--keep: two columns would have the file {}: rename one of them",
                    ClickFolder::kept_file("", folder.kept[k]).substr(1));
    for (const ClickFolder::Table& table : folder.tables)
      if (table.name.size() > kLongestTableName)
        bad_input(
            "the column {}... has a name of {} bytes; that of a table, "
            "which names its files, has at most {}: rename it",
            table.name.substr(0, 40), table.name.size(), kLongestTableName);
    for (size_t t = 0; t < folder.tables.size(); ++t)
      for (size_t other = 0; other < t; ++other)
        if (folder.tables[t].name == folder.tables[other].name)
          bad_input("--sparse and --bag: two columns would have the table {}: rename one of them",
                    folder.tables[t].name);
    share_tables(folder);
    name_labels(folder);
    folder.hash_seed = layout_.rules.hash_seed;
    folder.columns = options_.columns;
    if (given_) expect_encoding(*given_, options_, layout_.named, folder);
  }

  // Tables of which several columns have one.
  void share_tables(ClickFolder& folder) const {
    const auto find = [&](const std::string& column) -> ClickFolder::Table& {
      const std::string name = table_name_of(column);
      for (ClickFolder::Table& table : folder.tables)
        if (table.name == name) return table;
      std::vector<std::string> names;
      for (const ClickFolder::Table& table : folder.tables) names.push_back(table.name);
      bad_input("--share-table: {} is not a column of --sparse or --bag: name one of {}", column,
                fmt::join(names, ", "));
    };
    for (const auto& [column, other] : options_.shared) {
      find(other);
      find(column).shares = table_name_of(other);
    }
    for (const auto& [column, other] : options_.shared)
      if (!find(other).shares.empty())
        bad_input("--share-table: {} uses the table of {}, so no column can share its own: name {} instead",
                  other, find(other).shares, find(other).shares);
    if (options_.keep_keys && !options_.shared.empty())
      bad_input(
          "--share-table {}:{}: with --ids keys each column has its own table: use --ids dictionary or hash",
          options_.shared[0].first, options_.shared[0].second);
    if (!given_) return;
    for (size_t t = 0; t < folder.tables.size(); ++t) {
      if (!options_.shared.empty() && folder.tables[t].shares != given_->tables[t].shares)
        bad_input(
            "--share-table: column {} has another table in {}: leave the option out, and it is taken from there",
            folder.tables[t].name, *options_.dictionaries_of);
      folder.tables[t].shares = given_->tables[t].shares;
    }
  }

  void name_labels(ClickFolder& folder) const {
    if (layout_.labels < 2) return;
    for (const LabelRule& rule : layout_.rules.labels) {
      const std::string name = table_name_of(rule.column);
      for (const ClickFolder::Label& other : folder.labels)
        if (other.name == name) bad_input("--label: two labels would be called {}: rename one column", name);
      folder.labels.push_back({name});
    }
  }

  void shift_dense(RawFile& dense) const {
    const auto least = static_cast<float>(result_.folder.least);
    const int64_t count = result_.folder.samples * layout_.dense;
    std::vector<float> chunk(size_t{1} << 18);
    for (int64_t first = 0; first < count; first += std::ssize(chunk)) {
      const std::span<float> values =
          std::span(chunk).first(static_cast<size_t>(std::min<int64_t>(std::ssize(chunk), count - first)));
      dense.read_all(values, first);
      for (float& x : values) x = transform_dense(DenseTransform::LogMin, x, least);
      dense.write_all(std::span<const float>(values), first);
    }
  }

  PreprocessOptions options_;
  ThreadPool& pool_;
  FunctionRef<void(const PreprocessProgress&)> progress_;
  std::optional<ClickFolder> given_;
  std::vector<std::string> paths_;
  TextLayout layout_;  // layout of the first input: names and counts of columns
  int64_t total_bytes_ = 0;
  int64_t done_bytes_ = 0;
  int64_t samples_ = 0;
  float least_ = std::numeric_limits<float>::infinity();
  double max_malformed_ = kMaxMalformed;
  PreprocessResult result_;
};

}  // namespace

PreprocessResult preprocess(const PreprocessOptions& options, ThreadPool& pool,
                            FunctionRef<void(const PreprocessProgress&)> progress) {
  return Job(options, pool, progress).run();
}

}  // namespace trifold
