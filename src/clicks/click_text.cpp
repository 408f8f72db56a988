#include "clicks/click_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/printable.h"

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

// A hash of exactly eight digits that ends at `separator` or `end`; moves `at` there. False: some other form of id.
bool parse_hash8(const char*& at, const char* end, char separator, uint64_t& value) {
  uint32_t hash = 0;
  if (end - at < 8 || (end - at > 8 && at[8] != separator) || !parse_hex8(at, hash)) return false;
  value = hash;
  at += 8;
  return true;
}

// A whole number of up to 9 digits that ends at `separator` or `end`; moves `at` there. False: another notation, or not
// a number.
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

const char* field_end(const char* begin, const char* end, char separator) {
  const void* found = std::memchr(begin, separator, static_cast<size_t>(end - begin));
  return found != nullptr ? static_cast<const char*>(found) : end;
}

// The field that begins at `at`, which moves to the next separator or to the end. It may be quoted, and then contain
// separators and doubled quotes.
TextField next_field(const char*& at, const char* end, char separator, bool quotes) {
  const char* const begin = at;
  const bool opens = quotes && begin < end && *begin == '"';
  if (opens) {
    const char* quote = begin + 1;
    while (true) {
      quote = field_end(quote, end, '"');
      if (quote == end || quote + 1 == end || quote[1] != '"') break;
      quote += 2;
    }
    if (quote < end && (quote + 1 == end || quote[1] == separator)) {
      at = quote + 1;
      return {{begin + 1, static_cast<size_t>(quote - begin - 1)}, true};
    }
  }
  at = field_end(begin, end, separator);
  return {{begin, static_cast<size_t>(at - begin)}, false, opens};
}

ClickBag& bag_of(const TextLayout& layout, const TextColumn& role, ClickRow& row) {
  return row.bags[static_cast<size_t>(role.index - (layout.tables - layout.bags))];
}

// Puts a field into the row. Data sets of texts as written keep the blanks between quotes only.
bool parse_field(const TextLayout& layout, const TextColumn& role, const TextField& field, ClickRow& row) {
  if (field.open && layout.named) return false;
  std::string room;
  const std::string_view text = plain_text(field, room);
  if (role.kind == TextColumn::Kind::Label && !layout.named && (text == "0" || text == "1")) {
    row.labels[0] = text == "1" ? 1 : 0;  // nearly every line's
    return true;
  }
  if (role.kind == TextColumn::Kind::BagWeights)
    return add_weights_to_bag(role.bag, text, bag_of(layout, role, row));
  if (role.kind == TextColumn::Kind::Id && role.paired)
    return add_paired_texts_to_bag(layout.rules, role.bag, text, bag_of(layout, role, row));
  if (role.kind == TextColumn::Kind::Id && role.bag != '\0')
    return add_texts_to_bag(layout.rules, role.bag, role.weighted, text, bag_of(layout, role, row));
  return put_cell(layout, role, Cell(field.quoted ? text : without_blanks(text)), row);
}

}  // namespace

ClickRow::ClickRow(const TextLayout& layout)
    : labels(static_cast<size_t>(std::max(layout.labels, 1))),
      ids(static_cast<size_t>(layout.tables)),
      bags(static_cast<size_t>(layout.bags)),
      kept(static_cast<size_t>(layout.kept)),
      absent_label_(layout.labeled && layout.labels > 0 ? kNoLabel : 0) {}

void ClickRow::begin(float* memory) {
  dense = memory;
  std::fill(labels.begin(), labels.end(), absent_label_);
  for (ClickBag& bag : bags) bag.clear();
}

bool put_cell(const TextLayout& layout, const TextColumn& role, const Cell& cell, ClickRow& row) {
  const auto put = [](const auto& found, auto& place) {
    if (found) place = *found;
    return found.has_value();
  };
  const auto index = static_cast<size_t>(role.index);
  const auto put_feature = [&](const Cell& value) {
    return role.kind == TextColumn::Kind::Dense
               ? put(dense_in(layout.rules, value), row.dense[index])
               : put(id_in(layout.rules, layout.base, value), row.ids[index]);
  };
  switch (role.kind) {
    case TextColumn::Kind::Label:
      return put(label_in(layout.rules, role.index, cell), row.labels[index]);
    case TextColumn::Kind::Dense:
    case TextColumn::Kind::Id: {
      if (!role.part) return put_feature(cell);
      const std::optional<Cell> part = part_in(layout.rules, cell, *role.part);
      return part && put_feature(*part);
    }
    case TextColumn::Kind::Weight:
      return put(weight_in(cell), row.weight);
    case TextColumn::Kind::Time:
      return put(time_in(cell), row.time);
    case TextColumn::Kind::Kept:
      row.kept[index] = std::holds_alternative<std::monostate>(cell) ? "" : shown_text(cell);
      return true;
    case TextColumn::Kind::BagWeights:
    case TextColumn::Kind::Ignored:
      return true;
  }
  return false;
}

