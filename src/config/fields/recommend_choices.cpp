#include "config/fields/recommend_choices.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "core/printable.h"

namespace trifold {

namespace {

constexpr std::string_view kOfData = "data";
constexpr std::string_view kAuto = "auto";

std::optional<std::vector<int64_t>> numbers_of(std::string_view list) {
  std::vector<int64_t> numbers;
  while (true) {
    const size_t end = std::min(list.find_first_of("-,"), list.size());
    int64_t number = 0;
    const auto result = std::from_chars(list.data(), list.data() + end, number);
    if (result.ec != std::errc() || result.ptr != list.data() + end || number < 1) return std::nullopt;
    numbers.push_back(number);
    if (end == list.size()) return numbers;
    list.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t end = std::min(list.find(','), list.size());
    words.push_back(list.substr(0, end));
    if (end == list.size()) return words;
    list.remove_prefix(end + 1);
  }
}

}  // namespace

NumberList::NumberList(std::vector<int64_t> numbers)
    : numbers_(std::move(numbers)), spelled_(fmt::format("{}", fmt::join(numbers_, "-"))) {}

NumberList NumberList::parse(std::string_view text) {
  auto numbers = numbers_of(text);
  if (!numbers)
    bad_input("'{}' is not a list of numbers, {}, like 512-256-64 or 5,10", printable(text), kBounds);
  NumberList list(std::move(*numbers));
  list.spelled_ = text;
  return list;
}

TableRows TableRows::parse(std::string_view text) {
  if (text == kOfData) return {};
  return {NumberList::parse(text)};
}

std::string TableRows::text() const { return list ? list->text() : std::string(kOfData); }

TablePlacements TablePlacements::parse(std::string_view text) {
  TablePlacements placements;
  if (text == kAuto) return placements;
  for (const std::string_view word : words_of(text)) {
    const auto kind = value_named<PlacementKind>(word);
    if (!kind)
      bad_input("{}: '{}' is none of table, row, column, replicated", printable(text), printable(word));
    placements.kinds.push_back(*kind);
  }
  return placements;
}

std::string TablePlacements::text() const {
  if (is_auto()) return std::string(kAuto);
  std::vector<std::string_view> names;
  for (const PlacementKind kind : kinds) names.push_back(name_of(kind));
  return fmt::format("{}", fmt::join(names, ","));
}

namespace {

// Removes the first name, with the comma after it, from `rest`. nullopt if a quote is not closed.
std::optional<std::string> take_name(std::string_view& rest) {
  std::string name;
  if (!rest.starts_with('"')) {
    const size_t end = std::min(rest.find(','), rest.size());
    name = rest.substr(0, end);
    rest.remove_prefix(end);
    return name;
  }
  rest.remove_prefix(1);
  while (true) {
    const size_t end = rest.find('"');
    if (end == std::string_view::npos) return std::nullopt;
    name += rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (!rest.starts_with('"')) break;
    name.push_back('"');  // a doubled quote stands for one
    rest.remove_prefix(1);
  }
  if (!rest.empty() && !rest.starts_with(',')) return std::nullopt;
  return name;
}

std::string in_quotes(const std::string& name) {
  std::string text = "\"";
  for (const char c : name) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + '"';
}

}  // namespace

ColumnNames ColumnNames::parse(std::string_view text) {
  ColumnNames columns;
  for (std::string_view rest = text;; rest.remove_prefix(1)) {
    const std::optional<std::string> name = take_name(rest);
    if (!name)
      bad_input(
          "'{}' has a quote that is not closed; a name with commas stands between quotes, like \"a,b\",c",
          printable(text));
    if (name->empty())
      bad_input("'{}' has a column without a name; names are separated by commas, like age,hours",
                printable(text));
    columns.names.push_back(*name);
    if (rest.empty()) return columns;
  }
}

std::string ColumnNames::text() const {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ',';
    text += name.find_first_of(",\"") == std::string::npos ? name : in_quotes(name);
  }
  return text;
}

namespace {

struct NamedCharacter {
  std::string_view word;
  char character;
};
constexpr NamedCharacter kBagSeparators[] = {{"space", ' '}, {"tab", '\t'}, {"comma", ','}};

char bag_separator(std::string_view text, const std::string& shown) {
  for (const NamedCharacter& one : kBagSeparators)
    if (text == one.word) return one.character;
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
    bad_input(
        "'{}': '{}' is not a separator: give one character other than a quote, or the word space, tab or comma",
        shown, printable(text));
  return text.front();
}

std::string bag_separator_text(char character) {
  for (const NamedCharacter& one : kBagSeparators)
    if (character == one.character) return std::string(one.word);
  return std::string(1, character);
}

}  // namespace

ColumnPairs ColumnPairs::parse(std::string_view text) {
  const std::string shown = printable(text);
  ColumnPairs pairs;
  for (const std::string& word : ColumnNames::parse(text).names) {
    const size_t colon = word.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == word.size() ||
        word.find(':', colon + 1) != std::string::npos)
      bad_input("'{}' is not a list of pairs of columns, such as history:item", shown);
    std::string first = word.substr(0, colon), second = word.substr(colon + 1);
    if (first == second)
      bad_input("'{}' pairs the column {} with itself: name another column as its candidate", shown, first);
    for (const auto& pair : pairs.pairs)
      if (pair.first == first) bad_input("'{}' has two pairs for the column {}", shown, first);
    pairs.pairs.emplace_back(std::move(first), std::move(second));
  }
  return pairs;
}

