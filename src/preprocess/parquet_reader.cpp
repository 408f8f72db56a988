#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "clicks/click_format.h"
#include "clicks/click_layout.h"
#include "clicks/field_values.h"
#include "core/error.h"
#include "core/printable.h"
#include "preprocess/click_reader.h"
#include "preprocess/parquet_file.h"

namespace trifold {

namespace {

// A whole number in its decimal digits.
class Digits {
 public:
  template <class T>
  explicit Digits(T number) : end_(std::to_chars(text_, text_ + sizeof text_, number).ptr) {}
  std::string_view text() const { return {text_, static_cast<size_t>(end_ - text_)}; }

 private:
  char text_[24];
  char* end_;
};

// A value as text, as a CSV file would hold it.
std::string value_text(const ArrowValue& value) {
  return std::visit(
      []<class T>(const T& x) -> std::string {
        if constexpr (std::is_same_v<T, std::monostate>)
          return "null";
        else if constexpr (std::is_same_v<T, bool>)
          return x ? "True" : "False";
        else if constexpr (std::is_same_v<T, ArrowDecimal>)
          return x.text();
        else
          return fmt::format("{}", x);
      },
      value);
}

// As a number; nothing for a text and for none.
std::optional<double> number_of_value(const ArrowValue& value) {
  return std::visit(
      []<class T>(const T& x) -> std::optional<double> {
        if constexpr (std::is_arithmetic_v<T>)
          return static_cast<double>(x);
        else if constexpr (std::is_same_v<T, ArrowDecimal>)
          return x.number();
        else
          return std::nullopt;
      },
      value);
}

// Those of them that are numbers, which columns of numbers are compared with.
std::vector<double> numbers_among(const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    double number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && stop == text.data() + text.size() && std::isfinite(number))
      numbers.push_back(number);
  }
  return numbers;
}

class ParquetReader final : public ClickReader {
 public:
  ParquetReader(const std::string& path, const PreprocessOptions& options, int threads)
      : file_(path, threads),
        options_(options),
        layout_(layout_of_names(path, file_.names(), options.columns)) {
    rules_ = layout_.rules.value_or(FieldRules{{LabelRule{}}, {}, 0});
    missing_ = numbers_among(rules_.missing);
    if (!layout_.rules) put_lists_last();
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
  std::string take(const Role& role, const ArrowColumn& values, int64_t row, Row& out) const;
  std::optional<uint8_t> label(const LabelRule& rule, const ArrowValue& value) const;
  std::optional<float> dense(const ArrowValue& value) const;
  std::optional<uint64_t> id(const ArrowValue& value) const;
  uint64_t hash_of_value(std::string_view digits) const;
  std::string wanted(const TextColumn& column) const;
  std::optional<ArrowValue> take_bag(const TextColumn& column, const ArrowColumn& values, int64_t row,
                                     ClickBag& bag) const;
  bool is_missing_number(double number) const {
    return std::isnan(number) || std::find(missing_.begin(), missing_.end(), number) != missing_.end();
  }

  ParquetFile file_;
  const PreprocessOptions& options_;
  TextLayout layout_;
  FieldRules rules_;
  std::vector<double> missing_;
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
  const bool named = layout_.rules.has_value();
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
    std::string problem;
    for (const Role& role : roles_) {
      problem = take(role, batch.columns[static_cast<size_t>(role.place)], r, row);
      if (!problem.empty()) break;
    }
    if (problem.empty() &&
        std::count(row.labels.begin(), row.labels.end(), kNoLabel) == std::ssize(row.labels))
      problem = "it has none of its labels";
    if (problem.empty()) {
      builder.close(row.labels, batch.first_row + r, row.ids, row.bags);
      continue;
    }
    builder.discard();
    ++piece.malformed;
    if (std::ssize(piece.problems) < TextReport::kShown)
      piece.problems.emplace_back(piece.lines, fmt::format("row group {}, {}", batch.row_group, problem));
  }
}

std::string ParquetReader::wanted(const TextColumn& column) const {
  const TextColumn::Kind kind = column.kind;
  if (column.weighted) return "a text with a weight, like a:0.5";
  if (kind == TextColumn::Kind::Dense) return "a number, false, true or one of --missing-values";
  if (kind == TextColumn::Kind::Id) return "an id: a whole number";
  return wanted_label(rules_.labels[static_cast<size_t>(column.index)]);
}

// Fills a bag that is empty. A value that is wrong, or nothing.
std::optional<ArrowValue> ParquetReader::take_bag(const TextColumn& column, const ArrowColumn& values,
                                                  int64_t row, ClickBag& bag) const {
  if (values.kind() != ArrowKind::List) {
    const ArrowValue value = values.value(row);
    const auto* texts = std::get_if<std::string_view>(&value);
    if (texts == nullptr || parse_bag(rules_, column, *texts, false, bag)) return std::nullopt;
    return value;
  }
  const auto [first, end] = values.list(row);
  const ArrowColumn elements = values.element();
  for (int64_t e = first; e < end; ++e) {
    const ArrowValue value = elements.value(e);
    ArrowValue plain = value;
    std::optional<float> weight = 1.0F;
    if (auto* text = std::get_if<std::string_view>(&plain);
        column.weighted && text != nullptr && !is_missing(rules_, *text))
      weight = take_weight(*text);
    const std::optional<uint64_t> one = id(plain);
    if (!one || !weight) return value;
    if (*one == 0) continue;
    bag.ids.push_back(*one);
    if (column.weighted) bag.weights.push_back(*weight);
  }
  return std::nullopt;
}

