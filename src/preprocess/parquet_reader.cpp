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
#include "core/suffix.h"
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
    apply_options(layout_, options, path);
    if (!layout_.named) put_lists_last();
    std::vector<size_t> selected;
    for (size_t c = 0; c < layout_.columns.size(); ++c) {
      const size_t before = roles_.size();
      for_each_role(layout_.columns[c], [&](const TextColumn& role) {
        if (role.kind == TextColumn::Kind::Ignored) return true;
        check_type(role, file_.type(c));
        roles_.push_back({role, static_cast<int>(selected.size())});
        return true;
      });
      if (roles_.size() > before) selected.push_back(c);
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
  using Batch = ParquetFile::Batch;

  int first_bag() const { return layout_.tables - layout_.bags; }
  bool is_bag(const TextColumn& role) const {
    return (role.kind == TextColumn::Kind::Id && role.index >= first_bag()) ||
           role.kind == TextColumn::Kind::BagWeights;
  }
  void put_lists_last();
  void check_type(const TextColumn& role, const ArrowSchema& type) const;
  void fill(const Batch& batch, const DropRule& drop, ClickPiece& piece) const;
  std::optional<LineProblem> take(const Role& role, const ArrowColumn& values, int64_t row,
                                  ClickRow& out) const;
  std::string wanted(const TextColumn& role) const;
  std::optional<Cell> take_bag(const TextColumn& role, const ArrowColumn& values, int64_t row,
                               ClickBag& bag) const;
  std::optional<Cell> take_map(const ArrowColumn& values, int64_t row, ClickBag& bag) const;
  bool add_text(const TextColumn& role, std::string_view texts, ClickBag& bag) const;
  bool add_element(const TextColumn& role, const Cell& element, ClickBag& bag) const;

  ParquetFile file_;
  const PreprocessOptions& options_;
  TextLayout layout_;
  std::vector<Role> roles_;
  int64_t done_ = 0;
};

// Orders the tables: tables with one id per sample first, then tables of lists, like tables of --bag.
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

// BadInput for a type that does not fit the role.
void ParquetReader::check_type(const TextColumn& role, const ArrowSchema& type) const {
  using Kind = TextColumn::Kind;
  const bool named = layout_.named;
  const std::string name = printable(role.name);
  const ArrowKind kind = kind_of(type);
  if (kind == ArrowKind::Map && (role.kind != Kind::Id || !role.weighted || role.paired))
    bad_input("{}: column {} is map, which holds a bag and its weights: name it with --bag and --bag-weights",
              file_.path(), name);
  if (kind == ArrowKind::List && !is_bag(role))
    bad_input("{}: column {} is {}, not one value a row: {}", file_.path(), name, type_text(type),
              role.kind == Kind::Id ? "name it with --bag" : "a label and a number are one value");
  const bool is_many = kind == ArrowKind::List || kind == ArrowKind::Map;
  if (named && is_bag(role) && !is_many && kind != ArrowKind::Text && kind != ArrowKind::Nothing)
    bad_input(
        "{}: column {} of --bag is {}, neither a list nor a text of several values: name it with --sparse",
        file_.path(), name, type_text(type));
  if (named && is_bag(role) && kind == ArrowKind::Text && role.bag == '\0')
    bad_input("{}: column {} of --bag is {}, not a list: give the character between its texts, like {}:|",
              file_.path(), name, type_text(type), name);
  const ArrowSchema& single = is_many ? *type.children[0] : type;
  if (kind == ArrowKind::Map) return;
  const ArrowKind values = kind_of(single);
  if (values == ArrowKind::Other || values == ArrowKind::List || values == ArrowKind::Map)
    bad_input(
        "{}: column {} is {}; columns of whole numbers, numbers, decimals, bool, text, dates, timestamps, lists of "
        "them and maps are read: cast it",
        file_.path(), name, type_text(type));
  if (role.kind == Kind::Dense && !role.part && values == ArrowKind::Moment)
    bad_input("{}: column {} is {}: --dense takes a part of it, such as {}@days, {}@hour or {}@weekday",
              file_.path(), name, type_text(type), name, name, name);
  if (role.weighted && !role.paired && values != ArrowKind::Text && values != ArrowKind::Nothing)
    bad_input(
        "{}: column {} of --bag-weights is {}; it needs texts with weights, like a:0.5, a map, or a column of "
        "weights, like {}:WEIGHTS",
        file_.path(), name, type_text(type), name);
  if (!named && role.kind == Kind::Id &&
      (values == ArrowKind::Text || values == ArrowKind::Flag || values == ArrowKind::Moment))
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
  ClickRow row(layout_);
  for (int64_t r = 0; r < batch.rows; ++r) {
    row.begin(builder.open());
    std::optional<LineProblem> problem;
    for (const Role& role : roles_) {
      problem = take(role, batch.columns[static_cast<size_t>(role.place)], r, row);
      if (problem) break;
    }
    if (!problem && !is_labelled(layout_, row)) problem = {"no label", "it has none of its labels"};
    if (!problem && !finish_bags(layout_, row)) problem = kUnequalBag;
    if (!problem) {
      builder.close(row, batch.first_row + r);
      continue;
    }
    problem->text = fmt::format("row group {}, {}", batch.row_group, problem->text);
    builder.reject(std::move(*problem));
  }
}

