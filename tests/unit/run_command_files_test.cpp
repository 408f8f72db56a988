// No output replaces an input, or anything that the command did not make.
#include "run/command_files.h"

#include <gtest/gtest.h>

#include "files/scratch_folder.h"
#include "support/files.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::expect_has;
using test::TempDir;
using test::write_file;

class CheckCommandFiles : public testing::Test {
 protected:
  CheckCommandFiles() {
    write_file(file("data.csv"), "click,user\n1,a\n");
    fs::create_directory(file("days"));
    write_file(file("days/day.csv"), "click,user\n1,a\n");
    fs::create_directories(file("run/step_0000000010"));
    for (const char* name :
         {"run/LATEST", "run/step_0000000010/manifest.json", "run/step_0000000010/view.h5"})
      write_file(file(name), "step_0000000010\n");
    fs::create_directory(file("clicks"));
    for (const char* name : {"clicks/clicks.json", "clicks/user.dict"}) write_file(file(name), "{}");
  }

  std::string file(const std::string& name) const { return dir_.file(name); }

  CommandFiles with(const std::string& output, FileUse use = FileUse::Written) const {
    CommandFiles files;
    files.files = {{"--data", file("data.csv"), FileUse::Read},
                   {"--days", file("days"), FileUse::Read},
                   {"--load", file("run"), FileUse::Loaded},
                   {"--prefix", file("pair"), FileUse::Read},
                   {"--out", file(output), use, {json_mark("plan")}}};
    return files;
  }
  // Refused also with --overwrite.
  void expect_refused(const std::string& output, FileUse use, std::string_view why) const {
    for (const bool overwrite : {false, true}) {
      CommandFiles files = with(output, use);
      files.overwrite = overwrite;
      const std::string text = error_of([&] { check_command_files(files); });
      expect_has(text, "--out " + file(output));
      expect_has(text, why);
    }
  }
  void expect_fine(const std::string& output, FileUse use = FileUse::Written) const {
    EXPECT_NO_THROW(check_command_files(with(output, use))) << output;
  }

  TempDir dir_;
};

TEST_F(CheckCommandFiles, RefusesInputsByAnyName) {
  for (const FileUse use : {FileUse::Written, FileUse::Appended, FileUse::Kept}) {
    expect_refused("data.csv", use, "is --data ");
    expect_refused("days/../data.csv", use, "is --data ");
    expect_refused("days/day.csv", use, "a folder that this command reads");
    expect_refused("days/new.csv", use, "a folder that this command reads");
  }
  fs::create_symlink("data.csv", file("soft"));
  fs::create_hard_link(file("data.csv"), file("hard"));
  fs::create_hard_link(file("days/day.csv"), file("hard_day"));
  fs::create_directory_symlink("days", file("soft_days"));
  expect_refused("soft", FileUse::Written, "is --data ");
  expect_refused("hard", FileUse::Appended, "is --data ");
  expect_refused("hard_day", FileUse::Written, "is the same file as");
  expect_refused("soft_days/new.csv", FileUse::Written, "a folder that this command reads");
  expect_refused("days", FileUse::Filled, "is --days ");
  expect_refused("days/out", FileUse::Filled, "a folder that this command reads");
}

TEST_F(CheckCommandFiles, RefusesNamesThatPrefixesMake) {
  for (const char* ending : {".bin", ".idx"}) write_file(file(std::string("pair") + ending), "x");
  expect_refused("pair.bin", FileUse::Written, "is --prefix ");
  expect_refused("pair", FileUse::TokenPairs, "is --prefix ");
  write_file(file("other.bin"), "x");
  const std::string text = error_of([&] { check_command_files(with("other", FileUse::TokenPairs)); });
  expect_has(text, "other.bin exists and has no mark");
}

TEST_F(CheckCommandFiles, RefusesFilesThatBelongTogether) {
  expect_refused("run/step_0000000010/shard_00000.h5", FileUse::Written, "a checkpoint");
  expect_refused("run/step_0000000010/new.json", FileUse::Appended, "a checkpoint");
  expect_refused("run/step_0000000010", FileUse::Filled, "a checkpoint");
  expect_refused("run/LATEST", FileUse::Written, "has the name of a file or folder of the checkpoints");
  expect_refused("run/BEST", FileUse::Written, "has the name of a file or folder of the checkpoints");
  expect_refused("clicks/user.dict", FileUse::Written, "a data set");
  expect_refused("clicks/new.csv", FileUse::Written, "a data set");
  for (const char* ending : {".bin", ".idx"}) write_file(file(std::string("set") + ending), "x");
  expect_refused("set.idx", FileUse::Written, "belongs to a .bin/.idx data set");
}

TEST_F(CheckCommandFiles, ReplacesOnlyFilesWithTheMark) {
  expect_fine("new.json");
  write_file(file("notes.json"), "{\n \"made_by\": \"trifold bench\"\n}\n");
  CommandFiles files = with("notes.json");
  expect_has(error_of([&] { check_command_files(files); }), "has no mark of this command");
  files.overwrite = true;
  EXPECT_NO_THROW(check_command_files(files));
  write_file(file("own.json"), marked_json("{\n  \"a\": 1\n}\n", "plan"));
  expect_fine("own.json");
  write_file(file("empty"), "");
  expect_fine("empty");
  files.files.back().path = "/dev/null";
  EXPECT_NO_THROW(check_command_files(files));
}

TEST_F(CheckCommandFiles, AppendsOnlyToALog) {
  expect_fine("new.jsonl", FileUse::Appended);
  write_file(file("log"), "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.4}\n");
  expect_fine("log", FileUse::Appended);
  write_file(file("cut"), "{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"lo");
  expect_fine("cut", FileUse::Appended);
  const std::string line = "{\"step\":1,\"loss\":2.5}";
  for (size_t bytes = 1; bytes < line.size(); ++bytes) {
    write_file(file("cut"), line.substr(0, bytes));
    expect_fine("cut", FileUse::Appended);
  }
  for (const char* text : {"{\"text\": \"a\"}\n", "notes\n", "{\"step\":1}\nnotes\n", "{\"step\":1}\nno",
                           "{\"step\":1}", "\n\n", "{\"text"}) {
    write_file(file("other"), text);
    expect_refused("other", FileUse::Appended, "is not a log of Trifold");
  }
}

TEST_F(CheckCommandFiles, LetsARunGoOnInItsFolder) {
  expect_fine("run", FileUse::Filled);
  expect_fine("run/log.jsonl", FileUse::Appended);
  expect_fine("run/scores.json");
  expect_fine("elsewhere", FileUse::Filled);
}

TEST_F(CheckCommandFiles, RefusesOneFileForTwoOutputs) {
  CommandFiles files = with("same");
  files.files.push_back({"--svg", file("days/../same"), FileUse::Written});
  expect_has(error_of([&] { check_command_files(files); }), "is also --out ");
}

// An output that exists by now is not written again, so nothing else would remove them.
TEST_F(CheckCommandFiles, RemovesWhatAKillLeftBesideAnOutput) {
  const std::string left = file("clicks.tmp-0123456789abcdef");
  fs::create_directory(left);
  write_file(left + "/" + std::string(kScratchMark), "");
  remove_abandoned_scratch(with("elsewhere", FileUse::Filled));
  EXPECT_TRUE(fs::exists(left));
  remove_abandoned_scratch(with("clicks", FileUse::Filled));
  EXPECT_FALSE(fs::exists(left));
}

}  // namespace
}  // namespace trifold
