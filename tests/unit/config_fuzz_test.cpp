// Random command lines and files: each gives a request or an Error(BadInput), never anything else.
#include <gtest/gtest.h>

#include <random>

#include "config/command_line/command_info.h"
#include "config/foreign/foreign_options.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

using Random = std::mt19937;

size_t below(Random& random, size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); }

std::string noise(Random& random) {
  static constexpr char kLetters[] = "-=_#\"'\\ \t\n\r[]0123456789.eEnaif,x\xff\x01";  // its final NUL too
  std::string text;
  for (size_t size = below(random, 12); size > 0; --size) text += kLetters[below(random, sizeof kLetters)];
  return text;
}

std::string value(Random& random) {
  static const Words kValues = {
      "1",    "4",   "-1",  "0",    "9223372036854775807", "1e400", "nan",   "0.5", "1e-3",
      "true", "WSD", "cpu", "byte", "sentencepiece",       "1,0,0", "t.txt", "",    "step,gemm"};
  return below(random, 4) == 0 ? noise(random) : kValues[below(random, kValues.size())];
}

// Names of options; now and then damaged.
std::string name(Random& random, const Words& names) {
  std::string text = names[below(random, names.size())];
  switch (below(random, 8)) {
    case 0:
      return noise(random);
    case 1:
      text.erase(below(random, text.size()), 1);
      break;
    case 2:
      text[below(random, text.size())] = '_';
      break;
    default:
      break;
  }
  return text;
}

Words names_of(const std::string& command) {
  Words names = {"config", "print-config", "fp8-recipe"};
  with_default_table(command, [&](const OptionTable& table) {
    for (const Option& option : table.options()) names.push_back(option.name);
  });
  // Some options of other programs, of all fates and numbers of words.
  const std::vector<ForeignOption>& foreign = foreign_options();
  for (size_t i = 0; i < foreign.size(); i += 7) names.push_back(foreign[i].name);
  return names;
}

// Returns true when the words were accepted.
bool accepted(const Words& words) {
  try {
    read(words, Environment{.terminal_width = 80, .mpi_processes = 0});
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    EXPECT_STRNE(error.what(), "");
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not an Error: " << other.what() << " for " << testing::PrintToString(words);
  }
  return false;
}

const Words kCommands = {"pretrain", "generate", "evaluate", "inspect", "bench", "tokenize", "preprocess"};

TEST(ConfigFuzz, RandomCommandLines) {
  Random random(1);
  int good = 0;
  for (int run = 0; run < 3000; ++run) {
    const std::string command = kCommands[below(random, kCommands.size())];
    const Words names = names_of(command);
    Words words = {below(random, 20) == 0 ? noise(random) : command};
    for (size_t count = below(random, 6); count > 0; --count) {
      const bool joined = below(random, 3) == 0;
      const std::string option = fmt::format("{}{}", below(random, 10) == 0 ? "" : "--", name(random, names));
      if (joined) {
        words.push_back(fmt::format("{}={}", option, value(random)));
        continue;
      }
      words.push_back(option);
      for (size_t values = below(random, 3); values > 0; --values) words.push_back(value(random));
    }
    good += accepted(words);
  }
  EXPECT_GT(good, 10);  // the generator is not so wild that nothing passes
}

TEST(ConfigFuzz, RandomFiles) {
  Random random(2);
  int good = 0;
  for (int run = 0; run < 1000; ++run) {
    const std::string command = kCommands[below(random, kCommands.size())];
    const Words names = names_of(command);
    std::string text;
    for (size_t lines = below(random, 5); lines > 0; --lines)
      text += below(random, 5) == 0 ? noise(random)
                                    : fmt::format("{} = {}\n", name(random, names), value(random));
    const TemporaryFile file(text);
    good += accepted({command, "--config", file.path()});
  }
  EXPECT_GT(good, 10);
}

}  // namespace
}  // namespace trifold
