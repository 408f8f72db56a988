#include "config/command_line/man_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "config/command_line/command_info.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

TEST(ConfigManPage, HasEveryCommandAndOption) {
  std::string page = man_page();
  page.erase(std::remove(page.begin(), page.end(), '\\'), page.end());
  for (const CommandInfo& command : commands()) {
    expect_contains(page, "\n.B trifold " + std::string(command.name) + "\n");
    if (command.with_table == nullptr) continue;
    with_default_table(command.name, [&](const OptionTable& table) {
      for (const Option& option : table.options()) expect_contains(page, "\nfB--" + option.name + "fR");
    });
  }
  expect_contains(page, "\nfB--print-configfR");
  expect_contains(page, "(at least 0 and below 1; default 0.999)");
}

// Only the page's own macros begin with a dot, and no text is taken for an escape.
TEST(ConfigManPage, EscapesText) {
  std::istringstream lines(man_page());
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('.')) {
      EXPECT_TRUE(line == ".ad l" || line == ".nr HY 0" ||
                  std::isupper(static_cast<unsigned char>(line[1])) != 0)
          << line;
    }
    EXPECT_FALSE(line.starts_with('\'')) << line;
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; })) << line;
    for (size_t i = line.find('\\'); i != std::string::npos; i = line.find('\\', i + 2))
      EXPECT_NE(std::string("-ef(&:").find(line.at(i + 1)), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace trifold
