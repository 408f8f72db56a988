#include "data/click_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "core/error.h"

namespace trifold {

namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

// Eight hexadecimal digits at once. A byte of a digit 0-9 has the high nibble 3, of a letter a-f or A-F bit
// 6; the value of a letter is its low nibble plus 9. False unless all eight are digits.
bool parse_hex8(const char* at, uint32_t& value) {
  constexpr uint64_t kOnes = 0x0101010101010101ULL;
  uint64_t x;
  std::memcpy(&x, at, sizeof x);
  const uint64_t letter = (x >> 6) & kOnes;
  const uint64_t low = x & (0x0f * kOnes);
  // Digits: x - '0' <= 9. Letters: (x | 0x20) - 'a' <= 5. Bytes stay below 128, so sums do not carry.
  const uint64_t seven = x & (0x7f * kOnes);
  const uint64_t digit_low = (seven | 0x80 * kOnes) - 0x30 * kOnes;  // bit 7 stays when seven >= '0'
  const uint64_t digit_high = seven + (0x7f - 0x39) * kOnes;         // bit 7 is set when seven > '9'
  const uint64_t folded = seven | 0x20 * kOnes;
  const uint64_t letter_low = (folded | 0x80 * kOnes) - 0x61 * kOnes;
  const uint64_t letter_high = folded + (0x7f - 0x66) * kOnes;
  const uint64_t good = ((digit_low & ~digit_high) | (letter_low & ~letter_high)) & ~x & (0x80 * kOnes);
  if (good != 0x80 * kOnes) return false;
  uint64_t nibbles = __builtin_bswap64(low + 9 * letter);
  nibbles = (nibbles | nibbles >> 4) & 0x00ff00ff00ff00ffULL;
  nibbles = (nibbles | nibbles >> 8) & 0x0000ffff0000ffffULL;
  value = static_cast<uint32_t>(nibbles | nibbles >> 16);
  return true;
}

// Any number of digits up to eight; the field must not be empty.
bool parse_hash(const char* begin, const char* end, uint32_t& value) {
  if (end - begin > 8) return false;
  const auto [stop, error] = std::from_chars(begin, end, value, 16);
  return error == std::errc() && stop == end;
}

bool parse_number(const char* begin, const char* end, float& value) {
  double number = 0;
  const auto [stop, error] = std::from_chars(begin, end, number);
  value = static_cast<float>(number);
  return error == std::errc() && stop == end && std::isfinite(value);
}

bool parse_label(const char* begin, const char* end, int& label) {
  const std::string_view text(begin, static_cast<size_t>(end - begin));
  if (text == "0" || text == "1") {
    label = text[0] - '0';
    return true;
  }
  label = text == "1.0" ? 1 : 0;
  return text == "0.0" || text == "1.0";
}

// A whole number of up to 9 digits that ends at `separator` or `end`; moves `at` there. False: another way to
// write a number, or none.
bool parse_whole(const char*& at, const char* end, char separator, float& value) {
  const char* p = at;
  const bool minus = p < end && *p == '-';
  if (minus) ++p;
  const char* first = p;
  int32_t number = 0;
  for (; p < end && p - first < 9; ++p) {
    const auto digit = static_cast<unsigned>(*p - '0');
    if (digit > 9) break;
    number = number * 10 + static_cast<int32_t>(digit);
  }
  if (p == first || (p < end && *p != separator)) return false;
  value = static_cast<float>(minus ? -number : number);
  at = p;
  return true;
}

bool parse_field(const TextColumn& column, const char* begin, const char* end, ClickLine& out) {
  switch (column.kind) {
    case TextColumn::Kind::Label:
      return parse_label(begin, end, out.label);
    case TextColumn::Kind::Dense:
      if (begin == end) return true;
      return parse_number(begin, end, out.dense[column.index]);
    case TextColumn::Kind::Id:
      if (begin == end) return true;
      return parse_hash(begin, end, out.ids[column.index]);
    case TextColumn::Kind::Ignored:
      return true;
  }
  return false;
}

const char* field_end(const char* begin, const char* end, char separator) {
  const void* found = std::memchr(begin, separator, static_cast<size_t>(end - begin));
  return found != nullptr ? static_cast<const char*>(found) : end;
}

std::vector<std::string_view> fields_of(std::string_view line, char separator) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t stop = line.find(separator);
    fields.push_back(line.substr(0, stop));
    if (stop == std::string_view::npos) return fields;
    line.remove_prefix(stop + 1);
  }
}

}  // namespace

