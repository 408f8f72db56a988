#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "clicks/cells/field_values.h"
#include "clicks/click_format.h"
#include "clicks/click_layout.h"
#include "core/error.h"
#include "core/printable.h"
#include "preprocess/click_reader.h"
#include "preprocess/parquet_file.h"

namespace trifold {

namespace {

class ParquetReader final : public ClickReader {
 public:
  ParquetReader(const std::string& path, const PreprocessOptions& options, int threads)
      : file_(path, threads),
        options_(options),
        layout_(layout_of_names(path, file_.names(), options.columns)) {
    if (!layout_.named) put_lists_last();
    std::vector<size_t> selected;
    for (size_t c = 0; c < layout_.columns.size(); ++c) {
      if (layout_.columns[c].kind == TextColumn::Kind::Ignored) continue;
      check_type(layout_.columns[c], file_.type(c));
      roles_.push_back({layout_.columns[c], static_cast<int>(selected.size())});
      selected.push_back(c);
    }
    file_.select(selected);
  }

  const TextLayout& layout() const override { return layout_; }
  int64_t size() const override { return file_.bytes(); }
  int64_t first_line() const override { return 0; }
  double share() const override { return static_cast<double>(done_) / static_cast<double>(file_.rows()); }
  bool next(std::span<ClickPiece> pieces, ThreadPool& pool, const DropRule& drop) override;

 private:
  struct Role {
    TextColumn column;
    int place = 0;  // among the columns of a batch
  };
  struct Row {
    std::vector<uint8_t> labels;
    float* dense = nullptr;
    std::vector<uint64_t> ids;
    std::vector<ClickBag> bags;
  };
  using Batch = ParquetFile::Batch;

  int first_bag() const { return layout_.tables - layout_.bags; }
  bool is_bag(const TextColumn& column) const {
    return column.kind == TextColumn::Kind::Id && column.index >= first_bag();
  }
  void put_lists_last();
  void check_type(const TextColumn& column, const ArrowSchema& type) const;
  void fill(const Batch& batch, const DropRule& drop, ClickPiece& piece) const;
  std::optional<LineProblem> take(const Role& role, const ArrowColumn& values, int64_t row, Row& out) const;
  std::string wanted(const TextColumn& column) const;
  std::optional<Cell> take_bag(const TextColumn& column, const ArrowColumn& values, int64_t row,
                               ClickBag& bag) const;

