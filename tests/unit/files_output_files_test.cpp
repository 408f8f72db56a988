// Files that the user names for output.
#include "core/input_file.h"
#include "files/output_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "core/error.h"
#include "files/file.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;

std::string failure_of(const std::string& path) {
  try {
    write_file("--json", path, "new");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Failure);
    return error.what();
  }
  return "";
}

// A report of an earlier run outlives one that cannot be written.
TEST(WriteFile, LeavesTheOldFileWhereTheNewOneFails) {
  const std::string path = fs::temp_directory_path() / ("trifold_output_" + random_id());
  write_file("--json", path, "old");
  set_sync_call([](int) {
    errno = EIO;
    return -1;
  });
  EXPECT_EQ(failure_of(path).rfind("--json " + path + ": ", 0), 0U);
  set_sync_call(::fsync);
  EXPECT_EQ(read_input_file(path, 100), "old");
  EXPECT_EQ(failure_of(path), "");
  EXPECT_EQ(read_input_file(path, 100), "new");
  fs::remove(path);
}

TEST(WriteFile, WritesToFilesThatCannotBeReplaced) {
  EXPECT_EQ(failure_of("/dev/null"), "");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(failure_of("/dev/full"), "--json /dev/full: writing failed; is the disk full?");
}

// Like /dev/stdout when another program reads the output.
TEST(WriteFile, WritesToAPipeThatALinkNames) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  EXPECT_EQ(failure_of(fmt::format("/proc/self/fd/{}", ends[1])), "");
  std::array<char, 4> text{};
  EXPECT_EQ(::read(ends[0], text.data(), 3), 3);
  EXPECT_STREQ(text.data(), "new");
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace trifold