// Most fields are short whole numbers and hashes of exactly eight digits: those are read in place; all others
// by their ends.
bool parse_line(const TextLayout& layout, std::string_view line, ClickLine& out) {
  std::fill(out.dense, out.dense + layout.dense, kMissing);
  std::fill(out.ids, out.ids + layout.tables, 0U);
  const char* at = line.empty() ? "" : line.data();  // an empty view's address may be null
  const char* const end = at + line.size();
  const char separator = layout.separator;
  size_t fields = 0;
  for (const TextColumn& column : layout.columns) {
    ++fields;
    const bool read = column.kind == TextColumn::Kind::Dense
                          ? parse_whole(at, end, separator, out.dense[column.index])
                          : column.kind == TextColumn::Kind::Id && end - at >= 8 &&
                                (end - at == 8 || at[8] == separator) &&
                                parse_hex8(at, out.ids[column.index]) && (at += 8, true);
    if (!read) {
      const char* stop = field_end(at, end, separator);
      if (!parse_field(column, at, stop, out)) return false;
      at = stop;
    }
    if (at == end) return fields >= layout.least_fields;
    ++at;
  }
  return false;  // more fields than columns
}

std::string explain_line(const TextLayout& layout, std::string_view line) {
  if (line.empty()) return "the line is empty";
  const std::vector<std::string_view> fields = fields_of(line, layout.separator);
  if (fields.size() > layout.columns.size())
    return fmt::format("column {}: the line has {} fields, not {}", layout.columns.size() + 1, fields.size(),
                       layout.columns.size());
  std::vector<float> dense(static_cast<size_t>(layout.dense));
  std::vector<uint32_t> ids(static_cast<size_t>(layout.tables));
  ClickLine out{0, dense.data(), ids.data()};
  for (size_t c = 0; c < fields.size(); ++c) {
    const TextColumn& column = layout.columns[c];
    const std::string_view field = fields[c];
    if (parse_field(column, field.data(), field.data() + field.size(), out)) continue;
    constexpr size_t kShown = 40;
    const std::string_view what = column.kind == TextColumn::Kind::Label ? "a label: 0 or 1"
                                  : column.kind == TextColumn::Kind::Dense
                                      ? "a number"
                                      : "a hash: up to 8 hexadecimal digits";
    return fmt::format("column {}: '{}'{} is not {}", column.name, field.substr(0, kShown),
                       field.size() > kShown ? "..." : "", what);
  }
  return fmt::format("column {}: the line ends after {} fields; it has {}, of which {} must be there",
                     layout.columns[std::min(fields.size(), layout.columns.size() - 1)].name, fields.size(),
                     layout.columns.size(), layout.least_fields);
}

TextLayout criteo_layout(bool labels) {
  TextLayout layout;
  layout.labels = labels;
  if (labels) layout.columns.push_back({TextColumn::Kind::Label, 0, "label"});
  for (int d = 0; d < 13; ++d)
    layout.columns.push_back({TextColumn::Kind::Dense, d, fmt::format("I{}", d + 1)});
  for (int t = 0; t < 26; ++t) layout.columns.push_back({TextColumn::Kind::Id, t, fmt::format("C{}", t + 1)});
  layout.least_fields = layout.columns.size() - 26;
  return layout;
}

