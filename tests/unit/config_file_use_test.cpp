// Every option that names files says what the command does with them.
#include "config/options/file_use.h"

#include <gtest/gtest.h>

#include "config/command_line/command_line.h"
#include "config/command_line/parse.h"
#include "support/files.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;

bool names_files(const Option& option) {
  for (const char* word : {"FILE", "DIR", "PATH", "PREFIX"})
    if (option.argument.find(word) != std::string::npos) return true;
  return false;
}

template <class Body>
void for_each_option(Body&& body) {
  for (const CommandInfo& command : commands()) {
    if (command.with_table == nullptr) continue;
    with_default_table(command.name, [&](const OptionTable& table) {
      for (const Option& option : table.options()) body(std::string(command.name), option);
    });
  }
  for (const Option& option : common_options().options()) body(std::string("common"), option);
}

TEST(FileUse, IsDeclaredByEveryOptionThatNamesFiles) {
  int outputs = 0;
  for_each_option([&](const std::string& command, const Option& option) {
    EXPECT_EQ(option.use != FileUse::None, names_files(option))
        << command << " --" << option.name << ": say what is done with its files: reads, writes or names";
    outputs += is_output(option.use) ? 1 : 0;
  });
  EXPECT_GT(outputs, 15);
}

// Actions in PyTorch's format have no place for a mark.
TEST(FileUse, FilesThatAreWrittenHaveAMark) {
  for_each_option([&](const std::string& command, const Option& option) {
    if (option.use != FileUse::Written && option.use != FileUse::Kept) return;
    EXPECT_EQ(option.marks.empty(), option.name == "schedule-csv") << command << " --" << option.name;
  });
}

CommandFiles files_of_line(const std::vector<std::string>& words) {
  std::vector<std::string> line{"trifold"};
  line.insert(line.end(), words.begin(), words.end());
  Remarks remarks;
  parse_command_line(line, {}, &remarks);
  return remarks.files;
}

std::string text_of(const CommandFiles& files) {
  std::string text;
  for (const NamedFile& file : files.files)
    text += fmt::format("{} {} {}\n", file.option, file.path, static_cast<int>(file.use));
  return text;
}

TEST(FileUse, FinalNamesFollowFromTheOptions) {
  const int pairs = static_cast<int>(FileUse::TokenPairs);
  expect_has(text_of(files_of_line(
                 {"tokenize", "--input", "a.json", "--json-keys", "x", "y", "--output-prefix", "p"})),
             fmt::format("--output-prefix p_x_document {0}\n--output-prefix p_y_document {0}\n", pairs));
  const auto use_of_save = [](const std::string& save) {
    return files_of_line({"convert", "--load", "run", "--save", save}).files.at(1).use;
  };
  EXPECT_EQ(use_of_save("model.onnx"), FileUse::Written);
  EXPECT_EQ(use_of_save("model.safetensors"), FileUse::Written);
  EXPECT_EQ(use_of_save("model"), FileUse::Filled);
}

// A plan has the options of the run, and writes none of its files.
TEST(FileUse, APlanWritesNoFileOfTheRun) {
  const std::vector<std::string> words{
      "plan",     "--num-layers", "1",   "--hidden-size",      "8",   "--num-attention-heads",
      "1",        "--seq-length", "8",   "--micro-batch-size", "1",   "--vocab-size",
      "8",        "--save",       "run", "--log-json",         "log", "--json",
      "plan.json"};
  std::vector<std::string> outputs;
  for (const NamedFile& file : files_of_line(words).files)
    if (is_output(file.use)) outputs.push_back(file.path);
  EXPECT_EQ(outputs, std::vector<std::string>{"plan.json"});
}

TEST(FileUse, OverwriteNeedsAnOutput) {
  EXPECT_TRUE(
      files_of_line({"score", "--load", "r", "--data", "d", "--output", "o.csv", "--overwrite"}).overwrite);
  expect_has(error_of([] {
               files_of_line({"generate", "--load", "run", "--overwrite"});
             }),
             "--overwrite has no effect");
}

TEST(OutputMark, IsPutIntoJsonAndSvg) {
  EXPECT_EQ(marked_json("{\n  \"a\": 1\n}\n", "plan"),
            "{\n  \"made_by\": \"trifold plan\",\n  \"a\": 1\n}\n");
  EXPECT_EQ(marked_json("{}", "plan"), "{}");
  EXPECT_EQ(marked_svg("<svg>\n</svg>\n", "plan"), "<svg>\n<!-- made by trifold plan -->\n</svg>\n");
}

}  // namespace
}  // namespace trifold
