#include "config/options/option.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <type_traits>

#include "config/fields/nearest.h"
#include "config/fields/number.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {
namespace {

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

std::string joined(std::span<const std::string> words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words.begin(), words.end(), separator));
}

size_t choice_index(const Option& option, const std::string& word) {
  for (size_t i = 0; i < option.allowed.size(); ++i)
    if (folded(option.allowed[i]) == folded(word)) return i;
  const std::string allowed = joined(option.allowed, ", ");
  const std::vector<std::string> close = similar(folded(word), option.allowed);
  const std::string guess =
      close.empty() ? "" : fmt::format(" (did you mean '{}'?)", fmt::join(close, "' or '"));
  bad_input("--{} '{}' is not known{}: give one of {}", option.name, printable(word), guess, allowed);
}

bool parse_bool(const std::string& word) {
  if (word == "true") return true;
  if (word == "false") return false;
  bad_input("'{}' is neither true nor false", word);
}

std::string choice_or_text(const Option& option, const std::string& word) {
  return option.allowed.empty() ? word : option.allowed[choice_index(option, word)];
}

// Parses one word as a value of type T.
template <class T>
T parse_word(const Option& option, const std::string& word) {
  if constexpr (std::is_same_v<T, bool>) return parse_bool(word);
  if constexpr (std::is_same_v<T, int>) return parse_int(word);
  if constexpr (std::is_same_v<T, int64_t>) return parse_int64(word);
  if constexpr (std::is_same_v<T, uint64_t>) return parse_uint64(word);
  if constexpr (std::is_same_v<T, double>) return parse_double(word);
  if constexpr (std::is_same_v<T, std::string>) return choice_or_text(option, word);
}

// A list of choices may be written with commas: --what step,gemm.
std::vector<std::string> parse_list(const Option& option, std::span<const std::string> words) {
  if (option.allowed.empty()) return {words.begin(), words.end()};
  std::vector<std::string> result;
  for (const std::string& word : words)
    for (size_t begin = 0; begin <= word.size();) {
      const size_t end = std::min(word.find(',', begin), word.size());
      result.push_back(choice_or_text(option, word.substr(begin, end - begin)));
      begin = end + 1;
    }
  return result;
}

std::string print_value(const Option&, bool value) { return value ? "true" : "false"; }
std::string print_value(const Option&, int value) { return std::to_string(value); }
std::string print_value(const Option&, int64_t value) { return std::to_string(value); }
std::string print_value(const Option&, uint64_t value) { return std::to_string(value); }
std::string print_value(const Option&, double value) { return format_double(value); }
std::string print_value(const Option&, const std::string& value) { return value; }

std::optional<Problem> out_of_range(const Option& option, double value, bool whole) {
  const Range& range = option.bounds;
  const bool low_ok = range.above ? value > range.low : value >= range.low;
  const bool high_ok = range.below ? value < range.high : value <= range.high;
  if (low_ok && high_ok && !std::isnan(value)) return std::nullopt;
  std::string bounds = describe(range, whole);
  if (bounds.empty()) bounds = "a finite number";
  if (option.required && value == 0)
    return Problem{
        .options = {option.name},
        .wrong = fmt::format("--{} needs a value", option.name),
        .right = described_bounds(option) + (option.instead.empty() ? "" : "; or give --" + option.instead),
        .missing = true};
  return Problem{{option.name},
                 fmt::format("--{} {} is not possible", option.name, value_text(option)),
                 "it must be " + bounds};
}

// A name without an ending is always accepted.
bool has_other_ending(const Option& option, const std::string& value) {
  if (option.ending.empty()) return false;
  const std::string ending = std::filesystem::path(value).extension().string();
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == b; };
  return !ending.empty() &&
         !std::equal(ending.begin(), ending.end(), option.ending.begin(), option.ending.end(), same);
}

std::optional<Problem> text_problem(const Option& option, const std::string& value) {
  if (value.empty() && option.required)
    return Problem{{option.name}, fmt::format("--{} needs a value", option.name), option.argument};
  if (value.empty() && option.use != FileUse::None)
    return Problem{{option.name}, fmt::format("--{} is empty", option.name), "name a file or folder"};
  if (has_other_ending(option, value))
    return Problem{{option.name},
                   fmt::format("--{} {} is not possible: the file is written as {}", option.name, value,
                               option.ending.substr(1)),
                   fmt::format("give a name that ends in {}", option.ending)};
  const auto& allowed = option.allowed;
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end())
    return std::nullopt;
  return Problem{{option.name},
                 fmt::format("--{} '{}' is not known", option.name, value),
                 "possible: " + joined(allowed, ", ")};
}