// Puts one value into the row. Returns what is wrong with it, or "".
std::string ParquetReader::take(const Role& role, const ArrowColumn& values, int64_t row, Row& out) const {
  const TextColumn& column = role.column;
  constexpr size_t kShown = 40;
  const auto wrong = [&](const ArrowValue& value) {
    return fmt::format("column {}: '{}' is not {}", printable(column.name),
                       printable(value_text(value), kShown), wanted(column));
  };
  if (is_bag(column)) {
    ClickBag& bag = out.bags[static_cast<size_t>(column.index - first_bag())];
    bag.clear();
    if (const std::optional<ArrowValue> bad = take_bag(column, values, row, bag)) return wrong(*bad);
    if (std::ssize(bag.ids) > ClickFolder::kMostBagIds && !options_.max_bag)
      return fmt::format(
          "column {}: a bag of {} ids; one has at most {}: --max-bag keeps the first ids of each",
          printable(column.name), bag.ids.size(), ClickFolder::kMostBagIds);
    return {};
  }
  const ArrowValue value = values.value(row);
  const auto index = static_cast<size_t>(column.index);
  if (column.kind == TextColumn::Kind::Label) {
    const std::optional<uint8_t> found = label(rules_.labels[index], value);
    if (!found) return wrong(value);
    out.labels[index] = *found;
  } else if (column.kind == TextColumn::Kind::Dense) {
    const std::optional<float> found = dense(value);
    if (!found) return wrong(value);
    out.dense[index] = *found;
  } else {
    const std::optional<uint64_t> found = id(value);
    if (!found) return wrong(value);
    out.ids[index] = *found;
  }
  return {};
}

// kNoLabel for one that is missing, which it may be only among others.
std::optional<uint8_t> ParquetReader::label(const LabelRule& rule, const ArrowValue& value) const {
  const auto missing = rules_.labels.size() > 1 ? std::optional<uint8_t>(kNoLabel) : std::nullopt;
  if (std::holds_alternative<std::monostate>(value)) return missing;
  std::optional<bool> clicked;
  const std::optional<double> number = number_of_value(value);
  if (number && is_missing_number(*number)) return missing;
  const bool compares_text = rule.is != LabelRule::Is::True && !rule.number;
  if (number && !compares_text) {
    clicked = label_of(rule, *number);
  } else {
    const std::string text = value_text(value);
    if (is_missing(rules_, text)) return missing;
    clicked = label_of(rule, text);
  }
  return clicked ? std::optional<uint8_t>(*clicked ? 1 : 0) : std::nullopt;
}

// NaN stands for a missing one.
std::optional<float> ParquetReader::dense(const ArrowValue& value) const {
  constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
  if (std::holds_alternative<std::monostate>(value)) return kMissing;
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    const std::string_view plain = without_blanks(*text);
    if (is_missing(rules_, plain)) return kMissing;
    float number = 0;
    return parse_number_or_flag(plain, number) ? std::optional<float>(number) : std::nullopt;
  }
  const double number = *number_of_value(value);
  if (is_missing_number(number)) return kMissing;
  const auto narrow = static_cast<float>(number);
  return std::isfinite(narrow) ? std::optional<float>(narrow) : std::nullopt;
}

uint64_t ParquetReader::hash_of_value(std::string_view digits) const {
  return is_missing(rules_, digits) ? 0 : hash_of_text(digits, rules_.hash_seed);
}

// 0 stands for a missing one. Where options name the columns, a value is the id of its text, so that a CSV file with
// the same values has the same ids.
std::optional<uint64_t> ParquetReader::id(const ArrowValue& value) const {
  const bool named = layout_.rules.has_value();
  return std::visit(
      [&]<class T>(const T& x) -> std::optional<uint64_t> {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return 0;
        } else if constexpr (std::is_same_v<T, bool>) {
          return hash_of_value(x ? "True" : "False");
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return hash_of_value(x);
        } else if constexpr (std::is_same_v<T, double>) {
          constexpr double kLimit = 9223372036854775808.0;  // 2^63
          if (std::isnan(x)) return 0;
          if (std::trunc(x) != x || !(std::abs(x) < kLimit)) return std::nullopt;
          const auto whole = static_cast<int64_t>(x);
          return named ? hash_of_value(Digits(whole).text()) : id_of_whole(whole);
        } else if constexpr (std::is_same_v<T, ArrowDecimal>) {
          return named && x.scale == 0 ? std::optional(hash_of_value(x.text())) : std::nullopt;
        } else {
          if (named) return hash_of_value(Digits(x).text());
          if constexpr (std::is_same_v<T, int64_t>)
            return id_of_whole(x);
          else
            return x;
        }
      },
      value);
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
