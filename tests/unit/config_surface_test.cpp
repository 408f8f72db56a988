// The command line is a contract: tests/golden/options.txt lists every option with its spellings and default.
// If a change is intended, rewrite the file with
//   TRIFOLD_UPDATE_GOLDEN=1 build/release/tests/unit_config --gtest_filter='ConfigSurface.*'
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "config/command_line/command_info.h"
#include "support/test_data.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

std::string option_line(const Option& option) {
  std::string line = "  --" + option.name;
  for (const std::string& alias : option.aliases) line += ",--" + alias;
  for (const OldSpelling& old : option.old_spellings)
    line += ",--" + old.name + " until " + old.rejected_from;
  if (!option.argument.empty()) line += " " + option.argument;
  line += value_words(option) ? " = " + value_text(option) : " unset";
  return line + (option.required ? " (required)\n" : "\n");
}

std::string surface() {
  std::string text =
      "# Every option of every command: spellings, value, default. See tests/unit/config_surface_test.cpp.\n";
  for (const CommandInfo& command : commands()) {
    text += std::string(command.name) + "\n";
    if (command.with_table == nullptr) continue;
    with_default_table(command.name, [&](const OptionTable& table) {
      for (const Option& option : table.options()) text += option_line(option);
    });
  }
  return text;
}

TEST(ConfigSurface, IsFrozen) {
  const std::string file = test::test_data() + "/golden/options.txt";
  if (std::getenv("TRIFOLD_UPDATE_GOLDEN") != nullptr) std::ofstream(file) << surface();
  std::stringstream golden;
  golden << std::ifstream(file).rdbuf();
  EXPECT_EQ(golden.str(), surface())
      << "the options changed; if that is meant, run\n  TRIFOLD_UPDATE_GOLDEN=1 "
         "build/release/tests/unit_config --gtest_filter='ConfigSurface.*'";
}

TEST(ConfigSurface, NamesAreUniqueAndWellFormed) {
  for (const CommandInfo& command : commands()) {
    if (command.with_table == nullptr) continue;
    with_default_table(command.name, [&](const OptionTable& table) {
      for (const Option& option : table.options()) {
        EXPECT_EQ(table.find(option.name), &option) << option.name;
        for (const std::string& alias : option.aliases) EXPECT_EQ(table.find(alias), &option) << alias;
        for (const OldSpelling& old : option.old_spellings)
          EXPECT_EQ(table.find(old.name), &option) << old.name;
        EXPECT_EQ(option.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos);
      }
    });
  }
}

}  // namespace
}  // namespace trifold
