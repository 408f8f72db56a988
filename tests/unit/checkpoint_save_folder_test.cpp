#include "checkpoint/save_folder.h"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <mutex>

#include "checkpoint/reader.h"
#include "checkpoint/run_identity.h"
#include "checkpoint_bench.h"
#include "files/file.h"
#include "files/scratch_folder.h"

namespace trifold::save_folder_test {
namespace {

namespace fs = std::filesystem;
using test::bad_input_of;
using test::Boxes;
using test::has;
using test::TemporaryFolder;

std::vector<std::string> save(const fs::path& root, int64_t step, const SaveOptions& options = {}) {
  return test::on_ranks(2, [&](Communicator& comm) {
    Boxes boxes;
    boxes.add_filled("param/w", DType::F32, {8, 6}, even_part({8, 6}, 0, comm.rank(), 2));
    save_checkpoint(root, test::meta_of(step), boxes.all(), comm, {{Axis::Tp, comm.rank()}}, options);
  });
}

std::vector<int64_t> steps_in(const fs::path& root) {
  std::vector<int64_t> steps;
  for (const auto& [step, path] : checkpoints_in(root)) steps.push_back(step);
  return steps;
}

TEST(SaveFolder, RemovesOnlyTheRestsOfUnfinishedSaves) {
  const TemporaryFolder folder;
  save(folder.path(), 5);
  for (const char* name : {"step_0000000006.tmp-0123456789abcdef", "step_0000000004.tmp-0123456789abcdef",
                           "step_6.tmp", "notes.tmp-1", "other"})
    fs::create_directory(folder.path() / name);
  std::ofstream(folder.path() / "step_0000000006.tmp-0123456789abcdef" / kScratchMark);
  std::ofstream(folder.path() / "step_0000000006.tmp-0123456789abcdef" / "half") << "x";
  std::ofstream(folder.path() / "step_0000000004.tmp-0123456789abcdef" / "notes") << "precious";
  const SaveFolder held(folder.path());
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"LATEST", "OWNER", "notes.tmp-1", "other",
                                             "step_0000000004.tmp-0123456789abcdef", "step_0000000005",
                                             "step_6.tmp"}));
}

// Its files are replaced in every save; those of a user never.
TEST(SaveFolder, RefusesFilesOfItsNamesThatNoRunWrote) {
  for (const char* name : {"LATEST", "BEST", "OWNER"}) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / name;
    const auto refused = [&] { return bad_input_of([&] { SaveFolder second(folder.path()); }); };
    std::ofstream(folder.path() / "notes") << "precious";
    fs::create_symlink("notes", path);
    EXPECT_TRUE(has(refused(), fmt::format("{} is a link to notes", name)));
    fs::remove(path);
    std::ofstream(path) << "precious";
    EXPECT_TRUE(has(refused(), "begins with 'precious'"));
    fs::remove(path);
    fs::create_directory(path);
    EXPECT_TRUE(has(refused(), "is no regular file"));
    fs::remove(path);
    const SaveFolder held(folder.path());
  }
}

// A link that appears during a run is replaced itself.
TEST(SaveFolder, NeverWritesThroughALink) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "notes") << "precious";
  fs::create_symlink("notes", folder.path() / "LATEST");
  fs::create_symlink("notes", folder.path() / "BEST");
  save(folder.path(), 5);
  mark_best(folder.path(), 5);
  EXPECT_EQ(first_bytes(folder.path() / "notes", 100), "precious");
  EXPECT_EQ(first_bytes(folder.path() / "LATEST", 100), "step_0000000005\n");
  EXPECT_EQ(first_bytes(folder.path() / "BEST", 100), "step_0000000005\n");
}