std::string_view take_line(std::string_view& text) {
  const char* end = field_end(text.data(), text.data() + text.size(), '\n');
  std::string_view line = text.substr(0, static_cast<size_t>(end - text.data()));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

namespace {

// Whether more of the first lines can be read without a label than with one.
bool lacks_labels(std::string_view text) {
  const TextLayout with = criteo_layout(true);
  const TextLayout without = criteo_layout(false);
  float dense[13];
  uint32_t ids[26];
  ClickLine out{0, dense, ids};
  int labelled = 0;
  int bare = 0;
  for (int i = 0; i < 1000 && !text.empty(); ++i) {
    const std::string_view line = take_line(text);
    const bool first = parse_line(with, line, out);
    const bool second = parse_line(without, line, out);
    labelled += first && !second ? 1 : 0;
    bare += second && !first ? 1 : 0;
  }
  return bare > labelled;
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
  std::string name = lower(field);
  if (name.size() >= 2 && name.front() == '"' && name.back() == '"') name = name.substr(1, name.size() - 2);
  const std::string shown(field);
  if (name == "label" || name == "click" || name == "clicked") return {TextColumn::Kind::Label, 0, shown};
  for (const std::string_view prefix : {"i", "dense_", "int_", "num_"})
    if (const auto number = number_after(name, prefix)) return {TextColumn::Kind::Dense, *number, shown};
  for (const std::string_view prefix : {"c", "cat_"})
    if (const auto number = number_after(name, prefix)) return {TextColumn::Kind::Id, *number, shown};
  return {TextColumn::Kind::Ignored, 0, shown};
}

// Columns of one kind are numbered without gaps from 0 or from 1.
int number_columns(std::vector<TextColumn>& columns, TextColumn::Kind kind, const std::string& path) {
  std::map<int, TextColumn*> by_number;
  for (TextColumn& column : columns) {
    if (column.kind != kind) continue;
    if (!by_number.emplace(column.index, &column).second)
      bad_input("{}:1: the header has column {} twice", path, column.name);
  }
  int next = 0;
  for (const auto& [number, column] : by_number) {
    const int first = by_number.begin()->first;
    if (first > 1 || number != first + next)
      bad_input("{}:1: the header lacks a column before {}: their numbers begin at 0 or 1 and have no gap",
                path, column->name);
    column->index = next++;
  }
  return next;
}

TextLayout csv_layout(std::string_view header, const std::string& path) {
  TextLayout layout;
  layout.separator = ',';
  layout.header = true;
  for (const std::string_view field : fields_of(header, ',')) layout.columns.push_back(header_column(field));
  const auto labels = std::count_if(layout.columns.begin(), layout.columns.end(),
                                    [](const TextColumn& c) { return c.kind == TextColumn::Kind::Label; });
  if (labels > 1) bad_input("{}:1: the header has {} columns of labels", path, labels);
  layout.labels = labels == 1;
  layout.dense = number_columns(layout.columns, TextColumn::Kind::Dense, path);
  layout.tables = number_columns(layout.columns, TextColumn::Kind::Id, path);
  if (layout.tables == 0)
    bad_input("{}:1: the header names no column of ids (C1, C2 ... or cat_0, cat_1 ...)", path);
  // Only columns at the end may be left out of a line, and never the label or a number.
  layout.least_fields = 1;
  for (size_t c = 0; c < layout.columns.size(); ++c)
    if (layout.columns[c].kind == TextColumn::Kind::Label ||
        layout.columns[c].kind == TextColumn::Kind::Dense)
      layout.least_fields = c + 1;
  return layout;
}

}  // namespace

TextLayout find_layout(const MappedFile& file) {
  std::string_view text = text_of(file);
  if (text.empty()) bad_input("{}: the file is empty", file.path());
  const std::string_view whole = text;
  const std::string_view first = take_line(text);
  if (first.find('\t') == std::string_view::npos && first.find(',') != std::string_view::npos)
    return csv_layout(first, file.path());
  return criteo_layout(!lacks_labels(whole));
}

void TextReport::add(const std::string& file, int64_t line_number, const std::string& problem) {
  ++malformed;
  if (std::ssize(shown) < kShown) shown.push_back(fmt::format("{}:{}: {}", file, line_number, problem));
}

void TextReport::append(const TextReport& other) {
  lines += other.lines;
  malformed += other.malformed;
  for (const std::string& line : other.shown)
    if (std::ssize(shown) < kShown) shown.push_back(line);
}

std::string TextReport::text() const {
  if (malformed == 0) return "";
  std::string result = fmt::format("{} of {} lines are malformed and left out:", malformed, lines);
  for (const std::string& line : shown) result += "\n  " + line;
  if (malformed > std::ssize(shown)) result += fmt::format("\n  and {} more", malformed - std::ssize(shown));
  return result;
}

}  // namespace trifold
