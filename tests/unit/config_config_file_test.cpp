#include "config/command_line/config_file.h"

#include <gtest/gtest.h>

#include "unit/config_testing.h"

namespace trifold {
namespace {

TEST(ConfigFile, ReadsNamesValuesCommentsAndHeadings) {
  const auto entries = parse_config_text(
      "# comment\n\n[model]  # heading\n num_layers=4\r\nprompt = \"a # b\" # c\ndata-path = x#1 # y\nsave "
      "=\nlast = 1",
      "f");
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries[0].name, "num-layers");
  EXPECT_EQ(entries[0].value, "4");
  EXPECT_EQ(entries[0].line, 4);
  EXPECT_EQ(entries[1].value, "\"a # b\"");
  EXPECT_EQ(entries[2].value, "x#1");
  EXPECT_EQ(entries[3].value, "");
  EXPECT_EQ(entries[4].line, 8);
}

TEST(ConfigFile, RefusesOtherLines) {
  expect_contains(refusal([] { parse_config_text("a = 1\nnum-layers 4\n", "run.ini"); }),
                  "run.ini:2: 'num-layers 4'");
  expect_contains(refusal([] { parse_config_text("= 4\n", "run.ini"); }), "run.ini:1");
  expect_contains(refusal([] { read_config_file("/nonexistent/x.ini"); }), "cannot be opened");
  expect_contains(refusal([] { read_config_file("/"); }), "is a directory");
  const TemporaryFile large(std::string((1 << 20) + 1, '#'));
  expect_contains(refusal([&] { read_config_file(large.path()); }), "more than the 1048576");
}

TEST(ConfigFile, SplitsValuesIntoWords) {
  EXPECT_EQ(split_value("0.3 a  \"b c\"", true), (Words{"0.3", "a", "b c"}));
  EXPECT_EQ(split_value("To be or not", false), (Words{"To be or not"}));
  EXPECT_EQ(split_value("don't \\n", false), (Words{"don't \\n"}));
  EXPECT_EQ(split_value("\"a\\nb \\\"c\\\"\"", false), (Words{"a\nb \"c\""}));
  EXPECT_EQ(split_value("\"\"", false), (Words{""}));
  expect_contains(refusal([] { split_value("\"open", false); }), "not closed");
  expect_contains(refusal([] { split_value("\"a\" b", false); }), "follows the closing quote");
  expect_contains(refusal([] { split_value("\"a\\tb\"", false); }), "must be followed by");
}

TEST(ConfigFile, JoinsWordsSoThatTheySplitAgain) {
  const Words nasty = {"plain", "a b",   "a#b", " # ",   "\"", "\\",  "a\nb",
                       "don't", "x\\ny", "#",   "\ttab", "=",  "[x]", "-h"};
  EXPECT_EQ(split_value(join_value(nasty, true), true), nasty);
  for (const std::string& word : nasty) {
    const auto entries = parse_config_text("prompt = " + join_value(Words{word}, false) + "  # why\n", "f");
    ASSERT_EQ(entries.size(), 1u) << word;
    EXPECT_EQ(split_value(entries[0].value, false), Words{word});
  }
}

}  // namespace
}  // namespace trifold
