#include "checkpoint/writer.h"

#include <chrono>
#include <fstream>
#include <thread>

#include "checkpoint/reader.h"
#include "checkpoint_bench.h"
#include "core/input_file.h"

namespace trifold::writer_test {
namespace {

namespace fs = std::filesystem;
using test::Boxes;
using test::has;
using test::on_ranks;
using test::TemporaryFolder;

const MeshSizes kMesh{{Axis::Tp, 2}, {Axis::Dp, 2}};

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

MeshCoords position(int rank) { return coords_of(rank, kMesh); }

// What a rank of a 2x2 mesh holds: a weight cut in rows by tp and columns by dp, a replicated bias, a moment
// in flat slices over dp of the rows of tp, integers, and a scalar.
Boxes state_of(int rank) {
  const MeshCoords at = position(rank);
  const AxisSet everywhere{Axis::Tp, Axis::Dp};
  Boxes boxes;
  const Rect quarter{{at[Axis::Tp] * 4, at[Axis::Dp] * 3}, {4, 3}};
  boxes.add_filled("param/w", DType::F32, {8, 6}, quarter);
  boxes.add_filled("param/b", DType::F64, {6}, Rect::whole({6}), everywhere);
  const Rect half{{at[Axis::Tp] * 4, 0}, {4, 6}};
  for (const Rect& rect : rects_of_range(half, at[Axis::Dp] == 0 ? 0 : 11, at[Axis::Dp] == 0 ? 11 : 24))
    boxes.add_filled("adam_m/w", DType::F32, {8, 6}, rect);
  boxes.add_filled("rows", DType::I64, {2, 5}, {{at[Axis::Dp], 0}, {1, 5}}, {Axis::Tp});
  boxes.add_filled("scale", DType::F64, {}, {}, everywhere);
  return boxes;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

void save(const fs::path& root, int64_t step) {
  expect_no_errors(on_ranks(4, [&](Communicator& comm) {
    const Boxes boxes = state_of(comm.rank());
    const fs::path at = save_checkpoint(root, test::meta_of(step), boxes.all(), comm, position(comm.rank()));
    check(at == root / step_directory_name(step), "unexpected place {}", at.string());
  }));
}

// Reads everything as `ranks` ranks that cut dim `dim` of the matrices; returns the number of wrong elements.
int64_t wrong_when_read_as(const fs::path& path, int ranks, int dim) {
  int64_t wrong = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    Boxes boxes;
    boxes.add("param/w", DType::F32, {8, 6}, even_part({8, 6}, dim, rank, ranks));
    boxes.add("adam_m/w", DType::F32, {8, 6}, even_part({8, 6}, dim, rank, ranks));
    boxes.add("param/b", DType::F64, {6}, Rect::whole({6}));
    boxes.add("rows", DType::I64, {2, 5}, Rect::whole({2, 5}));
    boxes.add("scale", DType::F64, {}, {});
    EXPECT_GT(boxes.wrong(), 0);  // nothing is right before it is loaded
    CheckpointReader(path).load(boxes.all());
    wrong += boxes.wrong();
  }
  return wrong;
}

TEST(SaveCheckpoint, AnyMeshReadsACheckpointOfFourRanks) {
  const TemporaryFolder folder;
  save(folder.path() / "run", 10);
  const fs::path at = folder.path() / "run" / "step_0000000010";
  EXPECT_EQ(wrong_when_read_as(at, 1, 0), 0);
  EXPECT_EQ(wrong_when_read_as(at, 2, 0), 0);
  EXPECT_EQ(wrong_when_read_as(at, 3, 1), 0);
  EXPECT_EQ(wrong_when_read_as(folder.path() / "run", 1, 0), 0);

  const CheckpointReader reader(at);
  EXPECT_EQ(reader.meta().step, 10);
  EXPECT_EQ(reader.meta().consumed_samples, 320);
  EXPECT_EQ(reader.meta().model["hidden_size"], 12);
  EXPECT_EQ(reader.find("param/w")->pieces.size(), 4U);
  EXPECT_EQ(reader.find("param/b")->pieces.size(), 1U);  // replicated: written once
  EXPECT_EQ(reader.find("rows")->pieces.size(), 2U);
  EXPECT_EQ(reader.find("scale")->global, Shape{});
  EXPECT_TRUE(reader.verify().ok());
}

TEST(SaveCheckpoint, LeavesExactlyTheFilesOfTheFormat) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  save(folder.path(), 20);
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"LATEST", "step_0000000010", "step_0000000020"}));
  EXPECT_EQ(names_in(folder.path() / "step_0000000010"),
            (std::vector<std::string>{"manifest.json", "shard_00000.h5", "shard_00001.h5", "shard_00002.h5",
                                      "shard_00003.h5", "view.h5"}));
  EXPECT_EQ(read_input_file((folder.path() / "LATEST").string(), 100), "step_0000000020\n");
  EXPECT_EQ(CheckpointReader(folder.path()).meta().step, 20);
}

