// Old names of options, on a table of the test's own: they work with a note until a version, and are then rejected.
#include <gtest/gtest.h>

#include "config/command_line/parse.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

class OldSpellings : public ::testing::Test {
 protected:
  OldSpellings() {
    table_.add("steps", &steps_, "Steps.").also("s2").formerly("iterations", "999.0.0");
    table_.add("fast", &fast_, "Fast.").formerly("quick", "999.10.0").formerly("hasty", "0.1.0");
  }
  Parsed parse(const Words& words) const { return parse_options(table_, words); }

  int steps_ = 0;
  bool fast_ = false;
  OptionTable table_;
};

TEST_F(OldSpellings, WorkWithANoteForTheTime) {
  const Parsed parsed = parse({"--iterations=5", "--quick"});
  EXPECT_EQ(parsed.problems, Words());
  EXPECT_EQ(steps_, 5);
  EXPECT_TRUE(fast_);
  EXPECT_EQ(parsed.notes,
            (Words{"--iterations was renamed: give --steps; version 999.0.0 rejects the old name",
                   "--quick was renamed: give --fast; version 999.10.0 rejects the old name"}));
  EXPECT_EQ(parsed.origins.at("steps"), "command line");
}

TEST_F(OldSpellings, AreRejectedFromTheirVersionOn) {
  const Parsed parsed = parse({"--hasty"});
  EXPECT_EQ(parsed.problems, Words{"--hasty was renamed: give --fast"});
  EXPECT_FALSE(fast_);
  EXPECT_EQ(parsed.doubtful.count("fast"), 1U);
  EXPECT_EQ(parsed.notes, Words());
}

TEST_F(OldSpellings, OldAndNewNameAreOneOption) {
  EXPECT_EQ(parse({"--iterations", "5", "--steps", "6"}).problems,
            Words{"--steps is given twice: give it once"});
}

TEST_F(OldSpellings, NewNamesAndAliasesHaveNoNote) {
  const Parsed parsed = parse({"--s2", "5", "--fast"});
  EXPECT_EQ(parsed.notes, Words());
  EXPECT_EQ(parsed.problems, Words());
}

TEST_F(OldSpellings, FilesNameThePlace) {
  const TemporaryFile written("iterations = 7\nhasty = true\n");
  const std::string& file = written.path();
  const Parsed parsed = parse({"--config", file});
  EXPECT_EQ(steps_, 7);
  EXPECT_EQ(parsed.notes,
            Words{file + ":1: --iterations was renamed: give --steps; version 999.0.0 rejects the old name"});
  EXPECT_EQ(parsed.problems, Words{file + ":2: --hasty was renamed: give --fast"});
}

}  // namespace
}  // namespace trifold
