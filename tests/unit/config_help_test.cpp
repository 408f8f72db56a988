#include "config/command_line/help.h"

#include <gtest/gtest.h>

#include <sstream>

#include "config/command_line/commands.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

std::string help(const std::string& command, int width = 80) {
  return std::get<TextRequest>(read({command, "--help"}, Environment{.terminal_width = width})).text;
}

TEST(ConfigHelp, ShowsEveryOptionOfEveryCommand) {
  for (const CommandInfo& command : commands()) {
    const std::string text = help(std::string(command.name));
    expect_contains(text, "usage: trifold " + std::string(command.name));
    expect_contains(text, std::string(command.examples.at(0)));
    if (command.with_table == nullptr) continue;
    with_default_table(command.name, [&](const OptionTable& table) {
      for (const Option& option : table.options()) {
        // A long name has its text on the next line.
        const std::string shown = "\n  --" + option.name + (is_flag(option) ? "" : " " + option.argument);
        EXPECT_TRUE(text.find(shown + " ") != std::string::npos ||
                    text.find(shown + "\n") != std::string::npos)
            << option.name;
        EXPECT_FALSE(option.help.empty() || option.group.empty()) << option.name;
      }
    });
  }
}

TEST(ConfigHelp, ShowsDefaultsAllowedValuesAndRequiredOptions) {
  const std::string text = help("pretrain", 160);
  expect_contains(text, "Model:\n");
  expect_contains(text, "Learning rate after warm-up. (required)");
  expect_contains(text, "adam, lamb: decay rate of the second moment. (default 0.999)");
  expect_contains(text, "(default: 4 x --hidden-size, 8/3 x");
  expect_contains(text, "--lr-decay-style constant|linear|cosine|inverse-square-root|WSD");
  expect_contains(text, "Also --tp.");
  expect_contains(help("bench", 160), "Width of the model. (default 768)");
}

TEST(ConfigHelp, KeepsToTheWidth) {
  for (const int width : {-5, 0, 80, 120, 1000000}) {
    const int limit = width < 60 ? 60 : std::min(width, 160);
    for (const std::string command : {"generate", "inspect"}) {
      std::istringstream lines(help(command, width));
      for (std::string line; std::getline(lines, line);) {
        const bool example = line.find("trifold") != std::string::npos;  // kept whole, to be copied
        EXPECT_TRUE(example || static_cast<int>(line.size()) <= limit) << line;
        EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
      }
    }
  }
}

TEST(ConfigHelp, WinsOverMistakes) {
  EXPECT_EQ(std::get<TextRequest>(read({"pretrain", "--bogus", "--lr", "x", "--help"})).text,
            help("pretrain"));
  EXPECT_EQ(std::get<TextRequest>(read({"pretrain", "--lr", "3", "-h"})).text, help("pretrain"));
}

TEST(ConfigHelp, ListsCommandsAndVersion) {
  const std::string text = std::get<TextRequest>(read({"--help"})).text;
  for (const CommandInfo& command : commands())
    expect_contains(text, "\n  " + std::string(command.name) + " ");
  EXPECT_EQ(std::get<TextRequest>(read({"-h"})).text, text);
  EXPECT_EQ(std::get<TextRequest>(read({"help"})).text, text);
  EXPECT_EQ(std::get<TextRequest>(read({"help", "bench"})).text, help("bench"));
  EXPECT_EQ(std::get<TextRequest>(read({"--version"})).text, version_text() + "\n");
}

}  // namespace
}  // namespace trifold
