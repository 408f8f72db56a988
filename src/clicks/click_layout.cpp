#include "clicks/click_layout.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "clicks/click_roles.h"
#include "core/error.h"
#include "core/plain_text.h"
#include "core/printable.h"
#include "core/stored_name.h"

namespace trifold {

void check_labels(const TextLayout& layout, const std::string& path) {
  if (layout.labels > 0) return;
  if (!layout.header && layout.base == IdBase::Hexadecimal)
    bad_input("{} has no labels (39 fields a line, not 40): it cannot be trained on", path);
  std::vector<std::string> names;
  for (const TextColumn& column : layout.columns) names.push_back(column.name);
  bad_input("{} has no column of labels (label, click or clicked) among {}: it cannot be trained on", path,
            printable(fmt::format("{}", fmt::join(names, ", "))));
}

TextLayout criteo_layout(bool labels) {
  TextLayout layout;
  layout.labels = labels ? 1 : 0;
  if (labels) layout.columns.push_back({TextColumn::Kind::Label, 0, "label"});
  for (int d = 0; d < 13; ++d)
    layout.columns.push_back({TextColumn::Kind::Dense, d, fmt::format("I{}", d + 1)});
  for (int t = 0; t < 26; ++t) layout.columns.push_back({TextColumn::Kind::Id, t, fmt::format("C{}", t + 1)});
  layout.least_fields = layout.columns.size() - 26;
  return layout;
}

namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// BadInput if the first bytes are not UTF-8 text.
void check_text(const std::string& path, std::string_view text) {
  if (text.empty()) bad_input("{}: the file is empty", path);
  if (text.starts_with("PAR1") && text.find('\0') != std::string_view::npos)  // a text may begin like that
    bad_input(
        "{} is a Parquet file: to read it, let its name end in "
        ".parquet and do not compress the file as a whole",
        path);
  expect_plain_text(text.substr(0, 16), path);
  if (text.substr(0, 4096).find('\0') != std::string_view::npos)
    bad_input("{} has NUL bytes: it is not text", path);
  if (text == kByteOrderMark) bad_input("{}: the file is empty but for a byte order mark", path);
}

}  // namespace

std::string_view text_of(const MappedFile& file) { return without_mark(file.text()); }

std::string_view without_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

