#include "config/fields/number.h"

#include <gtest/gtest.h>

#include <limits>

#include "unit/config_testing.h"

namespace trifold {
namespace {

TEST(ConfigNumber, ReadsWholeNumbersUpToTheLimits) {
  EXPECT_EQ(parse_int64("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse_int64("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse_uint64("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parse_int("-7"), -7);
  expect_contains(refusal([] { parse_int64("9223372036854775808"); }),
                  "too large: give at most 9223372036854775807");
  expect_contains(refusal([] { parse_int("-2147483649"); }), "too small: give at least -2147483648");
  expect_contains(refusal([] { parse_uint64("18446744073709551616"); }), "too large");
  expect_contains(refusal([] { parse_uint64("-1"); }), "negative");
}

TEST(ConfigNumber, RejectsTextsThatAreNotWhollyNumbers) {
  for (const char* text :
       {"", " 1", "1 ", "12x", "x12", "1.5", "1e6", "+1", "0x10", "--1", "1,000", "\xff"}) {
    expect_contains(refusal([&] { parse_int64(text); }), "not a whole number");
    expect_contains(refusal([&] { parse_int(text); }), "not a whole number");
  }
  for (const char* text : {"", "12x", "1e", "1.5.2", ".", "0,1", "1 2", "-", "e5", "0x1p3"})
    expect_contains(refusal([&] { parse_double(text); }), "not a number");
  for (const char* text : {"nan", "NaN", "inf", "-inf", "infinity"})
    expect_contains(refusal([&] { parse_double(text); }), "not a finite number");
  for (const char* text : {"1e400", "-1e400", "1e-400"})
    expect_contains(refusal([&] { parse_double(text); }), "outside the range");
}

TEST(ConfigNumber, PrintsDoublesSoThatTheyReadBackExactly) {
  for (const double value : {0.1, 1e-5, 1.0 / 3, 6e-4, 5e-324, 1.7976931348623157e308, -0.0, 969.0})
    EXPECT_EQ(parse_double(format_double(value)), value);
  EXPECT_EQ(format_double(0.001), "0.001");
}

}  // namespace
}  // namespace trifold
