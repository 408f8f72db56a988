#include "config/command_line/help.h"

#include <gtest/gtest.h>

#include <sstream>

#include "config/command_line/command_info.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

std::string help(const std::string& command, int width = 80) {
  return std::get<TextRequest>(read({command, "--help"}, Environment{.terminal_width = width})).text;
}

// The same text in any width, as one line.
std::string joined(std::string text) {
  std::string line;
  for (const char c : text)
    if ((c != ' ' && c != '\n') || (!line.empty() && line.back() != ' ')) line += c == '\n' ? ' ' : c;
  return line;
}

TEST(ConfigHelp, ShowsEveryOptionOfEveryCommand) {
  for (const CommandInfo& command : commands()) {
    const std::string text = help(std::string(command.name));
    expect_contains(text, "usage: trifold " + std::string(command.name));
    expect_contains(text, std::string(command.examples.at(0)));
    if (command.with_table == nullptr) continue;
    with_default_table(command.name, [&](const OptionTable& table) {
      for (const Option& option : table.options()) {
        EXPECT_NE(text.find("\n  --" + option.name), std::string::npos) << option.name;
        expect_contains(
            joined(help(std::string(command.name), 160)),
            "--" + option.name + (is_flag(option) ? " " : " " + option.argument + " ") + option.help);
        EXPECT_FALSE(option.help.empty() || option.group.empty()) << option.name;
      }
    });
  }
}

TEST(ConfigHelp, ShowsDefaultsAllowedValuesAndRequiredOptions) {
  const std::string text = help("pretrain", 160);
  expect_contains(text, "Model:\n");
  expect_contains(text, "Learning rate after warm-up. (above 0; required)");
  expect_contains(
      text, "adam, lamb, muon: decay rate of the second moment. (at least 0 and below 1; default 0.999)");
  expect_contains(text, "(at least 1; default: 4 x --hidden-size, 8/3 x with a gate)");
  expect_contains(text, "--lr-decay-style constant|linear|cosine|inverse-square-root|WSD");
  expect_contains(text, "Also --tp.");
  expect_contains(help("bench", 160), "Width of the model. (at least 1; default 768)");
}

// The words of a message about a value out of range, from the same declaration.
TEST(ConfigHelp, ShowsRanges) {
  const std::string text = joined(help("pretrain", 160));
  expect_contains(text, "3 also weights. (from 0 to 3; default 0)");
  expect_contains(
      text,
      "or node for those of a node. Groups are replicas of each other and exchange only slices of gradients. "
      "(at least 1; default: all data-parallel ranks)");
  expect_contains(text, "Seed of initial weights, data order and dropout. (default 1234)");
  const std::string recommend = joined(help("recommend", 160));
  expect_contains(recommend, "the last is 1. (each at least 1; default 512-256-1)");
  expect_contains(recommend, "in the order of the labels. (each above 0; default: 1 each)");
  double number = 0;
  Option option{.name = "x", .group = "", .help = "", .field = &number};
  EXPECT_EQ(described_bounds(option), "");
  EXPECT_EQ(described_bounds(option.range(-1, 65535)), "from -1 to 65535");
  EXPECT_EQ(described_bounds(option.range(-1, 65536)), "at least -1");
  EXPECT_EQ(described_bounds(option.positive()), "above 0");
}

TEST(ConfigHelp, KeepsToTheWidthAndBreaksNoWords) {
  for (const int width : {-5, 0, 80, 1000000}) {
    const int limit = width < 60 ? 60 : std::min(width, 160);
    std::vector<std::string> texts{program_help(width)};
    for (const CommandInfo& command : commands()) texts.push_back(help(std::string(command.name), width));
    for (const std::string& text : texts) {
      std::istringstream lines(text);
      bool copied = false;  // usage and examples are kept whole
      for (std::string line; std::getline(lines, line);) {
        copied = (copied && !line.empty()) || line.starts_with("usage: ") || line == "examples:";
        EXPECT_TRUE(copied || static_cast<int>(line.size()) <= limit) << line;
        EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
      }
    }
  }
  const std::string text = joined(help("pretrain"));
  expect_contains(text, "only in its --moe-router-group-topk best groups.");
  expect_contains(text, "activations of --cpu-offloading-num-layers, one file per rank.");
  expect_contains(
      help("score"),
      "\n  --data-format\n    auto|tsv|csv|csv-hex|mlperf-bin|hugectr-raw|hugectr-raw-counts|split-binary|\n"
      "    clicks\n                          Format of the data;");
  expect_contains(help("bench"), "default step,gemm)");
}

// What applies to language models and recommenders comes first, then what each has of its own.
TEST(ConfigHelp, GroupsTheOptionsOfCommandsForSeveralKindsOfModel) {
  const std::string text = help("evaluate");
  expect_contains(text,
                  "usage: trifold evaluate --load DIR --data-path PATH [options]\n"
                  "       trifold evaluate --load DIR --task FILE [options]\n"
                  "       trifold evaluate --load DIR --data PATH [options]\n");
  const size_t all = text.find("== For all =="), language = text.find("== Without --task and --data =="),
               task = text.find("== With --task: evaluate-task =="),
               recommender = text.find("== With --data: evaluate-recommender ==");
  ASSERT_TRUE(all < language && language < task && task < recommender && recommender != std::string::npos);
  const auto expect_between = [&](const std::string& option, size_t begin, size_t end) {
    const size_t at = text.find("\n  --" + option + " ");
    EXPECT_TRUE(begin < at && at < end) << option;
    EXPECT_EQ(text.find("\n  --" + option + " ", at + 1), std::string::npos) << option;
  };
  expect_between("threads-per-rank", all, language);
  expect_between("device", all, language);
  expect_between("config", all, language);
  expect_between("data-path", language, task);
  expect_between("log-likelihoods", task, recommender);
  expect_between("data", recommender, text.size());
  expect_between("group-by", recommender, text.size());
  expect_contains(help("plan"), "== With --table-rows or --train-data: plan-recommender ==");
  expect_contains(help("plan"), "== Without --table-rows and --train-data and --lines ==");
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
