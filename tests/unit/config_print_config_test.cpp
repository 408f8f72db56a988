#include "config/command_line/print_config.h"

#include <gtest/gtest.h>

#include "config/commands/json.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

std::string printed(const Words& words, const Environment& environment = {}) {
  return std::get<TextRequest>(read(words + Words{"--print-config"}, environment)).text;
}

// The line of an option, with runs of blanks made one.
std::string line_of(const std::string& text, const std::string& name) {
  size_t begin = text.find("\n" + name + " =");
  if (begin == std::string::npos) begin = text.find("\n# " + name + " =");
  if (begin == std::string::npos) return "";
  std::string line;
  for (const char c : text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1))
    if (c != ' ' || line.empty() || line.back() != ' ') line += c;
  return line;
}

TEST(ConfigPrintConfig, SaysWhereEveryValueComesFrom) {
  const TemporaryFile file("# run\nmin-lr = 1e-4\nclip-grad = 2\n");
  const std::string text = printed(complete() + Words{"--config", file.path(), "--clip-grad", "3"},
                                   Environment{.mpi_processes = 2});
  EXPECT_EQ(line_of(text, "lr"), "lr = 0.001 # command line");
  EXPECT_EQ(line_of(text, "min-lr"), "min-lr = 0.0001 # " + file.path() + ":2");
  EXPECT_EQ(line_of(text, "clip-grad"), "clip-grad = 3 # command line, instead of " + file.path() + ":3");
  EXPECT_EQ(line_of(text, "adam-beta2"), "adam-beta2 = 0.999 # default");
  EXPECT_EQ(line_of(text, "ffn-hidden-size"),
            "ffn-hidden-size = 512 # derived: 4 x --hidden-size, 8/3 x with a gate");
  EXPECT_EQ(line_of(text, "ranks"), "ranks = 2 # the number of MPI processes");
  EXPECT_EQ(line_of(text, "save"), "# save = # not set: nothing is saved");
  EXPECT_EQ(line_of(text, "global-batch-size"),
            "global-batch-size = 24 # derived: --micro-batch-size x data parallel size");
}

TEST(ConfigPrintConfig, ReadsBackToTheSameConfiguration) {
  const Words words = complete() + Words{"--save",   "a # \"b\" \\ c",
                                         "--seed",   "18446744073709551615",
                                         "--min-lr", "1.2345678901234567e-05",
                                         "--f64",    "--lr-decay-style",
                                         "WSD",      "--lr-wsd-decay-iters",
                                         "3",        "--ranks",
                                         "2",        "--split",
                                         "90, 10",   "--lr-warmup-fraction",
                                         "0.1"};
  const TemporaryFile file(printed(words));
  const auto again = std::get<PretrainConfig>(read({"pretrain", "--config", file.path()}));
  EXPECT_EQ(to_json(again), to_json(std::get<PretrainConfig>(read(words))));
  EXPECT_EQ(again.checkpoint.save, "a # \"b\" \\ c");
  EXPECT_EQ(again.seed, 18446744073709551615u);
}

TEST(ConfigPrintConfig, ReadsBackListsAndTexts) {
  const TemporaryFile blend(
      printed({"evaluate", "--load", "d e", "--data-path", "0.3", "a b", "0.7", "c#d"}));
  const auto evaluate = std::get<EvaluateConfig>(read({"evaluate", "--config", blend.path()}));
  EXPECT_EQ(evaluate.data.data_path, (Words{"0.3", "a b", "0.7", "c#d"}));
  EXPECT_EQ(evaluate.load, "d e");
}

TEST(ConfigPrintConfig, WorksForEveryCommand) {
  const std::string prompt = "two\nlines # \"x\" ";
  const TemporaryFile generate(printed({"generate", "--load", "d", "--prompt", prompt}));
  EXPECT_EQ(std::get<GenerateConfig>(read({"generate", "--config", generate.path()})).prompt, prompt);
  expect_contains(printed({"inspect", "d", "--verify"}), "verify = true");
  EXPECT_EQ(line_of(printed({"bench"}), "what"), "what = step gemm # default");
  expect_contains(printed({"tokenize", "--input", "i", "--output-prefix", "o"}), "json-keys = text");
}

}  // namespace
}  // namespace trifold