// Nothing random and no time is in a shard or the view.
TEST(SaveCheckpoint, EqualStateMakesEqualFiles) {
  const TemporaryFolder folder;
  save(folder.path() / "a", 10);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  save(folder.path() / "b", 10);
  for (const std::string& name : names_in(folder.path() / "a" / "step_0000000010")) {
    if (name == "manifest.json") continue;
    const auto bytes = [&](const char* where) {
      return read_input_file((folder.path() / where / "step_0000000010" / name).string(), 1 << 20);
    };
    EXPECT_TRUE(bytes("a") == bytes("b")) << name;
  }
}

TEST(SaveCheckpoint, ReplacesTheSameStep) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  const std::string first = CheckpointReader(folder.path()).manifest().save_id;
  save(folder.path(), 10);
  EXPECT_NE(CheckpointReader(folder.path()).manifest().save_id, first);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"LATEST", "step_0000000010"}));
  EXPECT_EQ(wrong_when_read_as(folder.path(), 1, 0), 0);
}

// The checkpoint is complete by then: the save succeeds, with a warning.
TEST(SaveCheckpoint, AFileThatCannotBeReplacedIsAWarning) {
  const TemporaryFolder folder;
  for (const char* name : {"LATEST", "BEST"}) fs::create_directories(folder.path() / name / "in the way");
  std::vector<std::string> warnings;
  expect_no_errors(on_ranks(4, [&](Communicator& comm) {
    SaveOptions options{.is_best = true};
    if (comm.rank() == 0) options.warn = [&](std::string text) { warnings.push_back(std::move(text)); };
    const Boxes boxes = state_of(comm.rank());
    save_checkpoint(folder.path(), test::meta_of(10), boxes.all(), comm, position(comm.rank()), options);
  }));
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_TRUE(has(warnings[0], "step_0000000010 was saved, but LATEST failed: "));
  EXPECT_TRUE(has(warnings[1], "step_0000000010 was saved, but BEST failed: "));
  EXPECT_EQ(wrong_when_read_as(folder.path(), 1, 0), 0);
}

TEST(SaveCheckpoint, ARankThatOwnsNothingWritesNoFile) {
  const TemporaryFolder folder;
  expect_no_errors(on_ranks(3, [&](Communicator& comm) {
    Boxes boxes;
    boxes.add_filled("w", DType::F32, {5}, Rect::whole({5}), {Axis::Tp});
    save_checkpoint(folder.path(), test::meta_of(1), boxes.all(), comm, {{Axis::Tp, comm.rank()}});
  }));
  EXPECT_EQ(names_in(folder.path() / "step_0000000001"),
            (std::vector<std::string>{"manifest.json", "shard_00000.h5", "view.h5"}));
}

// Every rank gets the error, the temporary folder goes, and what was there before stays.
void expect_refused(const std::string& message, const std::function<Boxes(int rank)>& state) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  const std::vector<std::string> before = names_in(folder.path());
  const std::vector<std::string> errors = on_ranks(4, [&](Communicator& comm) {
    const Boxes boxes = state(comm.rank());
    save_checkpoint(folder.path(), test::meta_of(20), boxes.all(), comm, position(comm.rank()));
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(has(error, message));
    EXPECT_TRUE(has(error, "step_0000000020"));
  }
  EXPECT_EQ(names_in(folder.path()), before);
  EXPECT_EQ(CheckpointReader(folder.path()).meta().step, 10);
}

TEST(SaveCheckpoint, RejectsPiecesThatDoNotCoverATensor) {
  expect_refused(
      "tensor adam_m/w: no box holds [6:8, 0:6]; the 6 boxes given hold 35 of 48 elements of [8, 6]",
      [](int rank) { return rank < 3 ? state_of(rank) : Boxes(); });
  expect_refused("overlap", [](int rank) {
    Boxes boxes = state_of(rank);
    if (rank == 2) boxes.add_filled("param/b", DType::F64, {6}, {{1}, {2}});
    return boxes;
  });
  expect_refused("is outside its shape [8, 6]", [](int rank) {
    Boxes boxes = state_of(rank);
    if (rank == 1) boxes.add("param/w", DType::F32, {8, 6}, {{8, 0}, {1, 6}});
    return boxes;
  });
}

TEST(SaveCheckpoint, RefusesRanksThatDisagree) {
  expect_refused("tensor x is f32 [4] on one rank and f32 [5] on another", [](int rank) {
    Boxes boxes = state_of(rank);
    boxes.add("x", DType::F32, {rank == 3 ? 5 : 4}, {{rank}, {1}});
    return boxes;
  });
  expect_refused("tensor x is f32 [4] on one rank and f64 [4] on another", [](int rank) {
    Boxes boxes = state_of(rank);
    boxes.add("x", rank == 3 ? DType::F64 : DType::F32, {4}, {{rank}, {1}});
    return boxes;
  });
}

