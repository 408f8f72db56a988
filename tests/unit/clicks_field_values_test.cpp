#include "clicks/cells/field_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trifold {
namespace {

TEST(FieldValues, NegativeNumbersAreHashesWithoutASign) {
  EXPECT_EQ(id_of_whole(7), 7U);
  EXPECT_EQ(id_of_whole(-1), 0xffffffffU);
  EXPECT_EQ(id_of_whole(std::numeric_limits<int32_t>::min()), 0x80000000U);
  EXPECT_EQ(id_of_whole(int64_t{std::numeric_limits<int32_t>::min()} - 1), 0xffffffff7fffffffU);
}

Cell text_cell(std::string_view text) { return text; }

TEST(FieldValues, NumbersAndTextsHaveTheSameLabels) {
  for (const char* text : {"r", "r>=4", "r<=4", "r>4", "r<4", "r==4", "r!=4"}) {
    const LabelRule rule = LabelRule::parse(text);
    for (const auto& [number, digits] :
         {std::pair{4.0, "4"}, std::pair{1.0, "1.0"}, std::pair{0.0, "0"}, std::pair{4.5, "4.50"}})
      EXPECT_EQ(label_of(rule, number), label_of(rule, text_cell(digits))) << text << ' ' << digits;
  }
  EXPECT_EQ(label_of(LabelRule::parse("r"), 2.0), std::nullopt);
  EXPECT_EQ(label_of(LabelRule::parse("r>=4"), std::nan("")), std::nullopt);
  EXPECT_EQ(label_of(LabelRule::parse("r==yes"), text_cell("yes")), true);
  EXPECT_EQ(label_of(LabelRule::parse("r==True"), true), true);
  EXPECT_EQ(label_of(LabelRule::parse("r==true"), text_cell("True")), true);
  const LabelRule begins = LabelRule::parse("r^=>50");
  EXPECT_EQ(begins.column, "r");
  EXPECT_EQ(begins.text(), "r^=>50");
  EXPECT_EQ(label_of(begins, text_cell(" >50K. ")), true);
  EXPECT_EQ(label_of(begins, text_cell("<=50K")), false);
  EXPECT_EQ(label_of(LabelRule::parse("r"), text_cell("False")), false);
}

TEST(FieldValues, AFloat32IsComparedByItsDigits) {
  const LabelRule rule = LabelRule::parse("r>=3.1");
  EXPECT_EQ(label_of(rule, 3.1F), true);
  EXPECT_EQ(label_of(rule, Float16(3.1)), true);
  EXPECT_EQ(label_of(rule, std::nextafter(3.1F, 0.0F)), false);
  EXPECT_EQ(label_of(LabelRule::parse("r==4.7"), 4.7F), true);
}

FieldRules rules_with(std::vector<std::string> missing) {
  FieldRules rules;
  rules.missing = MissingValues(missing);
  return rules;
}

TEST(FieldValues, MissingNumbersAreComparedAsNumbers) {
  const FieldRules rules = rules_with({"-1", "-99.9", "?"});
  for (const Cell& cell : {Cell(int64_t{-1}), Cell(-1.0), Cell(-1.0F), text_cell("-1"), text_cell("-1.0"),
                           text_cell(" -1e0"), Cell(-99.9F), Cell(-99.9), text_cell("-99.90"),
                           text_cell(" ? "), Cell(), Cell(std::nan("")), text_cell("nan"), text_cell("  ")}) {
    const std::optional<float> number = dense_in(rules, cell);
    ASSERT_TRUE(number) << shown_text(cell);
    EXPECT_TRUE(std::isnan(*number)) << shown_text(cell);
    EXPECT_EQ(label_in(rules, 0, cell), std::nullopt) << shown_text(cell);
  }
  for (const Cell& cell :
       {Cell(int64_t{-1}), Cell(-1.0), text_cell("-1.0"), text_cell("?"), Cell(), Cell(-99.9F)})
    EXPECT_EQ(id_in(rules, IdBase::Text, cell), 0U) << shown_text(cell);
  EXPECT_NE(id_in(rules, IdBase::Text, text_cell("-01")), 0U);
  for (const Cell& cell : {text_cell("inf"), Cell(std::numeric_limits<float>::infinity()), text_cell("a")})
    EXPECT_EQ(dense_in(rules, cell), std::nullopt);
}

TEST(FieldValues, OneValueHasOneIdInEveryType) {
  const FieldRules rules = rules_with({"NA"});
  for (const IdBase base : {IdBase::Text, IdBase::Decimal})
    for (const Cell& cell : {Cell(7.0), Cell(7.0F), Cell(uint64_t{7}), Cell(DecimalNumber{70, 1}),
                             text_cell("7.0"), text_cell(" 7"), text_cell("+7")})
      EXPECT_EQ(id_in(rules, base, cell), id_in(rules, base, int64_t{7})) << shown_text(cell);
  EXPECT_EQ(id_in(rules, IdBase::Text, text_cell("7.0")), hash_of_text("7", 0));
  EXPECT_EQ(id_in(rules, IdBase::Text, 0.5F), hash_of_text("0.5", 0));
  for (const Cell& cell : {text_cell("-1"), Cell(int64_t{-1}), Cell(-1.0)})
    EXPECT_EQ(id_in(rules, IdBase::Decimal, cell), 0xffffffffU);
  for (const Cell& cell : {text_cell("0.5"), text_cell("a"), text_cell("18446744073709551616"), Cell(0.5)})
    EXPECT_EQ(id_in(rules, IdBase::Decimal, cell), std::nullopt);
  EXPECT_EQ(id_in(rules, IdBase::Hexadecimal, text_cell("1e5")), 0x1e5U);
  EXPECT_EQ(id_in(rules, IdBase::Hexadecimal, text_cell("123456789")), std::nullopt);
}

// The dictionaries of earlier versions.
TEST(FieldValues, TextsAsWrittenAreNotSpelled) {
  FieldRules rules = rules_with({"NA"});
  rules.as_written = true;
  for (const char* text : {"2.0", " a", "true", "+2"})
    EXPECT_EQ(id_in(rules, IdBase::Text, text_cell(text)), hash_of_text(text, 0));
  EXPECT_EQ(id_in(rules, IdBase::Text, 2.0), hash_of_text("2", 0));
  EXPECT_EQ(id_in(rules, IdBase::Text, text_cell("NA")), 0U);
}

TEST(FieldValues, BagsOfTextsAndOfElementsAreEqual) {
  const FieldRules rules = rules_with({"NA"});
  ClickBag texts, elements;
  EXPECT_TRUE(add_texts_to_bag(rules, '|', false, "a| 2.0||NA|b ", texts));
  for (const Cell& cell : {text_cell("a"), Cell(2.0F), Cell(), text_cell("NA"), text_cell(" b")})
    EXPECT_TRUE(add_to_bag(rules, IdBase::Text, false, cell, elements));
  EXPECT_EQ(texts.ids, elements.ids);
  EXPECT_EQ(texts.ids.size(), 3U);
  ClickBag weighted;
  EXPECT_TRUE(add_texts_to_bag(rules, '|', true, "a:0.5|NA|NA:3|2.0: +2", weighted));
  EXPECT_EQ(weighted.ids, (std::vector{hash_of_text("a", 0), hash_of_text("2", 0)}));
  EXPECT_EQ(weighted.weights, (std::vector{0.5F, 2.0F}));
  EXPECT_FALSE(add_texts_to_bag(rules, '|', true, "a", weighted));
}

TEST(FieldValues, LabelsMayBeMissingWhereTheyAreNotNeeded) {
  FieldRules rules;
  rules.missing = MissingValues({"NA"});
  for (const Cell& cell : {Cell(), Cell(""), Cell("NA"), Cell(std::nan(""))}) {
    rules.need = LabelNeed::Required;
    EXPECT_EQ(label_in(rules, 0, cell), std::nullopt);
    rules.need = LabelNeed::Optional;
    EXPECT_EQ(label_in(rules, 0, cell), kNoLabel);
  }
  for (const Cell& cell : {Cell("later"), Cell(2.0)}) {
    rules.need = LabelNeed::Optional;
    EXPECT_EQ(label_in(rules, 0, cell), std::nullopt);
    rules.need = LabelNeed::Irrelevant;
    EXPECT_EQ(label_in(rules, 0, cell), kNoLabel);
    EXPECT_EQ(label_in(rules, 0, Cell("1")), 1);
  }
}

TEST(FieldValues, WeightsOfSamplesAreNotNegative) {
  EXPECT_EQ(weight_in(Cell("0.5")), 0.5F);
  EXPECT_EQ(weight_in(Cell(int64_t{0})), 0.0F);
  for (const Cell& cell : {Cell(), Cell(""), Cell("x"), Cell("-1"), Cell("nan"), Cell("inf"), Cell(1e300)})
    EXPECT_EQ(weight_in(cell), std::nullopt);
}

TEST(FieldValues, DatesAndTimesHaveParts) {
  const FieldRules rules;
  const Moment moment{1711908330, 0};  // 2024-03-31 18:05:30, a Sunday
  for (const Cell& cell :
       {Cell("2024-03-31 18:05:30"), Cell("1711908330"), Cell(1711908330000.0), Cell(moment)}) {
    EXPECT_EQ(number_of(part_in(rules, cell, TimePart::Weekday).value()), 7);
    EXPECT_EQ(number_of(part_in(rules, cell, TimePart::Hour).value()), 18);
  }
  EXPECT_TRUE(std::holds_alternative<std::monostate>(part_in(rules, Cell(), TimePart::Hour).value()));
  EXPECT_FALSE(part_in(rules, Cell("today"), TimePart::Hour));
  EXPECT_EQ(time_in(Cell("2024-03-31 18:05:30.5")), 1711908330.5);
  EXPECT_EQ(time_in(Cell("17")), 17);  // a number orders rows as it is
  EXPECT_EQ(time_in(Cell("")), std::nullopt);
}

TEST(FieldValues, BagsAndTheirWeightsArePairs) {
  const FieldRules rules;
  ClickBag bag;
  EXPECT_TRUE(add_paired_texts_to_bag(rules, '|', "a||b", bag));
  EXPECT_TRUE(add_weights_to_bag('|', "0.5|1|-2", bag));
  EXPECT_TRUE(finish_paired_bag(bag));  // without the missing element and its weight
  EXPECT_EQ(bag.ids, (std::vector<uint64_t>{hash_of_text("a", 0), hash_of_text("b", 0)}));
  EXPECT_EQ(bag.weights, (std::vector<float>{0.5F, -2}));
  EXPECT_TRUE(add_weight_to_bag(Cell(1.0), bag));
  EXPECT_FALSE(finish_paired_bag(bag));
  EXPECT_FALSE(add_weights_to_bag('|', "1||2", bag));
  bag.clear();
  EXPECT_TRUE(add_paired_texts_to_bag(rules, '|', "", bag) && add_weights_to_bag('|', " ", bag) &&
              finish_paired_bag(bag));
  EXPECT_TRUE(bag.ids.empty());
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
