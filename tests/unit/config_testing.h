// Shared by the tests of config: command lines from words, and the text of the Error they end in.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "config/command_line/command_line.h"
#include "config/commands/option_tables.h"
#include "core/error.h"

namespace trifold {

using Words = std::vector<std::string>;

inline Request read(Words words, const Environment& environment = {}) {
  words.insert(words.begin(), "trifold");
  return parse_command_line(std::span<const std::string>(words), environment);
}

inline Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// A pretrain command that is complete but for --lr, and one that is complete.
inline Words without_lr() {
  return {"pretrain", "--num-layers", "4",    "--hidden-size",      "128", "--num-attention-heads",
          "4",        "--seq-length", "64",   "--micro-batch-size", "12",  "--train-iters",
          "20",       "--data-path",  "t.txt"};
}
inline Words complete() { return without_lr() + Words{"--lr", "1e-3"}; }

inline PretrainConfig pretrain(const Words& more) {
  return std::get<PretrainConfig>(read(complete() + more));
}

// The text of the BadInput Error that `body` throws; a test failure when it does not.
inline std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}
inline std::string refusal_of(const Words& words, const Environment& environment = {}) {
  return refusal([&] { read(words, environment); });
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in:\n" << text;
}
inline void expect_lacks(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << "'" << part << "' is in:\n" << text;
}

// Expects every finding of `config` to have all its parts and to name existing options, including all those that its
// text calls wrong.
template <class Config>
void expect_whole(Config config) {
  const OptionTable table = options_of(config);
  Findings found = findings(config);
  for (const Problem& note : found.notes) EXPECT_EQ(note.right, "") << text_of(note);
  found.errors.insert(found.errors.end(), found.notes.begin(), found.notes.end());
  for (const Problem& problem : found.errors) {
    const std::string text = text_of(problem);
    EXPECT_FALSE(problem.options.empty() || problem.wrong.empty()) << text;
    EXPECT_EQ(problem.right.empty(), problem.severity == Severity::Note) << text;
    for (const std::string& name : problem.options) EXPECT_TRUE(table.find(name)) << name << " in: " << text;
    for (size_t at = problem.wrong.find("--"); at != std::string::npos;
         at = problem.wrong.find("--", at + 2)) {
      const size_t end = problem.wrong.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", at);
      const std::string name = problem.wrong.substr(at + 2, end - at - 2);
      EXPECT_TRUE(std::count(problem.options.begin(), problem.options.end(), name))
          << name << " in: " << text;
    }
  }
}

// A temporary file with this content.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : path_(testing::TempDir() + "trifold_config_" + std::to_string(getpid()) + ".ini") {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace trifold
