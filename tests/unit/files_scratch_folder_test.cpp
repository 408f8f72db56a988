// Scratch folders: removed at every end of their command, and nothing else is.
#include "files/scratch_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "files/file.h"
#include "support/files.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::expect_has;
using test::read_file;
using test::TempDir;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Makes a scratch folder beside `target` in a process that ends without destructors; returns its path.
fs::path left_by_a_kill(const fs::path& target) {
  const std::vector<std::string> before = names_in(target.parent_path());
  const pid_t child = ::fork();
  if (child == 0) {
    static const ScratchFolder folder(target);
    write_text(folder.file("half"), "data");
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  for (const std::string& name : names_in(target.parent_path()))
    if (std::find(before.begin(), before.end(), name) == before.end()) return target.parent_path() / name;
  ADD_FAILURE() << "the process left nothing";
  return {};
}

TEST(ScratchFolder, LiesBesideItsTargetAndVanishesWithItsContent) {
  const TempDir dir;
  {
    const ScratchFolder folder(dir.path() / "out");
    EXPECT_EQ(folder.path().parent_path(), dir.path());
    EXPECT_TRUE(folder.path().filename().string().starts_with("out.tmp-"));
    fs::create_directory(folder.file("made"));
    write_text(folder.file("made") / "file", "text");
    EXPECT_TRUE(has_live_scratch());
  }
  EXPECT_FALSE(has_live_scratch());
  EXPECT_EQ(dir.entries(), 0U);
}

TEST(ScratchFolder, GivesItsContentTheTargetsNameButReplacesNothing) {
  const TempDir dir;
  const ScratchFolder first(dir.path() / "out"), second(dir.path() / "out");
  for (const ScratchFolder* folder : {&first, &second}) {
    fs::create_directory(folder->file("made"));
    write_text(folder->file("made") / "who", folder == &first ? "first" : "second");
  }
  first.move_out("made", dir.path() / "out");
  expect_has(error_of([&] { second.move_out("made", dir.path() / "out"); }), "out exists by now");
  EXPECT_EQ(read_file(dir.file("out/who")), "first");
  EXPECT_EQ(names_in(dir.path() / "out"), std::vector<std::string>{"who"});
}

TEST(ScratchFolder, RemovesWhatAKilledCommandLeftBesideTheSameTarget) {
  const TempDir dir;
  const fs::path own = left_by_a_kill(dir.path() / "out");
  const fs::path other = left_by_a_kill(dir.path() / "other");
  {
    const ScratchFolder live(dir.path() / "out");
    EXPECT_FALSE(fs::exists(own));
    EXPECT_TRUE(fs::exists(other / "half"));
    const ScratchFolder second(dir.path() / "out");
    EXPECT_TRUE(fs::exists(live.path()));  // it is locked
    EXPECT_TRUE(remove_abandoned_scratch(dir.path()).empty());
    EXPECT_FALSE(fs::exists(other));
    EXPECT_TRUE(fs::exists(live.path()) && fs::exists(second.path()));
  }
  EXPECT_EQ(dir.entries(), 0U);
}

// Files of a user may have any name.
TEST(ScratchFolder, LeavesEverythingWithoutTheMark) {
  const TempDir dir;
  const std::string digits = ".tmp-0123456789abcdef";
  for (const std::string name :
       {"out.tmp-0123456789abcdef", "out.partial", "out.tmp-1", "out.tmp-0123456789abcdeg"}) {
    fs::create_directory(dir.path() / name);
    test::write_file(dir.file(name + "/notes"), "precious");
  }
  test::write_file(dir.file("file" + digits), "precious");
  fs::create_directory(dir.path() / "elsewhere");
  test::write_file(dir.file("elsewhere/" + std::string(kScratchMark)), "");
  fs::create_directory_symlink("elsewhere", dir.path() / ("link" + digits));
  const std::vector<std::string> before = names_in(dir.path());
  { const ScratchFolder folder(dir.path() / "out"); }
  EXPECT_TRUE(remove_abandoned_scratch(dir.path(), {}, true).empty());
  EXPECT_EQ(names_in(dir.path()), before);
  EXPECT_TRUE(fs::exists(dir.path() / "elsewhere" / kScratchMark));
}

// A kill may come between the making of the folder and that of the mark.
TEST(ScratchFolder, RemovesAnEmptyFolderOfItsName) {
  const TempDir dir;
  fs::create_directory(dir.path() / "out.tmp-0123456789abcdef");
  { const ScratchFolder folder(dir.path() / "out"); }
  EXPECT_EQ(dir.entries(), 0U);
}

TEST(ScratchFolder, TakesTheLongestName) {
  const TempDir dir;
  const std::string name(255, 'n');
  { const ScratchFolder folder(dir.path() / name); }
  const fs::path left = left_by_a_kill(dir.path() / name);
  { const ScratchFolder folder(dir.path() / name); }
  EXPECT_FALSE(fs::exists(left));
}

TEST(ScratchFolder, AtTheEndOfTheProcessAllAreRemoved) {
  const TempDir dir;
  const pid_t child = ::fork();
  if (child == 0) {
    static const ScratchFolder one(dir.path() / "one"), two(dir.path() / "two");
    write_text(one.file("half"), "data");
    remove_live_scratch();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(dir.entries(), 0U);
}

TEST(UnnamedFile, HasNoName) {
  const TempDir dir;
  const int file = open_unnamed_file(dir.path());
  ASSERT_GE(file, 0);
  EXPECT_EQ(::pwrite(file, "text", 4, 0), 4);
  EXPECT_EQ(dir.entries(), 0U);
  ::close(file);
  EXPECT_LT(open_unnamed_file(dir.path() / "missing"), 0);
}

}  // namespace
}  // namespace trifold