TEST(SaveFolder, IsForOneRunAtATime) {
  const TemporaryFolder folder;
  {
    const SaveFolder held(folder.path());
    EXPECT_TRUE(has(bad_input_of([&] { SaveFolder second(folder.path()); }), "another run saves"));
    EXPECT_TRUE(has(bad_input_of([&] { check_not_taken(folder.path()); }), "another run saves"));
    EXPECT_TRUE(has(bad_input_of([&] { SaveFolder second(folder.path()); }),
                    fmt::format("(process {} on host ", ::getpid())));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_NO_THROW(check_not_taken(folder.path()));
  EXPECT_NO_THROW(SaveFolder(folder.path()));
}

// What flock says other than that the lock is taken: a file system without locks is used with a warning, and
// anything else is an error.
TEST(SaveFolder, ReportsLocksThatCannotBeTaken) {
  const TemporaryFolder folder;
  EXPECT_TRUE(SaveFolder(folder.path()).warnings().empty());
  const SaveFolder without(folder.path(), [](int, int) {
    errno = ENOLCK;
    return -1;
  });
  ASSERT_EQ(without.warnings().size(), 1U);
  EXPECT_TRUE(has(without.warnings()[0], "has no locks (No locks available)"));
  const auto broken = [](int, int) {
    errno = EIO;
    return -1;
  };
  try {
    const SaveFolder none(folder.path(), broken);
    FAIL() << "the lock was skipped";
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "cannot be locked for this run: Input/output error"));
  }
}

// Moved away, replaced or removed under the run: never made anew, where another run could be.
TEST(SaveFolder, IsNotMadeAnewWhenItIsGone) {
  const TemporaryFolder folder;
  const fs::path root = folder.path() / "d";
  const SaveFolder held(root);
  SaveOptions options;
  options.folder = &held;
  for (const std::string& error : save(root, 1, options)) EXPECT_EQ(error, "");
  fs::rename(root, folder.path() / "moved");
  EXPECT_TRUE(has(save(root, 2, options)[1], "was moved or removed while this run saved into it"));
  EXPECT_FALSE(fs::exists(root));
  fs::create_directory(root);
  EXPECT_TRUE(has(save(root, 2, options)[1], "was replaced by another folder while this run saved into it"));
  EXPECT_TRUE(fs::is_empty(root));
  fs::remove(root);
  fs::rename(folder.path() / "moved", root);
  for (const std::string& error : save(root, 2, options)) EXPECT_EQ(error, "");
  EXPECT_EQ(steps_in(root), (std::vector<int64_t>{2, 1}));
}

TEST(RunIdentity, KeepsRunsApart) {
  const TemporaryFolder folder;
  const fs::path mine = folder.path() / "mine", old = folder.path() / "old";
  const RunIdentity run = new_run();
  EXPECT_NO_THROW(check_owner(mine, run));  // not there yet
  SaveOptions options;
  options.run_id = run.id;
  save(mine, 5, options);
  save(old, 7);  // without an identity, as they once were

  EXPECT_TRUE(has(bad_input_of([&] { check_owner(mine, new_run()); }),
                  "holds checkpoints of another run, the newest of step 5"));
  EXPECT_TRUE(has(bad_input_of([&] { check_owner(old, new_run()); }), "(without an identity)"));
  EXPECT_TRUE(has(bad_input_of([&] { check_owner(old, continued_run(mine)); }), "another run"));
  EXPECT_TRUE(has(bad_input_of([&] { check_owner(mine / "step_0000000005", new_run()); }), "itself"));

  EXPECT_EQ(continued_run(mine).id, run.id);
  EXPECT_EQ(continued_run(mine / "step_0000000005").id, run.id);
  fs::copy(mine, folder.path() / "copy", fs::copy_options::recursive);
  EXPECT_NO_THROW(check_owner(folder.path() / "copy", continued_run(mine)));
  EXPECT_NO_THROW(check_owner(old, continued_run(old)));
  EXPECT_NO_THROW(check_owner(old, continued_run(old / "step_0000000007" / "")));
  EXPECT_NO_THROW(check_owner(old, new_run(old)));  // its weights
  EXPECT_FALSE(continued_run(old).id.empty());
}