std::string ColumnPairs::text() const {
  ColumnNames words;
  for (const auto& [first, second] : pairs) words.names.push_back(fmt::format("{}:{}", first, second));
  return words.text();
}

BagColumns BagColumns::parse(std::string_view text) {
  const std::string shown = printable(text);
  BagColumns bags;
  for (const std::string& word : ColumnNames::parse(text).names) {
    if (word.find(':') == std::string::npos) {
      bags.columns.push_back({word, '\0'});
      continue;
    }
    const size_t colon = word.size() < 2
                             ? std::string::npos
                             : word.rfind(':', word.size() - 2);  // the separator itself may be a colon
    if (colon == std::string::npos || colon == 0)
      bad_input("'{}' is not a column and its separator, such as genres:| or tags:space", shown);
    bags.columns.push_back(
        {word.substr(0, colon), bag_separator(std::string_view(word).substr(colon + 1), shown)});
  }
  return bags;
}

std::string BagColumns::text() const {
  ColumnNames words;
  for (const Column& column : columns)
    words.names.push_back(column.separator == '\0'
                              ? column.name
                              : fmt::format("{}:{}", column.name, bag_separator_text(column.separator)));
  return words.text();
}

Separator Separator::parse(std::string_view text) {
  if (text == "tab" || text == "\\t") return {'\t'};
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
    bad_input(
        "'{}' is not a separator: give one character other than a quote, or the word tab{}", printable(text),
        text == "::" ? "; with --separator : every second column is empty, and --columns names it too" : "");
  return {text.front()};
}

std::string Separator::text() const { return character == '\t' ? "tab" : std::string(1, character); }

namespace {

struct Comparison {
  std::string_view sign;
  LabelRule::Is is;
};
// Longest first, so that >= is not read as >.
constexpr Comparison kComparisons[] = {{">=", LabelRule::Is::GreaterEqual}, {"<=", LabelRule::Is::LessEqual},
                                       {"==", LabelRule::Is::Equal},        {"!=", LabelRule::Is::Unequal},
                                       {"^=", LabelRule::Is::Begins},       {">", LabelRule::Is::Greater},
                                       {"<", LabelRule::Is::Less}};

}  // namespace

LabelRule LabelRule::parse(std::string_view text) {
  LabelRule rule;
  size_t sign = text.find_first_of("<>=!");
  if (sign != std::string_view::npos && sign > 0 && text.substr(sign - 1).starts_with("^=")) --sign;
  rule.column = text.substr(0, sign);
  const std::string shown = printable(text);
  if (rule.column.empty()) bad_input("'{}' names no column: give label, or rating>=4", shown);
  if (sign == std::string_view::npos) return rule;
  std::string_view rest = text.substr(sign);
  const auto* found = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                   [&](const Comparison& one) { return rest.starts_with(one.sign); });
  if (found == std::end(kComparisons))
    bad_input("'{}' has none of the comparisons >= <= == != ^= > <; it looks like rating>=4", shown);
  rest.remove_prefix(found->sign.size());
  if (rest.empty()) bad_input("'{}' has no value after {}; it looks like rating>=4", shown, found->sign);
  rule.is = found->is;
  rule.value = rest;
  double number = 0;
  const char* const begin = rest.data() + (rest.starts_with('+') && !rest.starts_with("+-") ? 1 : 0);
  const auto [stop, error] = std::from_chars(begin, rest.data() + rest.size(), number);
  const bool is_number = error == std::errc() && stop == rest.data() + rest.size() && std::isfinite(number);
  if (is_number && rule.is != Is::Begins) rule.number = number;
  if (!is_number && rule.is != Is::Equal && rule.is != Is::Unequal && rule.is != Is::Begins)
    bad_input("'{}' compares with '{}', which is not a number: texts are compared by ==, != and ^=", shown,
              printable(rule.value));
  return rule;
}

std::string LabelRule::text() const {
  for (const Comparison& one : kComparisons)
    if (one.is == is) return fmt::format("{}{}{}", column, one.sign, value);
  return column;
}

LabelRules LabelRules::parse(std::string_view text) {
  LabelRules labels;
  for (const std::string& word : ColumnNames::parse(text).names)
    labels.rules.push_back(LabelRule::parse(word));
  return labels;
}

std::string LabelRules::text() const {
  ColumnNames words;
  for (const LabelRule& rule : rules) words.names.push_back(rule.text());
  return words.text();
}

WeightList WeightList::parse(std::string_view text) {
  WeightList list;
  for (const std::string_view word : words_of(text)) {
    double weight = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), weight);
    if (error != std::errc() || stop != word.data() + word.size() || !(weight > 0) || !std::isfinite(weight))
      bad_input("'{}' is not a list of numbers, {}, like 1,0.5", printable(text), kBounds);
    list.weights.push_back(weight);
  }
  return list;
}

std::string WeightList::text() const { return fmt::format("{}", fmt::join(weights, ",")); }

}  // namespace trifold
