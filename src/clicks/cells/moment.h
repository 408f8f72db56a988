// Moment: a point in time, from the text, number or timestamp of a cell, and its parts, which become features:
//
//   --dense time@days --sparse time@weekday,time@hour
//
// Texts are ISO 8601: a date 2024-03-31, and a time of day after a blank or T: 2024-03-31 18:05,
// 2024-03-31T18:05:30.250Z, with an offset +02:00, +0200 or +02. A text without an offset is UTC. Numbers count from
// 1970-01-01T00:00 UTC: seconds below 10^11, else milliseconds below 10^14, microseconds below 10^17, nanoseconds. Leap
// seconds do not count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/fields/recommend_choices.h"

namespace trifold {

struct Moment {
  enum class Form : uint8_t { DateTime, Date, WithZone };

  int64_t seconds = 0;         // since 1970-01-01T00:00 UTC
  int32_t nanoseconds = 0;     // from 0 to 999999999
  Form form = Form::DateTime;  // how its text is written

  bool operator==(const Moment&) const = default;
};

// nullopt if the text, without blanks around it, is no date or time.
std::optional<Moment> moment_of_text(std::string_view plain);
// nullopt for a number that is not finite, or beyond the year 9999.
std::optional<Moment> moment_of_number(double number);

// The text that pandas writes to a CSV file: 2024-03-31 18:05:30, with as many digits of a fraction as needed (3, 6 or
// 9); 2024-03-31 for Form::Date, and +00:00 at the end for Form::WithZone.
std::string text_of(const Moment& moment);

// A whole number, but for Days and Seconds.
double part_of(const Moment& moment, TimePart part);

// "time@hour": the column and the part. nullopt if no '@' with a part follows.
struct ColumnPart {
  std::string column;
  TimePart part;
};
std::optional<ColumnPart> column_part(std::string_view name);

}  // namespace trifold