bool finish_bags(const TextLayout& layout, ClickRow& row) {
  if (!layout.paired_bags) return true;
  for (const TextColumn& column : layout.columns) {
    const bool fits = for_each_role(column, [&](const TextColumn& role) {
      return !role.paired || finish_paired_bag(bag_of(layout, role, row));
    });
    if (!fits) return false;
  }
  return true;
}

bool is_labelled(const TextLayout& layout, const ClickRow& row) {
  return layout.labels < 2 || layout.rules.need != LabelNeed::Required ||
         std::any_of(row.labels.begin(), row.labels.end(), [](uint8_t label) { return label != kNoLabel; });
}

std::string_view plain_text(const TextField& field, std::string& room) {
  if (!field.quoted || field.text.find("\"\"") == std::string_view::npos) return field.text;
  room.clear();
  for (size_t i = 0; i < field.text.size(); ++i) {
    room.push_back(field.text[i]);
    if (field.text[i] == '"') ++i;  // its double
  }
  return room;
}

std::vector<TextField> fields_of(std::string_view line, char separator, bool quotes) {
  std::vector<TextField> fields;
  const char* at = line.empty() ? "" : line.data();
  const char* const end = at + line.size();
  while (true) {
    fields.push_back(next_field(at, end, separator, quotes));
    if (at == end) return fields;
    ++at;
  }
}

// Most fields are short integers and hashes of exactly eight digits, which are parsed in place; for all others the end
// is found first.
bool parse_line(const TextLayout& layout, std::string_view line, ClickRow& row) {
  std::fill(row.dense, row.dense + layout.dense, kMissing);
  std::fill(row.ids.begin(), row.ids.end(), uint64_t{0});
  for (std::string& text : row.kept) text.clear();
  const char* at = line.empty() ? "" : line.data();  // an empty view's address may be null
  const char* const end = at + line.size();
  const char separator = layout.separator;
  const bool hashes = layout.base == IdBase::Hexadecimal;
  size_t fields = 0;
  for (const TextColumn& column : layout.columns) {
    ++fields;
    const bool in_place = !layout.named && column.also.empty();
    const auto index = static_cast<size_t>(column.index);
    const bool read = in_place && (column.kind == TextColumn::Kind::Dense
                                       ? parse_whole(at, end, separator, row.dense[index])
                                       : hashes && column.kind == TextColumn::Kind::Id &&
                                             parse_hash8(at, end, separator, row.ids[index]));
    if (!read) {
      const TextField field = next_field(at, end, separator, layout.quotes);
      const auto parse = [&](const TextColumn& role) { return parse_field(layout, role, field, row); };
      if (!for_each_role(column, parse)) return false;
    }
    if (at == end)
      return fields >= layout.least_fields && is_labelled(layout, row) && finish_bags(layout, row);
    ++at;
  }
  return false;  // more fields than columns
}

std::string wanted_value(const TextLayout& layout, const TextColumn& role) {
  using enum TextColumn::Kind;
  if (role.part) return "a date or time (ISO 8601, or seconds since 1970)";
  switch (role.kind) {
    case Label: {
      if (!layout.named) return "a label: 0 or 1";
      const LabelRule& rule = layout.rules.labels[static_cast<size_t>(role.index)];
      if (rule.is == LabelRule::Is::True) return "a label: 0, 1, false or true";
      return fmt::format("{}, which --label {} needs", rule.number ? "a number" : "a text", rule.text());
    }
    case Dense:
      return layout.named ? "a number, false, true or one of --missing-values" : "a number";
    case BagWeights:
      return "a list of weights, which are numbers";
    case Weight:
      return "the weight of a sample: a number of 0 or more";
    case Time:
      return "a date, a time (ISO 8601) or a number";
    default:
      return "";
  }
}