std::string ParquetReader::wanted(const TextColumn& role) const {
  if (role.kind == TextColumn::Kind::Id && role.weighted && !role.paired)
    return "a text with a weight, like a:0.5, or a key with a number";
  const std::string value = wanted_value(layout_, role);
  return value.empty() ? "an id: a whole number" : value;
}

bool ParquetReader::add_text(const TextColumn& role, std::string_view texts, ClickBag& bag) const {
  if (role.kind == TextColumn::Kind::BagWeights) return add_weights_to_bag(role.bag, texts, bag);
  if (role.paired) return add_paired_texts_to_bag(layout_.rules, role.bag, texts, bag);
  return add_texts_to_bag(layout_.rules, role.bag, role.weighted, texts, bag);
}

bool ParquetReader::add_element(const TextColumn& role, const Cell& element, ClickBag& bag) const {
  if (role.kind == TextColumn::Kind::BagWeights) return add_weight_to_bag(element, bag);
  if (role.paired) return add_paired_to_bag(layout_.rules, layout_.base, element, bag);
  return add_to_bag(layout_.rules, layout_.base, role.weighted, element, bag);
}

// Fills an empty bag from a map. Returns the first wrong key or value, if any.
std::optional<Cell> ParquetReader::take_map(const ArrowColumn& values, int64_t row, ClickBag& bag) const {
  const auto [first, end] = values.list(row);
  for (int64_t e = first; e < end; ++e) {
    const auto [key, weight] = values.entry(e);
    if (!add_paired_to_bag(layout_.rules, layout_.base, key, bag)) return key;
    if (!add_weight_to_bag(weight, bag)) return weight;
  }
  finish_paired_bag(bag);
  return std::nullopt;
}

// Fills an empty bag, or its weights. Returns the first wrong value, if any.
std::optional<Cell> ParquetReader::take_bag(const TextColumn& role, const ArrowColumn& values, int64_t row,
                                            ClickBag& bag) const {
  if (values.kind() == ArrowKind::Map) return take_map(values, row, bag);
  if (values.kind() != ArrowKind::List) {
    const Cell value = values.value(row);
    const auto* texts = std::get_if<std::string_view>(&value);
    if (texts == nullptr || add_text(role, *texts, bag)) return std::nullopt;
    return value;
  }
  const auto [first, end] = values.list(row);
  const ArrowColumn elements = values.element();
  for (int64_t e = first; e < end; ++e) {
    const Cell value = elements.value(e);
    if (!add_element(role, value, bag)) return value;
  }
  return std::nullopt;
}

// Puts one value into the row. Returns the problem with it, if any.
std::optional<LineProblem> ParquetReader::take(const Role& role, const ArrowColumn& values, int64_t row,
                                               ClickRow& out) const {
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
    if (const std::optional<Cell> bad = take_bag(column, values, row, bag)) return wrong(*bad);
    if (std::ssize(bag.ids) > ClickFolder::kMostBagIds && !options_.max_bag)
      return LineProblem{
          fmt::format("column {} has a bag that is too long", name),
          fmt::format("column {}: a bag of {} ids; one has at most {}: --max-bag keeps the first ids of each",
                      name, bag.ids.size(), ClickFolder::kMostBagIds)};
    return std::nullopt;
  }
  const Cell value = values.value(row);
  return put_cell(layout_, column, value, out) ? std::nullopt : std::optional(wrong(value));
}

}  // namespace

bool is_parquet_input(const std::string& path) { return has_suffix(path, ".parquet"); }

std::unique_ptr<ClickReader> open_parquet_reader(const std::string& path, const PreprocessOptions& options,
                                                 int threads) {
  if (options.format != "auto")
    bad_input("{} is a Parquet file, which --data-format {} does not read: leave it out", path,
              options.format);
  return std::make_unique<ParquetReader>(path, options, threads);
}

}  // namespace trifold
