#include "checkpoint/background_saver.h"

#include <fstream>

#include "checkpoint/reader.h"
#include "checkpoint_bench.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using test::Boxes;
using test::has;
using test::TemporaryFolder;

constexpr int kRanks = 2;
const Shape kShape{8, 6};

Boxes boxes_of(int rank) {
  Boxes boxes;
  boxes.add_filled("param/w", DType::F32, kShape, even_part(kShape, 0, rank, kRanks));
  return boxes;
}

std::string error_of_finish(BackgroundSaver& saver) {
  try {
    saver.finish();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

int names_in(const fs::path& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder)) count += !entry.path().empty();
  return count;
}

TEST(BackgroundSaver, WritesTheStateAtItsStart) {
  const TemporaryFolder folder;
  const auto errors = test::on_ranks(kRanks, [&](Communicator& comm) {
    BackgroundSaver saver(comm);
    Boxes boxes = boxes_of(comm.rank());
    saver.start(folder.path(), test::meta_of(3), boxes.all(), {{Axis::Tp, comm.rank()}}, {});
    for (const NamedTensor& box : boxes.all()) std::fill_n(box.data.as<float>(), box.data.elements(), -1.0F);
    EXPECT_TRUE(saver.is_outstanding());
    EXPECT_EQ(saver.finish(), folder.path() / "step_0000000003");
    EXPECT_FALSE(saver.is_outstanding());
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  Buffer memory(sizeof(float) * static_cast<size_t>(kShape.elements()));
  NamedTensor whole;
  whole.spec.name = "param/w";
  whole.spec.global = kShape;
  whole.spec.local = Rect::whole(kShape);
  whole.data = memory.tensor(DType::F32, kShape);
  CheckpointReader(folder.path()).load({&whole, 1});
  for (int64_t i = 0; i < kShape.elements(); ++i) EXPECT_NE(whole.data.as<float>()[i], -1.0F);
}

// One rank fails in the background: every rank learns it, from finish() and not before; nothing is left; and
// the saver can be used again.
TEST(BackgroundSaver, ReportsABackgroundErrorOnEveryRank) {
  const TemporaryFolder folder;
  const auto errors = test::on_ranks(kRanks, [&](Communicator& comm) {
    BackgroundSaver saver(comm);
    Boxes boxes = boxes_of(comm.rank());
    for (const SavePhase phase : {SavePhase::LaidOut, SavePhase::HalfWritten, SavePhase::ShardWritten}) {
      SaveOptions options;
      options.at_phase = [&](SavePhase at) {
        if (comm.rank() == 1 && at == phase) fail("the disk of rank 1 is gone");
      };
      saver.start(folder.path(), test::meta_of(3), boxes.all(), {{Axis::Tp, comm.rank()}}, options);
      const std::string error = error_of_finish(saver);
      EXPECT_TRUE(has(error, "the disk of rank 1 is gone")) << comm.rank();
      EXPECT_TRUE(has(error, "step_0000000003"));
      EXPECT_FALSE(saver.is_outstanding());
    }
    if (comm.rank() == 0) {
      EXPECT_EQ(names_in(folder.path()), 0);
    }
    saver.start(folder.path(), test::meta_of(4), boxes.all(), {{Axis::Tp, comm.rank()}}, {});
    EXPECT_EQ(saver.finish(), folder.path() / "step_0000000004");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_TRUE(CheckpointReader(folder.path()).verify().ok());
}

// Only rank 0 looks at the root; the other must not wait for ever.
TEST(BackgroundSaver, ReportsAFolderThatCannotBeMadeOnEveryRank) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  const auto errors = test::on_ranks(kRanks, [&](Communicator& comm) {
    BackgroundSaver saver(comm);
    Boxes boxes = boxes_of(comm.rank());
    saver.start(folder.path() / "file" / "root", test::meta_of(3), boxes.all(), {{Axis::Tp, comm.rank()}},
                {});
    EXPECT_TRUE(has(error_of_finish(saver), "saving"));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// An outcome that is never collected: the destructor waits and throws nothing.
TEST(BackgroundSaver, MayBeDroppedWithAnErrorInside) {
  const TemporaryFolder folder;
  const auto errors = test::on_ranks(kRanks, [&](Communicator& comm) {
    BackgroundSaver saver(comm);
    Boxes boxes = boxes_of(comm.rank());
    SaveOptions options;
    options.at_phase = [](SavePhase at) {
      if (at == SavePhase::LaidOut) fail("no disk");
    };
    saver.start(folder.path(), test::meta_of(3), boxes.all(), {{Axis::Tp, comm.rank()}}, options);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(names_in(folder.path()), 0);
}

// One rank has no memory left for its copy, so all save at once; with memory again, in the background again.
TEST(BackgroundSaver, SavesAtOnceWhereMemoryIsShort) {
  const TemporaryFolder folder;
  const auto errors = test::on_ranks(kRanks, [&](Communicator& comm) {
    bool is_short = true;
    BackgroundSaver saver(comm,
                          [&]() -> size_t { return is_short && comm.rank() == 1 ? 1 : size_t{1} << 40; });
    Boxes boxes = boxes_of(comm.rank());
    const auto start = [&](int64_t step) {
      return saver.start(folder.path(), test::meta_of(step), boxes.all(), {{Axis::Tp, comm.rank()}}, {});
    };
    EXPECT_TRUE(has(start(3), "has 1 MiB of memory left, and copies of the state would take 1 MiB"));
    EXPECT_TRUE(saver.is_ready());
    EXPECT_EQ(saver.finish(), folder.path() / "step_0000000003");
    is_short = false;
    EXPECT_EQ(start(4), "");
    EXPECT_EQ(saver.finish(), folder.path() / "step_0000000004");
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_TRUE(CheckpointReader(folder.path() / "step_0000000003").verify().ok());
}

TEST(BackgroundSaver, HasOneSaveAtATime) {
  const TemporaryFolder folder;
  const auto errors = test::on_ranks(kRanks, [&](Communicator& comm) {
    BackgroundSaver saver(comm);
    EXPECT_THROW(saver.finish(), Error);
    Boxes boxes = boxes_of(comm.rank());
    const auto start = [&] {
      saver.start(folder.path(), test::meta_of(3), boxes.all(), {{Axis::Tp, comm.rank()}}, {});
    };
    start();
    EXPECT_THROW(start(), Error);
    saver.finish();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace trifold
