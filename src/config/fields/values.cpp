#include "config/fields/values.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <vector>

#include "config/fields/nearest.h"
#include "config/fields/number.h"
#include "config/fields/spelling.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {
namespace {

constexpr std::string_view kNode = "node";
constexpr std::string_view kNone = "none";
constexpr std::string_view kHost = "host";

// Case is ignored, and '_' equals '-', as in the names of other choices.
std::string guess_of(const std::string& name) {
  const std::vector<std::string> names(schedule_names().begin(), schedule_names().end());
  const std::vector<std::string> close = similar(name, names);
  return close.empty() ? "" : fmt::format(" (did you mean '{}'?)", fmt::join(close, "' or '"));
}

}  // namespace

ScheduleChoice ScheduleChoice::parse(std::string_view text) {
  if (text.empty()) bad_input("is empty: name a schedule, or a file of actions");
  const std::string name = folded(text);
  if (name.ends_with(".csv")) {
    ScheduleChoice choice(Schedule::OneFOneB);
    choice.file = text;
    return choice;
  }
  if (const auto schedule = find_schedule(name)) return *schedule;
  bad_input("'{}' is not known{}: give one of {}, or a file of actions whose name ends in .csv",
            printable(text), guess_of(std::string(text)), fmt::join(schedule_names(), ", "));
}

std::string ScheduleChoice::text() const { return from_file() ? file : std::string(schedule_name(schedule)); }

StepNumber StepNumber::parse(std::string_view text) {
  int64_t step = 0;
  try {
    step = parse_int64(text);
  } catch (const Error&) {
    step = 0;
  }
  if (step < 1) bad_input("'{}' is not possible: give numbers of steps, {}", printable(text), kBounds);
  return {step};
}

WholeNumber WholeNumber::parse(std::string_view text) {
  int64_t value = 0;
  try {
    value = parse_int64(text);
  } catch (const Error&) {
    value = 0;
  }
  if (value < 1) bad_input("'{}' is not possible: give whole numbers, each {}", printable(text), kBounds);
  return {value};
}

WindowSize WindowSize::parse(std::string_view text) {
  std::string_view numbers = text;
  if (numbers.starts_with('(') && numbers.ends_with(')')) numbers = numbers.substr(1, numbers.size() - 2);
  const size_t comma = numbers.find(',');
  try {
    if (comma != numbers.npos) {
      const WindowSize window{parse_int64(numbers.substr(0, comma)), parse_int64(numbers.substr(comma + 1))};
      if (window.left >= -1 && window.right >= -1) return window;
    }
  } catch (const Error&) {
  }
  bad_input(
      "'{}' is not possible: give two numbers, of positions before and after a token, such as 127,0; -1 stands for all",
      printable(text));
}

ParamFactor ParamFactor::parse(std::string_view text) {
  const size_t equals = text.rfind('=');
  std::optional<double> factor;
  if (equals != text.npos && equals > 0) try {
      factor = parse_double(text.substr(equals + 1));
    } catch (const Error&) {
      factor.reset();
    }
  if (!factor || !(*factor >= 0) || !std::isfinite(*factor))
    bad_input(
        "'{}' is not possible: give a pattern of names of parameters and a factor of at least 0, such as "
        "*.bias=0.5",
        printable(text));
  return {std::string(text.substr(0, equals)), *factor};
}

std::string ParamFactor::text() const { return fmt::format("{}={}", pattern, factor); }
RopeFactor RopeFactor::parse(std::string_view text) {
  constexpr double kMostFactor = 1e6;
  double factor = 0;
  try {
    factor = parse_double(text);
  } catch (const Error&) {
    factor = 0;
  }
  if (!(factor > 0 && factor <= kMostFactor))
    bad_input("'{}' is not possible: give numbers {} and up to {}", printable(text), kBounds, kMostFactor);
  return {factor};
}

std::string RopeFactor::text() const { return format_double(factor); }

GroupSize GroupSize::parse(std::string_view text) {
  if (text == kNode) return {};
  int ranks = 0;
  try {
    ranks = parse_int(text);
  } catch (const Error&) {
    ranks = 0;
  }
  if (ranks < 1)
    bad_input("'{}' is not possible: give a number of ranks, {}, or node", printable(text), kBounds);
  return {ranks};
}

std::string GroupSize::text() const { return follows_nodes() ? std::string(kNode) : std::to_string(ranks); }

Offload Offload::parse(std::string_view text) {
  if (text.empty()) bad_input("names no folder: give one, or none");
  if (text == kNone) return {};
  if (text == kHost) return {To::Host, {}};
  return {To::Files, std::string(text)};
}

std::string Offload::text() const {
  return to == To::None ? std::string(kNone) : to == To::Host ? std::string(kHost) : folder;
}

Day Day::parse(std::string_view text) {
  const bool shaped = text.size() == 10 && text[4] == '-' && text[7] == '-';
  try {
    if (shaped) {
      const std::chrono::year_month_day day{
          std::chrono::year(static_cast<int>(parse_int64(text.substr(0, 4)))),
          std::chrono::month(static_cast<unsigned>(parse_int64(text.substr(5, 2)))),
          std::chrono::day(static_cast<unsigned>(parse_int64(text.substr(8, 2))))};
      if (day.ok() && day.year() >= std::chrono::year(1)) return {std::string(text)};
    }
  } catch (const Error&) {  // no number
  }
  bad_input("'{}' is not a day: give one as YYYY-MM-DD, such as 2026-03-09", printable(text));
}

}  // namespace trifold