  ParquetFile file_;
  const PreprocessOptions& options_;
  TextLayout layout_;
  std::vector<Role> roles_;
  int64_t done_ = 0;
};

// The tables of lists come after those of one id a sample, as those of --bag do.
void ParquetReader::put_lists_last() {
  const auto is_list = [&](size_t c) { return kind_of(file_.type(c)) == ArrowKind::List; };
  std::vector<size_t> ids;
  for (size_t c = 0; c < layout_.columns.size(); ++c)
    if (layout_.columns[c].kind == TextColumn::Kind::Id) ids.push_back(c);
  std::sort(ids.begin(), ids.end(),
            [&](size_t a, size_t b) { return layout_.columns[a].index < layout_.columns[b].index; });
  const auto lists = std::stable_partition(ids.begin(), ids.end(), [&](size_t c) { return !is_list(c); });
  layout_.bags = static_cast<int>(ids.end() - lists);
  for (size_t t = 0; t < ids.size(); ++t) layout_.columns[ids[t]].index = static_cast<int>(t);
}

// BadInput for a type that does not fit the column's role.
void ParquetReader::check_type(const TextColumn& column, const ArrowSchema& type) const {
  const bool named = layout_.named;
  const std::string name = printable(column.name);
  const ArrowKind kind = kind_of(type);
  if (kind == ArrowKind::List && !is_bag(column))
    bad_input(
        "{}: column {} is {}, not one value a row: {}", file_.path(), name, type_text(type),
        column.kind == TextColumn::Kind::Id ? "name it with --bag" : "a label and a number are one value");
  if (named && is_bag(column) && kind != ArrowKind::List && kind != ArrowKind::Text &&
      kind != ArrowKind::Nothing)
    bad_input(
        "{}: column {} of --bag is {}, neither a list nor a text of several values: name it with --sparse",
        file_.path(), name, type_text(type));
  if (named && is_bag(column) && kind == ArrowKind::Text && column.bag == '\0')
    bad_input("{}: column {} of --bag is {}, not a list: give the character between its texts, like {}:|",
              file_.path(), name, type_text(type), name);
  const ArrowSchema& single = kind == ArrowKind::List ? *type.children[0] : type;
  const ArrowKind values = kind_of(single);
  if (values == ArrowKind::Other || values == ArrowKind::List)
    bad_input(
        "{}: column {} is {}; columns of whole numbers, numbers, decimals, bool, text and lists of them are "
        "read: cast it",
        file_.path(), name, type_text(type));
  if (column.weighted && values != ArrowKind::Text && values != ArrowKind::Nothing)
    bad_input("{}: column {} of --bag-weights is {}; it needs texts with weights, like a:0.5", file_.path(),
              name, type_text(type));
  if (!named && column.kind == TextColumn::Kind::Id &&
      (values == ArrowKind::Text || values == ArrowKind::Flag))
    bad_input(
        "{}: column {} is {}, not whole numbers: --label, --dense and --sparse name columns of any type, "
        "like --label "
        "label --sparse {}",
        file_.path(), name, type_text(type), name);
}

bool ParquetReader::next(std::span<ClickPiece> pieces, ThreadPool& pool, const DropRule& drop) {
  std::vector<Batch> batches;
  while (batches.size() < pieces.size()) {
    std::optional<Batch> batch = file_.next();
    if (!batch) break;
    done_ += batch->rows;
    batches.push_back(std::move(*batch));
  }
  if (batches.empty()) return false;
  batches.resize(pieces.size());
  pool.run([&](int worker) {
    const auto p = static_cast<size_t>(worker);
    fill(batches[p], drop, pieces[p]);
  });
  return true;
}

void ParquetReader::fill(const Batch& batch, const DropRule& drop, ClickPiece& piece) const {
  PieceBuilder builder(layout_, options_, drop, piece);
  Row row;
  row.labels.resize(static_cast<size_t>(std::max(layout_.labels, 1)));
  row.ids.resize(static_cast<size_t>(layout_.tables));
  row.bags.resize(static_cast<size_t>(layout_.bags));
  for (int64_t r = 0; r < batch.rows; ++r, ++piece.lines) {
    row.dense = builder.open();
    std::optional<LineProblem> problem;
    for (const Role& role : roles_) {
      problem = take(role, batch.columns[static_cast<size_t>(role.place)], r, row);
      if (problem) break;
    }
    if (!problem && std::count(row.labels.begin(), row.labels.end(), kNoLabel) == std::ssize(row.labels))
      problem = {"no label", "it has none of its labels"};
    if (!problem) {
      builder.close(row.labels, batch.first_row + r, row.ids, row.bags);
      continue;
    }
    builder.discard();
    problem->text = fmt::format("row group {}, {}", batch.row_group, problem->text);
    piece.add_problem(std::move(*problem));
  }
}

std::string ParquetReader::wanted(const TextColumn& column) const {
  const TextColumn::Kind kind = column.kind;
  if (column.weighted) return "a text with a weight, like a:0.5";
  if (kind == TextColumn::Kind::Dense) return "a number, false, true or one of --missing-values";
  if (kind == TextColumn::Kind::Id) return "an id: a whole number";
  return wanted_label(layout_.rules.labels[static_cast<size_t>(column.index)]);
}

// Fills an empty bag. Returns the first wrong value, if any.
std::optional<Cell> ParquetReader::take_bag(const TextColumn& column, const ArrowColumn& values, int64_t row,
                                            ClickBag& bag) const {
  if (values.kind() != ArrowKind::List) {
    const Cell value = values.value(row);
    const auto* texts = std::get_if<std::string_view>(&value);
    if (texts == nullptr || add_texts_to_bag(layout_.rules, column.bag, column.weighted, *texts, bag))
      return std::nullopt;
    return value;
  }
  const auto [first, end] = values.list(row);
  const ArrowColumn elements = values.element();
  for (int64_t e = first; e < end; ++e) {
    const Cell value = elements.value(e);
    if (!add_to_bag(layout_.rules, layout_.base, column.weighted, value, bag)) return value;
  }
  return std::nullopt;
}

// Puts one value into the row. Returns the problem with it, if any.
std::optional<LineProblem> ParquetReader::take(const Role& role, const ArrowColumn& values, int64_t row,
                                               Row& out) const {
  const TextColumn& column = role.column;
  const std::string name = printable(column.name);
  const auto wrong = [&](const Cell& value) {
    constexpr size_t kShown = 40;
    return LineProblem{
        fmt::format("column {} is not {}", name, kind_name(column)),
        fmt::format("column {}: '{}' is not {}", name, printable(shown_text(value), kShown), wanted(column))};
  };
  if (is_bag(column)) {
    ClickBag& bag = out.bags[static_cast<size_t>(column.index - first_bag())];
    bag.clear();
    if (const std::optional<Cell> bad = take_bag(column, values, row, bag)) return wrong(*bad);
    if (std::ssize(bag.ids) > ClickFolder::kMostBagIds && !options_.max_bag)
      return LineProblem{
          fmt::format("column {} has a bag that is too long", name),
          fmt::format("column {}: a bag of {} ids; one has at most {}: --max-bag keeps the first ids of each",
                      name, bag.ids.size(), ClickFolder::kMostBagIds)};
    return std::nullopt;
  }
  const Cell value = values.value(row);
  const auto index = static_cast<size_t>(column.index);
  const auto put = [&](auto found, auto& place) -> std::optional<LineProblem> {
    if (!found) return wrong(value);
    place = *found;
    return std::nullopt;
  };
  if (column.kind == TextColumn::Kind::Label)
    return put(label_in(layout_.rules, column.index, value), out.labels[index]);
  if (column.kind == TextColumn::Kind::Dense) return put(dense_in(layout_.rules, value), out.dense[index]);
  return put(id_in(layout_.rules, layout_.base, value), out.ids[index]);
}

}  // namespace

bool is_parquet_input(const std::string& path) { return path.ends_with(".parquet"); }

std::unique_ptr<ClickReader> open_parquet_reader(const std::string& path, const PreprocessOptions& options,
                                                 int threads) {
  if (options.format != "auto")
    bad_input("{} is a Parquet file, which --data-format {} does not read: leave it out", path,
              options.format);
  return std::make_unique<ParquetReader>(path, options, threads);
}

}  // namespace trifold