namespace {

// Whether more of the first lines can be read only with `other` than only with `layout`.
bool fits_better(const TextLayout& other, const TextLayout& layout, std::string_view text) {
  std::vector<float> dense(static_cast<size_t>(std::max(layout.dense, other.dense)));
  ClickRow row(layout), other_row(other);
  int better = 0;
  for (int i = 0; i < 1000 && !text.empty(); ++i) {
    const std::optional<std::string_view> line = take_line(text);
    if (!line) break;  // the readers report this line
    row.begin(dense.data());
    const bool first = parse_line(layout, *line, row);
    other_row.begin(dense.data());
    const bool second = parse_line(other, *line, other_row);
    better += static_cast<int>(second) - static_cast<int>(first);
  }
  return better > 0;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

// "c17" with the prefix "c": 17.
std::optional<int> number_after(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  int number = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || stop != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

TextColumn header_column(std::string_view field) {
  const std::string name = lower(field);
  const std::string shown = printable(field);
  if (name == "label" || name == "click" || name == "clicked") return {TextColumn::Kind::Label, 0, shown};
  for (const std::string_view prefix : {"i", "dense_", "int_", "num_"})
    if (const auto number = number_after(name, prefix)) return {TextColumn::Kind::Dense, *number, shown};
  for (const std::string_view prefix : {"c", "cat_"})
    if (const auto number = number_after(name, prefix)) return {TextColumn::Kind::Id, *number, shown};
  return {TextColumn::Kind::Ignored, 0, shown};
}

// Columns of one kind are numbered without gaps from 0 or from 1.
int number_columns(std::vector<TextColumn>& columns, TextColumn::Kind kind, const HeaderLocation& place) {
  std::map<int, TextColumn*> by_number;
  for (TextColumn& column : columns) {
    if (column.kind != kind) continue;
    if (!by_number.emplace(column.index, &column).second)
      bad_input("{}: {} has column {} twice", place.where, place.what, column.name);
  }
  int next = 0;
  for (const auto& [number, column] : by_number) {
    const int first = by_number.begin()->first;
    if (first > 1 || number != first + next)
      bad_input("{}: {} lacks a column before {}: columns are numbered from 0 or 1 without gaps", place.where,
                place.what, column->name);
    column->index = next++;
  }
  return next;
}

TextLayout numbered_layout(const std::vector<std::string>& names, IdBase base, const HeaderLocation& place) {
  TextLayout layout;
  layout.separator = ',';
  layout.quotes = true;
  layout.base = base;
  layout.header = true;
  for (const std::string& name : names) layout.columns.push_back(header_column(name));
  const auto labels = std::count_if(layout.columns.begin(), layout.columns.end(),
                                    [](const TextColumn& c) { return c.kind == TextColumn::Kind::Label; });
  if (labels > 1) bad_input("{}: {} has {} columns of labels", place.where, place.what, labels);
  layout.labels = static_cast<int>(labels);
  layout.dense = number_columns(layout.columns, TextColumn::Kind::Dense, place);
  layout.tables = number_columns(layout.columns, TextColumn::Kind::Id, place);
  if (layout.tables == 0)
    bad_input(
        "{}: {} names no column of ids (C1, C2 ... or cat_0, cat_1 ...); a table with other names becomes "
        "clicks with trifold preprocess --label COLUMN --sparse COLUMN,... (and --dictionaries-of CLICKS for "
        "a model that was trained on CLICKS)",
        place.where, place.what);
  // Only columns at the end may be left out of a line, and never the label or a number.
  layout.least_fields = 1;
  for (size_t c = 0; c < layout.columns.size(); ++c)
    if (layout.columns[c].kind == TextColumn::Kind::Label ||
        layout.columns[c].kind == TextColumn::Kind::Dense)
      layout.least_fields = c + 1;
  return layout;
}

// The names in the header of a text, without blanks around them.
std::vector<std::string> names_in(std::string_view header, char separator, bool quotes) {
  std::vector<std::string> names;
  for (const TextField& field : fields_of(header, separator, quotes)) {
    std::string room;
    names.emplace_back(without_blanks(plain_text(field, room)));
  }
  return names;
}

}  // namespace

std::string table_name_of(std::string_view column) {
  std::string name(column);
  for (char& c : name)
    if (!is_storable_name(std::string_view(&c, 1)) && c != '.') c = '_';
  return name;
}

Quoting quoting_of(std::string_view text, char separator) {
  constexpr size_t kJudgedBytes = size_t{4} << 20;
  text = text.substr(0, kJudgedBytes);
  Quoting found = Quoting::Auto;
  while (!text.empty()) {
    const std::optional<std::string_view> line = take_line(text);
    if (!line) break;  // the readers report this line
    if (line->find('"') == std::string_view::npos) continue;
    for (const TextField& field : fields_of(*line, separator, true)) {
      if (field.open) found = Quoting::None;
      if (field.quoted && (field.text.find(separator) != std::string_view::npos ||
                           field.text.find("\"\"") != std::string_view::npos))
        return Quoting::Quotes;
    }
  }
  return found;
}

TextLayout find_layout(const MappedFile& file, std::string_view format) {
  check_text(file.path(), file.text());
  return find_layout(file.path(), text_of(file), format, std::nullopt);
}

TextLayout find_layout(const std::string& path, std::string_view text, std::string_view format,
                       const std::optional<NamedColumns>& columns) {
  check_text(path, text);
  const std::string_view whole = text;
  int64_t number = 0;
  std::optional<std::string_view> first;
  do {
    first = take_line(text);
    ++number;
    if (!first) refuse_long_line(path, number);
  } while (is_blank_line(*first, columns ? columns->separator : '\t') && !text.empty());
  if (const size_t end = first->find('\r'); end != std::string_view::npos && whole.find('\n') == whole.npos)
    bad_input("{}:1: its lines end in CR alone, so they are read as one: convert the line ends to LF or CRLF",
              path);
  const HeaderLocation place{fmt::format("{}:{}", path, number), "the header", true};
  const auto with_header = [&](TextLayout layout) {
    layout.first_line = number + 1;
    return layout;
  };
  if (columns) {
    const bool quotes = columns->quoting != Quoting::None;
    const std::vector<std::string> names = names_in(*first, columns->separator, quotes);
    if (columns->of_text.empty() || names == columns->of_text)
      return with_header(named_layout(names, *columns, place));
    TextLayout layout = named_layout(columns->of_text, *columns, {path, "--columns", false});
    layout.header = false;
    return layout;
  }
  const bool commas =
      first->find('\t') == std::string_view::npos && first->find(',') != std::string_view::npos;
  if (format == "tsv" || (format == "auto" && !commas))
    return criteo_layout(!fits_better(criteo_layout(false), criteo_layout(true), whole));
  const std::vector<std::string> names = names_in(*first, ',', true);
  TextLayout hexadecimal = numbered_layout(names, IdBase::Hexadecimal, place);
  if (format == "csv-hex") return with_header(hexadecimal);
  TextLayout decimal = numbered_layout(names, IdBase::Decimal, place);
  if (fits_better(hexadecimal, decimal, text))
    bad_input(
        "{}: its ids look hexadecimal, but ids of a CSV file are read as decimal: give --data-format csv-hex",
        path);
  return with_header(decimal);
}

TextLayout layout_of_names(const std::string& path, const std::vector<std::string>& names,
                           const std::optional<NamedColumns>& columns) {
  const HeaderLocation place{path, "the file"};
  TextLayout layout =
      columns ? named_layout(names, *columns, place) : numbered_layout(names, IdBase::Decimal, place);
  layout.header = false;
  return layout;
}

}  // namespace trifold
