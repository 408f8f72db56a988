// Text that replaces a file: whole, or not at all.
#include "files/file.h"
#include "core/input_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.h"
#include "support/files.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

std::string content_of(const fs::path& path) { return read_input_file(path.string(), 1 << 20); }

TEST(ReplaceText, MakesAndReplacesAFile) {
  const TempDir folder;
  const fs::path path = folder.path() / "FILE";
  replace_text(path, "first, and longer");
  EXPECT_EQ(content_of(path), "first, and longer");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  replace_text(path, "second");
  EXPECT_EQ(content_of(path), "second");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(files_of(folder.path()), std::vector<std::string>{"FILE"});
}

TEST(ReplaceText, FollowsALinkAndTakesTheLongestName) {
  const TempDir folder;
  const std::string longest(255, 'n');
  fs::create_symlink(longest, folder.path() / "link");
  replace_text(folder.path() / longest, "first");
  replace_text(folder.path() / "link", "second");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "link"));
  EXPECT_EQ(content_of(folder.path() / longest), "second");
  EXPECT_EQ(files_of(folder.path()).size(), 2U);
}

TEST(ReplaceText, MakesTheFileThatALinkNames) {
  const TempDir folder;
  fs::create_directory(folder.path() / "results");
  fs::create_symlink("results/next", folder.path() / "inner");
  fs::create_symlink(folder.path() / "inner", folder.path() / "outer");
  replace_text(folder.path() / "outer", "first");
  EXPECT_TRUE(fs::is_symlink(folder.path() / "outer"));
  EXPECT_TRUE(fs::is_symlink(folder.path() / "inner"));
  EXPECT_EQ(content_of(folder.path() / "results" / "next"), "first");
}

TEST(ReplaceText, KeepsTheOldContentWhereItFails) {
  const TempDir folder;
  const fs::path path = folder.path() / "FILE";
  replace_text(path, "old");
  set_sync_call([](int) {
    errno = EIO;
    return -1;
  });
  try {
    replace_text(path, "new");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    test::expect_has(error.what(), "cannot be synced: Input/output error");
  }
  set_sync_call(::fsync);
  EXPECT_EQ(content_of(path), "old");
  EXPECT_EQ(files_of(folder.path()), std::vector<std::string>{"FILE"});
}

}  // namespace
}  // namespace trifold