// No run may save in a folder with unreadable checkpoints.
TEST(RunIdentity, TreatsUnreadableFilesAsThoseOfAnotherRun) {
  const TemporaryFolder folder;
  save(folder.path(), 5);
  fs::resize_file(folder.path() / "step_0000000005" / "manifest.json", 10);
  EXPECT_TRUE(has(bad_input_of([&] { check_owner(folder.path(), new_run()); }), "the newest of step 5"));
}

TEST(Retention, KeepsTheNewest) {
  const TemporaryFolder folder;
  for (int64_t step : {1, 2, 3}) save(folder.path(), step);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{3, 2, 1}));  // all by default
  SaveOptions options;
  options.retain = 3;
  for (const std::string& error : save(folder.path(), 4, options)) EXPECT_EQ(error, "");
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{4, 3, 2}));
}

// A damaged checkpoint does not count, and of good ones two always stay.
TEST(Retention, NeverLeavesFewerThanTwoGoodOnes) {
  const TemporaryFolder folder;
  for (int64_t step : {1, 2, 3, 4, 5}) save(folder.path(), step);
  fs::resize_file(folder.path() / "step_0000000004" / "shard_00001.h5", 100);
  fs::remove(folder.path() / "step_0000000003" / "manifest.json");
  SaveOptions options;
  options.retain = 1;
  save(folder.path(), 6, options);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{6, 5}));
  fs::resize_file(folder.path() / "step_0000000006" / "shard_00001.h5", 100);
  save(folder.path(), 7, options);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{7, 6, 5}));
}

TEST(Retention, SparesTheBest) {
  const TemporaryFolder folder;
  SaveOptions options;
  options.retain = 2;
  options.is_best = true;
  save(folder.path(), 2, options);
  options.is_best = false;
  for (int64_t step : {3, 4, 5}) save(folder.path(), step, options);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{5, 4, 2}));
  EXPECT_EQ(CheckpointReader(folder.path() / "BEST").meta().step, 2);
  options.is_best = true;
  save(folder.path(), 6, options);
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{6, 5}));
  EXPECT_EQ(CheckpointReader(folder.path() / "BEST").meta().step, 6);
  mark_best(folder.path(), 5);
  EXPECT_EQ(CheckpointReader(folder.path() / "BEST").meta().step, 5);

  std::ofstream(folder.path() / "BEST") << "step_7/../x\n";
  EXPECT_TRUE(has(bad_input_of([&] { CheckpointReader reader(folder.path() / "BEST"); }),
                  "'step_7/../x' is not the name of a checkpoint"));
  save(folder.path(), 7, options);  // which takes no notice of it
  EXPECT_EQ(steps_in(folder.path()), (std::vector<int64_t>{7, 6}));
}

// The remains of an interrupted removal are not a checkpoint.
TEST(Retention, TakesTheNameBeforeTheFiles) {
  const TemporaryFolder folder;
  for (int64_t step : {1, 2}) save(folder.path(), step);
  SaveOptions options;
  options.retain = 2;
  std::vector<int64_t> steps;
  std::vector<SavePhase> phases;
  options.at_phase = [&](SavePhase phase) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    phases.push_back(phase);
    if (phase == SavePhase::OldMovedAway) steps = steps_in(folder.path());
  };
  save(folder.path(), 3, options);
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 2}));
  for (const SavePhase phase : save_phases())
    EXPECT_EQ(std::count(phases.begin(), phases.end(), phase),
              phase >= SavePhase::LaidOut && phase <= SavePhase::ShardWritten ? 2 : 1)
        << name_of(phase);
}

TEST(NewCheckpoint, AsksForRoomFirst) {
  const TemporaryFolder folder;
  const SaveOptions options;
  try {
    const NewCheckpoint refused(folder.path(), 1, int64_t{1} << 60, options);
    FAIL() << "there is no such disk";
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "step_0000000001 needs 121056757"));
    EXPECT_TRUE(has(error.what(), "are free on the file system of " + folder.path().string()));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace trifold::save_folder_test
