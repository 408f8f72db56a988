#include "config/command_line/completion.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>

#include "unit/config_testing.h"

namespace trifold {
namespace {

// What bash offers for the last of `words`, blank separated: sources the script, fills in what bash would
// give a completion function, and prints COMPREPLY. Runs in a folder that holds just the files "some.txt" and
// "other.ini".
std::string completions(const std::string& words) {
  const TemporaryFile script(bash_completion());
  const std::string folder = testing::TempDir() + "trifold_completion_" + std::to_string(getpid());
  const std::string command =
      "mkdir -p " + folder + " && cd " + folder + " && touch some.txt other.ini && bash -c '. " +
      script.path() + "; COMP_WORDS=(" + words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _trifold; echo \"${COMPREPLY[*]}\"' 2>&1; rm -r " + folder;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  std::array<char, 4096> part{};
  while (pipe != nullptr && fgets(part.data(), part.size(), pipe.get()) != nullptr) output += part.data();
  if (!output.empty()) output.pop_back();
  return output;
}

TEST(ConfigCompletion, OffersCommands) {
  EXPECT_EQ(completions("trifold p"), "pretrain plan preprocess plan-recommender plan-lines");
  EXPECT_EQ(
      completions("trifold \"\""),
      "pretrain finetune generate evaluate evaluate-task serve inspect import-config reshard convert bench plan rehearse rehearse-task rehearse-recommender tokenize preprocess recommend "
      "plan-recommender score evaluate-recommender plan-lines report doctor completion man-page --help --version");
  EXPECT_EQ(completions("trifold completion \"\""), "bash");
}

TEST(ConfigCompletion, OffersOptionsOfTheCommand) {
  EXPECT_EQ(
      completions("trifold pretrain --lr-w"),
      "--lr-warmup-iters --lr-warmup-fraction --lr-warmup-init --lr-wsd-decay-style --lr-wsd-decay-iters "
      "--lr-warmup-samples --lr-wsd-decay-samples");
  EXPECT_EQ(completions("trifold pretrain --tp"), "--tp");
  EXPECT_EQ(completions("trifold inspect --"),
            "--verify --diff --flight --config --overwrite --print-config --help");
  EXPECT_EQ(completions("trifold inspect --lr"), "");
}

TEST(ConfigCompletion, OffersAllowedValues) {
  EXPECT_EQ(completions("trifold pretrain --device \"\""), "cpu cuda auto");
  EXPECT_EQ(completions("trifold pretrain --lr_decay_style c"), "constant cosine");
  EXPECT_EQ(completions("trifold pretrain --device ="), "cpu cuda auto");
  EXPECT_EQ(completions("trifold evaluate --part = t"), "train test");
}

TEST(ConfigCompletion, OffersFilesWhereAFileIsNeeded) {
  EXPECT_EQ(completions("trifold pretrain --data-path so"), "some.txt");
  EXPECT_EQ(completions("trifold pretrain --data-path 0.3 so"), "some.txt");
  EXPECT_EQ(completions("trifold bench --config = o"), "other.ini");
  EXPECT_EQ(completions("trifold inspect so"), "some.txt");
  EXPECT_EQ(completions("trifold pretrain --schedule zb-h"), "zb-h1 zb-h2");
  EXPECT_EQ(completions("trifold pretrain --schedule so"), "some.txt");
  EXPECT_EQ(completions("trifold pretrain --lr so"), "");  // a number
}

}  // namespace
}  // namespace trifold