TEST(SaveCheckpoint, AFailureOfOneRankIsAnErrorOnAll) {
  expect_refused("rank 2: 'bad name' is not a valid name for a stored tensor", [](int rank) {
    Boxes boxes = state_of(rank);
    if (rank == 2) boxes.add("bad name", DType::F32, {4}, {{0}, {4}});
    return boxes;
  });
  expect_refused("rank 1: tensor y: the box [0:4] is given 3 elements", [](int rank) {
    Boxes boxes = state_of(rank);
    if (rank == 1) boxes.add("y", DType::F32, {4}, {{0}, {4}}).data.shape = {3};
    return boxes;
  });
}

// A communicator that lets something happen before its rank, and so any other, can leave an all_gather.
class Meddling : public Communicator {
 public:
  Meddling(Communicator& inner, std::function<void()> meddle) : inner_(inner), meddle_(std::move(meddle)) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view backend() const override { return inner_.backend(); }
  bool sums_in_rank_order() const override { return inner_.sums_in_rank_order(); }
  void all_gather(Tensor out, Tensor in, Stream& stream) override {
    meddle_();
    inner_.all_gather(out, in, stream);
  }
  void all_reduce(Tensor inout, Reduce how, Stream& stream) override {
    inner_.all_reduce(inout, how, stream);
  }
  void reduce_scatter(Tensor out, Tensor in, Reduce how, Stream& stream) override {
    inner_.reduce_scatter(out, in, how, stream);
  }
  void all_to_all(Tensor out, Tensor in, std::span<const int64_t> out_rows, std::span<const int64_t> in_rows,
                  Stream& stream) override {
    inner_.all_to_all(out, in, out_rows, in_rows, stream);
  }
  void broadcast(Tensor inout, int root, Stream& stream) override { inner_.broadcast(inout, root, stream); }
  void exchange(std::span<const Transfer> transfers, Stream& stream) override {
    inner_.exchange(transfers, stream);
  }
  std::unique_ptr<Communicator> split(int color, int key) override { return inner_.split(color, key); }
  void abort(std::string_view why) noexcept override { inner_.abort(why); }
  void barrier() override { inner_.barrier(); }

 private:
  Communicator& inner_;
  std::function<void()> meddle_;
};

// Files that cannot be made in the middle of the save: their names are taken as soon as the folder exists.
TEST(SaveCheckpoint, AFailedWriteIsAnErrorOnAllAndCleanedUp) {
  for (const std::string name : {"shard_00002.h5", "view.h5", "manifest.json"}) {
    const TemporaryFolder folder;
    const auto take_name = [&] {
      for (const auto& entry : fs::directory_iterator(folder.path()))
        if (fs::exists(entry.path() / "new")) fs::create_directory(entry.path() / "new" / name);
    };
    const std::vector<std::string> errors = on_ranks(4, [&](Communicator& comm) {
      const Boxes boxes = state_of(comm.rank());
      Meddling meddling(comm, take_name);
      save_checkpoint(folder.path(), test::meta_of(20), boxes.all(), comm.rank() == 0 ? meddling : comm,
                      position(comm.rank()));
    });
    for (const std::string& error : errors) {
      EXPECT_TRUE(has(error, name == "shard_00002.h5" ? "rank 2: " : "rank 0: "));
      EXPECT_TRUE(has(error, name));
      EXPECT_TRUE(has(error, " exists"));
    }
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{}) << name;
  }
}

TEST(SaveCheckpoint, APlaceThatCannotBeWrittenIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "in the way";
  const std::vector<std::string> errors = on_ranks(2, [&](Communicator& comm) {
    Boxes boxes;
    boxes.add_filled("w", DType::F32, {2}, {{comm.rank()}, {1}});
    save_checkpoint(folder.path() / "file", test::meta_of(1), boxes.all(), comm, {{Axis::Tp, comm.rank()}});
  });
  for (const std::string& error : errors) EXPECT_TRUE(has(error, "rank 0: "));
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"file"});
}

// In every phase of a save: what fails then is this program's own doing, and no bad input.
TEST(SaveCheckpoint, AFolderThatIsMovedAwayIsAFailure) {
  int failures = 0;
  for (const SavePhase phase : save_phases()) {
    if (phase == SavePhase::OldMovedAway) continue;  // without retention none is
    const TemporaryFolder folder;
    const fs::path root = folder.path() / "save", moved = folder.path() / "moved";
    fs::create_directory(root);
    SaveOptions options;
    options.at_phase = [&](SavePhase now) {
      if (now == phase && fs::exists(root)) fs::rename(root, moved);
    };
    test::run_ranks(1, [&](Communicator& comm) {
      Boxes boxes;
      boxes.add_filled("w", DType::F32, {8}, Rect::whole({8}));
      try {
        save_checkpoint(root, test::meta_of(1), boxes.all(), comm, {}, options);
      } catch (const Error& error) {
        ++failures;
        EXPECT_EQ(error.kind(), ErrorKind::Failure) << name_of(phase) << ": " << error.what();
      }
    });
    EXPECT_FALSE(fs::exists(root)) << name_of(phase);
  }
  EXPECT_GT(failures, 5);
}

}  // namespace
}  // namespace trifold::writer_test
