#include "clicks/field_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

namespace trifold {
namespace {

TEST(FieldValues, NegativeNumbersAreHashesWithoutASign) {
  EXPECT_EQ(id_of_whole(7), 7U);
  EXPECT_EQ(id_of_whole(-1), 0xffffffffU);
  EXPECT_EQ(id_of_whole(std::numeric_limits<int32_t>::min()), 0x80000000U);
  EXPECT_EQ(id_of_whole(int64_t{std::numeric_limits<int32_t>::min()} - 1), 0xffffffff7fffffffU);
}

TEST(FieldValues, NumbersAndTextsHaveTheSameLabels) {
  for (const char* text : {"r", "r>=4", "r<=4", "r>4", "r<4", "r==4", "r!=4"}) {
    const LabelRule rule = LabelRule::parse(text);
    for (const auto& [number, digits] :
         {std::pair{4.0, "4"}, std::pair{1.0, "1.0"}, std::pair{0.0, "0"}, std::pair{4.5, "4.50"}})
      EXPECT_EQ(label_of(rule, number), label_of(rule, std::string_view(digits))) << text << ' ' << digits;
  }
  EXPECT_EQ(label_of(LabelRule::parse("r"), 2.0), std::nullopt);
  EXPECT_EQ(label_of(LabelRule::parse("r>=4"), std::nan("")), std::nullopt);
  EXPECT_EQ(label_of(LabelRule::parse("r==yes"), "yes"), true);
  const LabelRule begins = LabelRule::parse("r^=>50");
  EXPECT_EQ(begins.column, "r");
  EXPECT_EQ(begins.text(), "r^=>50");
  EXPECT_EQ(label_of(begins, ">50K."), true);
  EXPECT_EQ(label_of(begins, "<=50K"), false);
  EXPECT_EQ(label_of(LabelRule::parse("r"), "False"), false);
}

TEST(FieldValues, TextsHaveWeightsBehindTheirLastColon) {
  const auto weight_and_rest = [](std::string_view text) {
    const std::optional<float> weight = take_weight(text);
    return std::pair(weight, text);
  };
  EXPECT_EQ(weight_and_rest("a:b:0.5"), (std::pair<std::optional<float>, std::string_view>(0.5F, "a:b")));
  EXPECT_EQ(weight_and_rest("a : -2"), (std::pair<std::optional<float>, std::string_view>(-2.0F, "a")));
  for (const char* text : {"a", "a:", "a:x", "a:nan", "a:1e39"})
    EXPECT_EQ(weight_and_rest(text).first, std::nullopt) << text;
}

}  // namespace
}  // namespace trifold