template <class T>
std::optional<Problem> field_problem(const Option& option, const T& value) {
  if constexpr (IsOptional<T>::value) {
    return value ? field_problem(option, *value) : std::nullopt;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text_problem(option, value);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    if (value.empty()) return option.required ? text_problem(option, "") : std::nullopt;
    for (const std::string& word : value)
      if (auto problem = text_problem(option, word)) return problem;
    return std::nullopt;
  } else if constexpr (std::is_same_v<T, bool>) {
    return std::nullopt;
  } else {
    return out_of_range(option, static_cast<double>(value), !std::is_same_v<T, double>);
  }
}

}  // namespace

Option& Option::need(std::string other) {
  required = true;
  instead = std::move(other);
  return *this;
}
Option& Option::range(double low, double high) {
  bounds = {low, high, false, false};
  return *this;
}
Option& Option::positive() {
  bounds = {0, std::numeric_limits<double>::max(), true, false};
  return *this;
}
Option& Option::at_least(double low) {
  bounds = {low, std::numeric_limits<double>::max(), false, false};
  return *this;
}
Option& Option::fraction() {
  bounds = {0, 1, false, true};
  return *this;
}
Option& Option::one_of(std::vector<std::string> names) {
  argument = joined(names, "|");
  allowed = std::move(names);
  return *this;
}
Option& Option::reads(std::string what) { return names(std::move(what), FileUse::Read); }
Option& Option::writes(std::string what, std::vector<OutputMark> formats) {
  return names(std::move(what), FileUse::Written, std::move(formats));
}
Option& Option::names(std::string what, FileUse file_use, std::vector<OutputMark> formats) {
  use = file_use;
  marks = std::move(formats);
  return takes(std::move(what));
}
Option& Option::written_as(std::string end) {
  ending = std::move(end);
  return *this;
}
Option& Option::suggest(std::vector<std::string> names) {
  suggested = std::move(names);
  return *this;
}
Option& Option::optional() {
  required = false;
  return *this;
}
Option& Option::also(std::string alias) {
  aliases.push_back(std::move(alias));
  return *this;
}
Option& Option::formerly(std::string old_name, std::string rejected_from) {
  old_spellings.push_back({std::move(old_name), std::move(rejected_from)});
  return *this;
}
Option& Option::absent(std::string text) {
  when_absent = std::move(text);
  return *this;
}
Option& Option::takes(std::string what) {
  argument = std::move(what);
  return *this;
}
Option& Option::of_host() {
  local = true;
  return *this;
}
Option& Option::of_all_hosts() {
  common = true;
  return of_host();
}
Option& Option::of_execution() {
  incidental = true;
  return *this;
}

Option& Option::needs(When other, std::string_view because, std::string_view remedy) {
  rules.push_back({.kind = Rule::Kind::Needs, .other = other, .because = because, .remedy = remedy});
  return *this;
}
Option& Option::excludes(When other, std::string_view because, std::string_view remedy) {
  rules.push_back({.kind = Rule::Kind::Excludes, .other = other, .because = because, .remedy = remedy});
  return *this;
}
Option& Option::only_with(When other, std::string_view because, std::string_view remedy) {
  rules.push_back({.kind = Rule::Kind::OnlyWith, .other = other, .because = because, .remedy = remedy});
  return *this;
}
Option& Option::no_effect_with(When other, std::string_view because, std::string_view remedy) {
  rules.push_back({.kind = Rule::Kind::NoEffectWith, .other = other, .because = because, .remedy = remedy});
  return *this;
}
Option& Option::compares(Relation relation, const char* other, std::string_view because,
                         std::string_view remedy) {
  rules.push_back({.kind = Rule::Kind::Compares,
                   .relation = relation,
                   .other = other,
                   .because = because,
                   .remedy = remedy});
  return *this;
}
Option& Option::only_for(std::string_view values) {
  rules.back().values = values;
  return *this;
}
Option& Option::provided(When other) {
  rules.back().provided = other;
  return *this;
}
Option& Option::unless(When other) {
  rules.back().unless = other;
  return *this;
}
Option& Option::as_note() {
  rules.back().severity = Severity::Note;
  return *this;
}

Option& OptionTable::add(std::string name, Field field, std::string help) {
  Option option{.name = std::move(name), .group = group_, .help = std::move(help), .field = field};
  const bool real =
      std::holds_alternative<double*>(field) || std::holds_alternative<std::optional<double>*>(field);
  const bool text = std::holds_alternative<std::string*>(field) || is_list(option) ||
                    std::holds_alternative<std::optional<std::string>*>(field);
  const auto* value = std::get_if<ValueField>(&field);
  if (!is_flag(option)) option.argument = real ? "X" : text || value != nullptr ? "TEXT" : "N";
  if (value != nullptr && !value->names().empty()) option.one_of(value->names());
  options_.push_back(std::move(option));
  return options_.back();
}

const Option* OptionTable::find(std::string_view name) const {
  const std::string wanted = hyphenated(name);
  for (const Option& option : options_) {
    if (option.name == wanted) return &option;
    if (std::find(option.aliases.begin(), option.aliases.end(), wanted) != option.aliases.end())
      return &option;
    if (old_spelling(option, wanted) != nullptr) return &option;
  }
  return nullptr;
}

