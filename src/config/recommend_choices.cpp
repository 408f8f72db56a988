#include "config/recommend_choices.h"

#include <algorithm>
#include <charconv>

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
    bad_input("'{}' is no list of numbers of 1 or more, like 512-256-64", printable(std::string(text)));
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
      bad_input("{}: '{}' is none of table, row, column, replicated", printable(std::string(text)),
                printable(std::string(word)));
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

}  // namespace trifold
