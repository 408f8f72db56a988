#include "clicks/cells/moment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace trifold {
namespace {

// 2024-03-31T18:05:30Z, a Sunday.
constexpr int64_t kSeconds = 1711908330;

TEST(Moment, TextsAreIso8601) {
  const std::pair<const char*, Moment> texts[] = {
      {"2024-03-31", {1711843200, 0}},
      {"2024-03-31 18:05", {1711908300, 0}},
      {" 2024-03-31T18:05:30Z ", {kSeconds, 0}},
      {"2024-03-31t18:05:30z", {kSeconds, 0}},
      {"2024-03-31T18:05:30.25", {kSeconds, 250'000'000}},
      {"2024-03-31 18:05:30,123456789", {kSeconds, 123'456'789}},
      {"2024-03-31 18:05:30.1234567899", {kSeconds, 123'456'789}},
      {"2024-03-31T20:05:30+02:00", {kSeconds, 0}},
      {"2024-03-31T20:05:30+0200", {kSeconds, 0}},
      {"2024-03-31T14:35:30-03:30", {kSeconds, 0}},
      {"2024-03-31T20:05:30+02", {kSeconds, 0}},
      {"1969-12-31 23:59:59.5", {-1, 500'000'000}},
      {"2000-02-29", {951782400, 0}},
  };
  for (const auto& [text, moment] : texts) {
    ASSERT_TRUE(moment_of_text(text)) << text;
    EXPECT_EQ(moment_of_text(text)->seconds, moment.seconds) << text;
    EXPECT_EQ(moment_of_text(text)->nanoseconds, moment.nanoseconds) << text;
  }
  for (const char* text : {"", " ", "2024", "2024-3-31", "2024-13-01", "2023-02-29", "2024-04-31",
                           "2024-03-31T", "2024-03-31 18", "2024-03-31 24:00", "2024-03-31 18:60",
                           "2024-03-31 18:05:60", "2024-03-31 18:05:30.", "31.03.2024", "2024-03-31 18:05 PM",
                           "2024-03-31T18:05+2", "2024-03-31x", "20240331", "-024-03-31"})
    EXPECT_FALSE(moment_of_text(text)) << text;
}

TEST(Moment, NumbersCountSecondsOrTheirThousandths) {
  for (const double scale : {1.0, 1e3, 1e6, 1e9}) {
    const Moment moment = moment_of_number(static_cast<double>(kSeconds) * scale).value();
    EXPECT_EQ(moment.seconds, kSeconds) << scale;
    EXPECT_EQ(moment.nanoseconds, 0) << scale;
  }
  EXPECT_EQ(moment_of_number(1711908330250)->nanoseconds, 250'000'000);
  EXPECT_EQ(moment_of_number(-0.25)->seconds, -1);
  EXPECT_EQ(moment_of_number(-0.25)->nanoseconds, 750'000'000);
  EXPECT_EQ(moment_of_number(0)->seconds, 0);
  for (const double number : {1e30, -1e30, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(moment_of_number(number)) << number;
}

TEST(Moment, HasParts) {
  const Moment moment{kSeconds, 500'000'000};
  const std::pair<TimePart, double> parts[] = {{TimePart::Year, 2024},
                                               {TimePart::Month, 3},
                                               {TimePart::Day, 31},
                                               {TimePart::Weekday, 7},
                                               {TimePart::Hour, 18},
                                               {TimePart::Minute, 5},
                                               {TimePart::Second, 30},
                                               {TimePart::Seconds, kSeconds + 0.5},
                                               {TimePart::Days, (kSeconds + 0.5) / 86400}};
  for (const auto& [part, value] : parts) EXPECT_EQ(part_of(moment, part), value) << name_of(part);
  const Moment before{-1, 0};  // 1969-12-31T23:59:59, a Wednesday
  EXPECT_EQ(part_of(before, TimePart::Year), 1969);
  EXPECT_EQ(part_of(before, TimePart::Weekday), 3);
  EXPECT_EQ(part_of(before, TimePart::Hour), 23);
  EXPECT_EQ(part_of(before, TimePart::Second), 59);
}

TEST(Moment, TextIsThatOfACsvFile) {
  EXPECT_EQ(text_of({kSeconds, 0}), "2024-03-31 18:05:30");
  EXPECT_EQ(text_of({kSeconds, 250'000'000}), "2024-03-31 18:05:30.250");
  EXPECT_EQ(text_of({kSeconds, 1'000}), "2024-03-31 18:05:30.000001");
  EXPECT_EQ(text_of({-1, 1}), "1969-12-31 23:59:59.000000001");
  for (const Moment moment : {Moment{kSeconds, 250'000'000}, Moment{-123456789, 1}, Moment{0, 0}})
    EXPECT_EQ(moment_of_text(text_of(moment)), moment);
}

TEST(Moment, PartsOfColumnsHaveNames) {
  EXPECT_EQ(column_part("time@hour")->column, "time");
  EXPECT_EQ(column_part("time@hour")->part, TimePart::Hour);
  EXPECT_EQ(column_part("a@b@days")->column, "a@b");
  for (const char* name : {"time", "@hour", "time@", "time@second_half", "hour"})
    EXPECT_FALSE(column_part(name));
}

}  // namespace
}  // namespace trifold
