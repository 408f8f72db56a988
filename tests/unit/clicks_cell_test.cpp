#include "clicks/cells/cell.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace trifold {
namespace {

std::string spelled(const Cell& cell) {
  std::string room;
  return std::string(spelling_of(cell, room));
}
std::string spelled_text(std::string_view text) { return spelled(Cell(text)); }

TEST(Cell, AWholeNumberHasOneSpelling) {
  for (const char* text : {"2", "+2", "2.", "2.0", "2.000", "2e0", "2E+00", "2.000e+00", " 2\t"})
    EXPECT_EQ(spelled_text(text), "2") << text;
  for (const char* text : {"0", "-0", "-0.0", "+0", "0.0", "0e0", "0.000000000000000000e+00"})
    EXPECT_EQ(spelled_text(text), "0") << text;
  for (const char* text : {"-100000", "-100000.0", "-1e5", "-1.0e+05", "-1E5"})
    EXPECT_EQ(spelled_text(text), "-100000") << text;
  for (const Cell& cell : {Cell(int64_t{2}), Cell(uint64_t{2}), Cell(2.0F), Cell(2.0), Cell(Float16(2.0)),
                           Cell(DecimalNumber{200, 2}), Cell(DecimalNumber{2, 0})})
    EXPECT_EQ(spelled(cell), "2");
  EXPECT_EQ(spelled(Cell(-0.0)), "0");
  EXPECT_EQ(spelled(Cell(std::numeric_limits<int64_t>::min())), "-9223372036854775808");
  EXPECT_EQ(spelled(Cell(std::numeric_limits<uint64_t>::max())), "18446744073709551615");
}

TEST(Cell, OtherTextsStayAsTheyAre) {
  for (const char* text :
       {"007", "00.0", "1.10",   "0.5", "-2.50", "1.2.0", "2.0.0",    "2-0",  "+",   "-",   "1e",
        "e5",  "12e3", "1e5000", "1e+", "0.1e1", "0x10",  "68fd1e64", "2.0a", "++2", "a b", "NaN"})
    EXPECT_EQ(spelled_text(text), text);
  EXPECT_EQ(spelled_text("  a b "), "a b");
  EXPECT_EQ(spelled_text(" \t "), "");
}

// As pandas and other writers show them in text.
TEST(Cell, ANumberIsSpelledAsItsShortestDigits) {
  for (const auto& [cell, text] :
       {std::pair{Cell(0.1F), "0.1"}, std::pair{Cell(0.1), "0.1"}, std::pair{Cell(Float16(3.1)), "3.1"},
        std::pair{Cell(-2.5), "-2.5"}, std::pair{Cell(1e20), "1e+20"}, std::pair{Cell(1e16), "1e+16"},
        std::pair{Cell(1.0000000000000002e17), "1.0000000000000002e+17"}, std::pair{Cell(1e5), "100000.0"},
        std::pair{Cell(123456792.0F), "123456790.0"}, std::pair{Cell(1.5e-7), "1.5e-07"},
        std::pair{Cell(5e-324), "5e-324"}, std::pair{Cell(DecimalNumber{-25, 2}), "-0.25"},
        std::pair{Cell(DecimalNumber{250, 2}), "2.50"}})
    EXPECT_EQ(spelled(cell), spelled_text(text)) << text;
  EXPECT_EQ(spelled(Cell(1.5e-7)), "0.00000015");
  EXPECT_EQ(spelled(Cell(1e20)), "100000000000000000000");
}

TEST(Cell, FlagsHaveOneSpelling) {
  for (const char* text : {"True", "true", "TRUE"}) EXPECT_EQ(spelled_text(text), spelled(Cell(true)));
  for (const char* text : {"False", "false", "FALSE"}) EXPECT_EQ(spelled_text(text), spelled(Cell(false)));
  EXPECT_EQ(spelled_text("tRUE"), "tRUE");
}

TEST(Cell, NumbersAreThoseOfTheirShortestDigits) {
  EXPECT_EQ(number_of(Cell(3.1F)), 3.1);
  EXPECT_EQ(number_of(Cell(Float16(3.1))), 3.1);
  EXPECT_EQ(number_of(Cell(-99.9F)), -99.9);
  EXPECT_EQ(number_of(Cell(DecimalNumber{31, 1})), 3.1);
  EXPECT_EQ(number_of(Cell(true)), 1);
  for (const auto& [text, number] : {std::pair{"+3", 3.0}, std::pair{" -0.5 ", -0.5}, std::pair{"1e5", 1e5},
                                     std::pair{"+.5", 0.5}, std::pair{"True", 1.0}, std::pair{"false", 0.0}})
    EXPECT_EQ(number_of(Cell(std::string_view(text))), number) << text;
  for (const char* text : {"", "+", "+-3", "-+3", "++3", "1,5", "3 4", "0x10", "yes"})
    EXPECT_EQ(number_of(Cell(std::string_view(text))), std::nullopt) << text;
  EXPECT_TRUE(std::isnan(number_of(Cell(std::string_view("nan"))).value_or(0)));
  EXPECT_EQ(number_of(Cell()), std::nullopt);
}

}  // namespace
}  // namespace trifold