namespace {

constexpr size_t kShownBytes = 40;  // most bytes of a field

std::string wanted(const TextLayout& layout, const TextColumn& role) {
  if (role.kind == TextColumn::Kind::Id && role.weighted && !role.paired)
    return fmt::format("a list of weighted texts such as a:0.5{}b:2",
                       role.bag == '\t' ? "<tab>" : std::string(1, role.bag));
  if (std::string value = wanted_value(layout, role); !value.empty()) return value;
  return layout.base == IdBase::Hexadecimal ? "a hash: up to 8 hexadecimal digits"
                                            : "an id: a decimal number from 0 to 18446744073709551615";
}

LineProblem explain_quote(const TextLayout& layout, const TextColumn& column, std::string_view text) {
  return {fmt::format("column {} has an unclosed quote", column.name),
          fmt::format(
              "column {}: {} has a quote that is not closed before the next {}; double the quotes inside a "
              "field, and end each field on its line, or give --quoting none if quotes are plain characters",
              column.name, printable(text, kShownBytes),
              layout.separator == '\t' ? "tab" : fmt::format("'{}'", layout.separator))};
}

LineProblem explain_field(const TextLayout& layout, const TextColumn& column, const TextField& field) {
  const std::string_view text = without_blanks(field.text);
  const MissingValues& missing = layout.rules.missing;
  if (column.kind == TextColumn::Kind::Label && !text.empty() &&
      (missing.has_text(text) || missing.has_number(number_of(Cell(text)).value_or(kMissing))))
    return {fmt::format("column {} is missing", column.name),
            fmt::format("column {}: '{}' is one of --missing-values, and a sample needs its label",
                        column.name, printable(text, kShownBytes))};
  return {fmt::format("column {} is not {}", column.name, kind_name(column)),
          fmt::format("column {}: '{}' is not {}", column.name, printable(field.text, kShownBytes),
                      wanted(layout, column))};
}

LineProblem explain_missing_fields(const TextLayout& layout, size_t fields) {
  const size_t all = layout.columns.size(), least = layout.least_fields;
  return {"too few fields", fmt::format("column {}: missing; the line has {} of {} fields{}",
                                        layout.columns[std::min(fields, all - 1)].name, fields, all,
                                        least < all ? fmt::format(", and needs at least {}", least) : "")};
}

}  // namespace

std::string kind_name(const TextColumn& role) {
  if (role.weighted && !role.paired) return "a list of weighted texts";
  if (role.part) return "a date or time";
  switch (role.kind) {
    case TextColumn::Kind::Label:
      return "a label";
    case TextColumn::Kind::Dense:
      return "a number";
    case TextColumn::Kind::BagWeights:
      return "a list of weights";
    case TextColumn::Kind::Weight:
      return "a weight";
    case TextColumn::Kind::Time:
      return "a date or time";
    default:
      return "an id";
  }
}

LineProblem explain_line(const TextLayout& layout, std::string_view line) {
  const std::vector<TextField> fields = fields_of(line, layout.separator, layout.quotes);
  for (size_t c = 0; layout.named && c < std::min(fields.size(), layout.columns.size()); ++c)
    if (fields[c].open) return explain_quote(layout, layout.columns[c], fields[c].text);
  if (fields.size() > layout.columns.size())
    return {"too many fields", fmt::format("column {}: the line has {} fields, not {}",
                                           layout.columns.size() + 1, fields.size(), layout.columns.size())};
  std::vector<float> dense(static_cast<size_t>(layout.dense));
  ClickRow row(layout);
  row.begin(dense.data());
  for (size_t c = 0; c < fields.size(); ++c) {
    const TextColumn* wrong = nullptr;
    for_each_role(layout.columns[c], [&](const TextColumn& role) {
      if (!parse_field(layout, role, fields[c], row)) wrong = &role;
      return wrong == nullptr;
    });
    if (wrong != nullptr) return explain_field(layout, *wrong, fields[c]);
  }
  if (fields.size() < layout.least_fields) return explain_missing_fields(layout, fields.size());
  if (!is_labelled(layout, row)) return {"no label", "it has none of its labels"};
  return kUnequalBag;
}

std::string shown_id(const TextLayout& layout, std::string_view line, int table) {
  const std::vector<TextField> fields = fields_of(line, layout.separator, layout.quotes);
  for (size_t c = 0; c < fields.size() && c < layout.columns.size(); ++c) {
    const TextColumn& column = layout.columns[c];
    if (column.kind != TextColumn::Kind::Id || column.index != table) continue;
    const std::string_view field = fields[c].text;
    if (layout.base != IdBase::Hexadecimal) return std::string(field);
    return fmt::format("'{}' (hexadecimal, {} in decimal)", field,
                       id_in(layout.rules, layout.base, field).value_or(0));
  }
  return "0 (missing)";
}

std::optional<std::string_view> take_line(std::string_view& text) {
  const char* const begin = text.data();
  const size_t searched = std::min(text.size(), kLongestClickLine + 1);
  const auto size = static_cast<size_t>(field_end(begin, begin + searched, '\n') - begin);
  if (size > kLongestClickLine) return std::nullopt;
  std::string_view line = text.substr(0, size);
  text.remove_prefix(std::min(size + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void refuse_long_line(const std::string& file, int64_t line_number) {
  bad_input(
      "{}:{}: the line has more than {} bytes, the limit for a line of clicks; "
      "each click needs a line of its own that ends in LF or CRLF",
      file, line_number, kLongestClickLine);
}

bool is_blank_line(std::string_view line, char separator) {
  return std::all_of(line.begin(), line.end(),
                     [&](char c) { return (c == ' ' || c == '\t') && c != separator; });
}

}  // namespace trifold