void OptionTable::forget_outputs() {
  for (Option& option : options_)
    if (is_output(option.use)) option.use = FileUse::Unused;
}

Option& OptionTable::change(std::string_view name) {
  for (Option& option : options_)
    if (option.name == name) return option;
  fail("there is no option --{}", name);
}

const OldSpelling* old_spelling(const Option& option, std::string_view name) {
  for (const OldSpelling& old : option.old_spellings)
    if (old.name == name) return &old;
  return nullptr;
}

bool is_flag(const Option& option) { return std::holds_alternative<bool*>(option.field); }
bool is_list(const Option& option) {
  if (const auto* value = std::get_if<ValueField>(&option.field)) return value->is_list();
  return std::holds_alternative<std::vector<std::string>*>(option.field);
}

void set_value(const Option& option, std::span<const std::string> words) {
  if (words.empty()) bad_input("--{} needs a value: {}", option.name, option.argument);
  if (!is_list(option) && words.size() > 1)
    bad_input("--{} takes one value, but {} are given: {}", option.name, words.size(), joined(words, " "));
  const auto assign = [&](auto field) {
    using T = std::remove_pointer_t<decltype(field)>;
    if constexpr (std::is_same_v<T, ValueField>)
      field.set(field.is_list() ? parse_list(option, words) : std::vector{choice_or_text(option, words[0])});
    else if constexpr (std::is_same_v<T, std::vector<std::string>>)
      *field = parse_list(option, words);
    else if constexpr (IsOptional<T>::value)
      *field = parse_word<typename T::value_type>(option, words[0]);
    else
      *field = parse_word<T>(option, words[0]);
  };
  try {
    std::visit(assign, option.field);
  } catch (Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with("--")) throw;  // a choice names its option itself
    bad_input("--{} {}", option.name, text);
  }
}

std::optional<std::vector<std::string>> value_words(const Option& option) {
  using Found = std::optional<std::vector<std::string>>;
  return std::visit(
      [&](auto field) -> Found {
        using T = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<T, ValueField>) {
          std::vector<std::string> words = field.words();
          return words.empty() ? Found() : Found(std::move(words));
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return field->empty() ? Found() : Found(*field);
        } else if constexpr (IsOptional<T>::value) {
          return *field ? Found({print_value(option, **field)}) : Found();
        } else {
          return Found({print_value(option, *field)});
        }
      },
      option.field);
}

std::string value_text(const Option& option) {
  const auto words = value_words(option);
  return words ? joined(*words, " ") : std::string();
}

bool same_value(const Option& left, const Option& right) {
  return std::visit(
      [&](auto field) {
        using T = decltype(field);
        if constexpr (std::is_same_v<T, ValueField>)
          return field.words() == std::get<T>(right.field).words();
        else
          return *field == *std::get<T>(right.field);
      },
      left.field);
}

std::optional<Problem> range_problem(const Option& option) {
  return std::visit(
      [&](auto field) {
        if constexpr (std::is_same_v<decltype(field), ValueField>)
          return option.required && field.words().empty() ? text_problem(option, "") : std::nullopt;
        else
          return field_problem(option, *field);
      },
      option.field);
}

namespace value_field {

void refuse_name(std::string_view word, std::span<const std::string> names) {
  bad_input("'{}' is not known: give one of {}", printable(word), joined(names, ", "));
}

}  // namespace value_field

std::string describe(const Range& range, bool whole) {
  const auto bound = [whole](double value) {
    return whole ? std::to_string(static_cast<int64_t>(value)) : format_double(value);
  };
  const bool low = std::isfinite(range.low);
  const bool high = std::isfinite(range.high) && range.high < std::numeric_limits<double>::max();
  if (low && high && !range.above && !range.below)
    return fmt::format("from {} to {}", bound(range.low), bound(range.high));
  std::string text;
  if (low) text = fmt::format("{} {}", range.above ? "above" : "at least", bound(range.low));
  if (high)
    text += fmt::format("{}{} {}", low ? " and " : "", range.below ? "below" : "at most", bound(range.high));
  return text;
}

std::string described_bounds(const Option& option) {
  constexpr double kBeyondAnyRun = 1 << 16;
  Range range = option.bounds;
  if (range.high >= kBeyondAnyRun) range.high = std::numeric_limits<double>::infinity();
  const auto words = [&](auto field) -> std::string {
    using T = std::remove_pointer_t<decltype(field)>;
    if constexpr (std::is_same_v<T, ValueField>)
      return std::string(field.bounds());
    else
      return describe(range, !std::is_same_v<T, double> && !std::is_same_v<T, std::optional<double>>);
  };
  return std::visit(words, option.field);
}

}  // namespace trifold
