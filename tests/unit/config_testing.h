// Shared by the tests of config: command lines from words, and the text of the Error they end in.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "config/command_line.h"
#include "core/error.h"

namespace trifold {

using Words = std::vector<std::string>;

inline Request read(Words words, const Surroundings& surroundings = {}) {
  words.insert(words.begin(), "trifold");
  return parse_command_line(std::span<const std::string>(words), surroundings);
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
inline std::string refusal_of(const Words& words, const Surroundings& surroundings = {}) {
  return refusal([&] { read(words, surroundings); });
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in:\n" << text;
}
inline void expect_lacks(const std::string& text, const std::string& part) {
  EXPECT_EQ(text.find(part), std::string::npos) << "'" << part << "' is in:\n" << text;
}

// A file with this content that is removed again.
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
