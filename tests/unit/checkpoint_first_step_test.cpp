// The record of the first step after a checkpoint, its effect on retention, and that no state that is not finite is
// saved.
#include "checkpoint/first_step.h"

#include <fstream>
#include <limits>

#include "checkpoint/save_folder.h"
#include "checkpoint_bench.h"

namespace trifold::first_step_test {
namespace {

namespace fs = std::filesystem;
using test::Boxes;
using test::has;
using test::TemporaryFolder;
using Outcome = FirstStep::Outcome;

// Saves in `folder`, the last element of the tensor being `last`; the errors of both ranks.
std::vector<std::string> save(const fs::path& folder, int64_t step, float last = 1,
                              const SaveOptions& options = {}) {
  return test::on_ranks(2, [&](Communicator& comm) {
    Boxes boxes;
    const Tensor data =
        boxes.add_filled("param/w", DType::F32, {1024, 1024}, even_part({1024, 1024}, 0, comm.rank(), 2))
            .data;
    if (comm.rank() == 1) data.as<float>()[data.elements() - 1] = last;
    save_checkpoint(folder, test::meta_of(step), boxes.all(), comm, {{Axis::Tp, comm.rank()}}, options);
  });
}

fs::path checkpoint(const fs::path& folder, int64_t step) { return folder / step_directory_name(step); }

TEST(FirstStep, IsWrittenDownAndRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(first_step_of(folder.path()).outcome, Outcome::Unknown);
  note_first_step(folder.path(), {Outcome::Finite, {}});
  EXPECT_EQ(first_step_of(folder.path()).outcome, Outcome::Finite);
  note_first_step(folder.path(), {Outcome::NotFinite, "step 8: the loss is nan"});
  EXPECT_EQ(first_step_of(folder.path()).outcome, Outcome::NotFinite);
  EXPECT_EQ(first_step_of(folder.path()).why, "step 8: the loss is nan");
  std::ofstream(folder.path() / "FIRST_STEP") << "";  // a kill before its only write
  EXPECT_EQ(first_step_of(folder.path()).outcome, Outcome::Unknown);
}

TEST(FirstStep, NotesFollowTheRun) {
  const TemporaryFolder folder;
  for (const int64_t step : {10, 20, 30, 40}) fs::create_directory(checkpoint(folder.path(), step));
  const auto outcome = [&](int64_t step) { return first_step_of(checkpoint(folder.path(), step)).outcome; };
  FirstStepNotes notes(true);
  notes.finite(9);
  notes.finite(10);
  notes.at(10, checkpoint(folder.path(), 10));
  EXPECT_EQ(outcome(10), Outcome::Unknown);
  notes.finite(11);
  EXPECT_EQ(outcome(10), Outcome::Finite);
  notes.finite(25);
  notes.at(20, checkpoint(folder.path(), 20));  // saved in the background, ready steps later
  EXPECT_EQ(outcome(20), Outcome::Finite);
  notes.at(30, checkpoint(folder.path(), 30));
  EXPECT_TRUE(notes.not_finite(31, "nan"));
  EXPECT_EQ(outcome(30), Outcome::NotFinite);
  notes.finite(41);
  notes.at(40, checkpoint(folder.path(), 40));
  EXPECT_FALSE(notes.not_finite(42, "nan")) << "a step after the first says nothing of the checkpoint";
  EXPECT_EQ(outcome(40), Outcome::Finite);
}

TEST(FirstStep, RanksThatDoNotWriteAgreeOnTheAnswer) {
  const TemporaryFolder folder;
  FirstStepNotes notes(false);
  notes.at(0, folder.path());
  EXPECT_TRUE(notes.not_finite(1, "nan"));
  EXPECT_EQ(first_step_of(folder.path()).outcome, Outcome::Unknown);
}

TEST(FirstStep, IsForgottenWithTheCheckpointThatIsReplaced) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  note_first_step(checkpoint(folder.path(), 10), {Outcome::NotFinite, "nan"});
  save(folder.path(), 10);
  EXPECT_EQ(first_step_of(checkpoint(folder.path(), 10)).outcome, Outcome::Unknown);
}

TEST(FirstStep, RetentionKeepsTheNewestThatWasTrainedOn) {
  const TemporaryFolder folder;
  SaveOptions options;
  options.retain = 2;
  const auto steps = [&] {
    std::vector<int64_t> found;
    for (const auto& entry : checkpoints_in(folder.path())) found.push_back(entry.first);
    return found;
  };
  for (const int64_t step : {10, 20}) save(folder.path(), step);
  note_first_step(checkpoint(folder.path(), 10), {Outcome::Finite, {}});
  for (const int64_t step : {30, 40, 50}) save(folder.path(), step, 1, options);
  EXPECT_EQ(steps(), (std::vector<int64_t>{50, 40, 10}));
  note_first_step(checkpoint(folder.path(), 50), {Outcome::NotFinite, "nan"});
  save(folder.path(), 45, 1, options);
  EXPECT_EQ(steps(), (std::vector<int64_t>{50, 45, 40, 10})) << "50 is no good one";
  note_first_step(checkpoint(folder.path(), 45), {Outcome::Finite, {}});
  save(folder.path(), 46, 1, options);
  EXPECT_EQ(steps(), (std::vector<int64_t>{50, 46, 45}));
}

TEST(NotFinite, IsNotSaved) {
  const TemporaryFolder folder;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<std::string> errors = save(folder.path(), 7, bad);
    for (const std::string& error : errors) {
      EXPECT_TRUE(has(error, "rank 1: after step 7, element 524287 of tensor param/w, box")) << error;
      EXPECT_TRUE(has(error, bad > 0 ? "is inf" : "is nan")) << error;
    }
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace trifold::first_step_test
