#include "config/fields/recommend_choices.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/config_testing.h"

namespace trifold {
namespace {

TEST(ColumnNames, MayHaveCommasBetweenQuotes) {
  const ColumnNames names = ColumnNames::parse(R"(age,"last, first","say ""so""",home country)");
  EXPECT_EQ(names.names, (Words{"age", "last, first", R"(say "so")", "home country"}));
  EXPECT_EQ(names.text(), R"(age,"last, first","say ""so""",home country)");
  EXPECT_EQ(ColumnNames::parse("a").names, Words{"a"});
  for (const char* bad : {"", "a,", ",a", "a,,b", R"("")"})
    expect_contains(refusal([&] { ColumnNames::parse(bad); }), "has a column without a name");
  for (const char* bad : {R"("a)", R"("a"b)", R"(a,"b"")"})
    expect_contains(refusal([&] { ColumnNames::parse(bad); }), "has a quote that is not closed");
}

TEST(BagColumns, EndInTheCharacterBetweenTheirTexts) {
  const std::string text = R"(genres:|,class:token_seq:space,a::,"b,c:;",d:comma)";
  const BagColumns bags = BagColumns::parse(text);
  Words names;
  std::string separators;
  for (const BagColumns::Column& column : bags.columns) {
    names.push_back(column.name);
    separators += column.separator;
  }
  EXPECT_EQ(names, (Words{"genres", "class:token_seq", "a", "b,c", "d"}));
  EXPECT_EQ(separators, "| :;,");
  EXPECT_EQ(bags.text(), text);
  EXPECT_EQ(BagColumns::parse("genres").text(), "genres");  // of lists
  for (const char* bad : {"genres:", ":|", ":"})
    expect_contains(refusal([&] { BagColumns::parse(bad); }), "is not a column and its separator");
  for (const char* bad : {"genres:||", "genres:blank", R"(genres:"")"})
    EXPECT_NE(refusal([&] { BagColumns::parse(bad); }), "") << bad;
}

}  // namespace
}  // namespace trifold
