#include "clicks/cells/moment.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

namespace trifold {

namespace {

constexpr int64_t kDay = 86400;                // seconds
constexpr int64_t kLastSecond = 253402300799;  // 9999-12-31T23:59:59

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

// Reads a text from its beginning. After the first failure every further read fails.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  bool is_sound() const { return sound_; }
  bool is_at_end() const { return text_.empty(); }
  bool next_is(char c) const { return text_.starts_with(c); }
  bool next_is_decimal_digit() const { return !text_.empty() && is_decimal_digit(text_[0]); }
  bool take_if(char c) {
    if (!next_is(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) { sound_ = take_if(c) && sound_; }
  // A number of exactly `digits` digits, from `low` to `high`.
  int number(int digits, int low, int high) {
    int value = 0;
    for (int i = 0; i < digits; ++i) value = value * 10 + digit();
    sound_ = sound_ && value >= low && value <= high;
    return value;
  }
  // The digits after a point, as nanoseconds.
  int32_t fraction() {
    int32_t value = digit();
    int digits = 1;
    for (; next_is_decimal_digit(); ++digits) {
      const int next = digit();
      if (digits < 9) value = value * 10 + next;
    }
    for (; digits < 9; ++digits) value *= 10;
    return value;
  }

 private:
  int digit() {
    sound_ = sound_ && next_is_decimal_digit();
    if (!sound_) return 0;
    const int value = text_[0] - '0';
    text_.remove_prefix(1);
    return value;
  }

  std::string_view text_;
  bool sound_ = true;
};

// Days since 1970-01-01.
int64_t take_date(Scanner& text, bool& exists) {
  const int year = text.number(4, 0, 9999);
  text.expect('-');
  const int month = text.number(2, 1, 12);
  text.expect('-');
  const int day = text.number(2, 1, 31);
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  exists = date.ok();
  return std::chrono::sys_days(date).time_since_epoch().count();
}

// Seconds by which local time is ahead of UTC.
int64_t take_offset(Scanner& text) {
  if (text.is_at_end() || text.take_if('Z') || text.take_if('z')) return 0;
  const bool behind = text.next_is('-');
  if (!text.take_if('-')) text.expect('+');
  const int hours = text.number(2, 0, 23);
  const bool colon = text.take_if(':');
  const int minutes = colon || text.next_is_decimal_digit() ? text.number(2, 0, 59) : 0;
  const int64_t offset = hours * 3600 + minutes * 60;
  return behind ? -offset : offset;
}

std::chrono::year_month_day date_of(const Moment& moment) {
  return std::chrono::sys_days(
      std::chrono::days(moment.seconds / kDay - (moment.seconds % kDay < 0 ? 1 : 0)));
}

int64_t second_of_day(const Moment& moment) { return (moment.seconds % kDay + kDay) % kDay; }

}  // namespace

std::optional<Moment> moment_of_text(std::string_view plain) {
  const size_t first = plain.find_first_not_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  Scanner text(plain.substr(first, plain.find_last_not_of(" \t") - first + 1));
  bool exists = false;
  Moment moment;
  moment.seconds = take_date(text, exists) * kDay;
  if (text.is_sound() && !text.is_at_end()) {
    if (!text.take_if('T') && !text.take_if('t')) text.expect(' ');
    moment.seconds += text.number(2, 0, 23) * 3600;
    text.expect(':');
    moment.seconds += text.number(2, 0, 59) * 60;
    if (text.take_if(':')) {
      moment.seconds += text.number(2, 0, 59);
      if (text.take_if('.') || text.take_if(',')) moment.nanoseconds = text.fraction();
    }
    moment.seconds -= take_offset(text);
  }
  return exists && text.is_sound() && text.is_at_end() ? std::optional(moment) : std::nullopt;
}

std::optional<Moment> moment_of_number(double number) {
  double scale = 1;
  for (const double limit : {1e11, 1e14, 1e17})
    if (std::abs(number) >= limit) scale *= 1000;
  if (!std::isfinite(number) || std::abs(number / scale) > static_cast<double>(kLastSecond))
    return std::nullopt;
  const double whole = std::floor(number / scale);
  const auto rest = static_cast<int64_t>(std::llround((number - whole * scale) * (1e9 / scale)));
  constexpr int64_t kSecond = 1'000'000'000;
  return Moment{static_cast<int64_t>(whole) + rest / kSecond, static_cast<int32_t>(rest % kSecond)};
}

std::string text_of(const Moment& moment) {
  const std::chrono::year_month_day date = date_of(moment);
  std::string text = fmt::format("{:04}-{:02}-{:02}", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  if (moment.form == Moment::Form::Date) return text;
  const int64_t second = second_of_day(moment);
  text += fmt::format(" {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
  const int32_t nanoseconds = moment.nanoseconds;
  if (nanoseconds % 1000 != 0)
    text += fmt::format(".{:09}", nanoseconds);
  else if (nanoseconds % 1'000'000 != 0)
    text += fmt::format(".{:06}", nanoseconds / 1000);
  else if (nanoseconds != 0)
    text += fmt::format(".{:03}", nanoseconds / 1'000'000);
  return moment.form == Moment::Form::WithZone ? text + "+00:00" : text;
}

double part_of(const Moment& moment, TimePart part) {
  const double fraction = static_cast<double>(moment.nanoseconds) * 1e-9;
  const int64_t hour = second_of_day(moment) / 3600;
  const int64_t minute = second_of_day(moment) / 60 % 60;
  switch (part) {
    case TimePart::Year:
      return static_cast<int>(date_of(moment).year());
    case TimePart::Month:
      return static_cast<unsigned>(date_of(moment).month());
    case TimePart::Day:
      return static_cast<unsigned>(date_of(moment).day());
    case TimePart::Weekday:
      return std::chrono::weekday(std::chrono::sys_days(date_of(moment))).iso_encoding();
    case TimePart::Hour:
      return static_cast<double>(hour);
    case TimePart::Minute:
      return static_cast<double>(minute);
    case TimePart::Second:
      return static_cast<double>(second_of_day(moment) % 60);
    case TimePart::Days:
      return (static_cast<double>(moment.seconds) + fraction) / static_cast<double>(kDay);
    case TimePart::Seconds:
      return static_cast<double>(moment.seconds) + fraction;
  }
  return 0;
}

std::optional<ColumnPart> column_part(std::string_view name) {
  const size_t at = name.rfind('@');
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  for (const auto& [part, text] : Names<TimePart>::kAll)
    if (name.substr(at + 1) == text) return ColumnPart{std::string(name.substr(0, at)), part};
  return std::nullopt;
}

}  // namespace trifold
