#include "checkpoint/reader.h"

#include <fstream>
#include <random>

#include "checkpoint/hdf5/hdf5_file.h"
#include "checkpoint/save_folder.h"
#include "checkpoint_bench.h"
#include "core/input_file.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using test::bad_input_of;
using test::Boxes;
using test::has;
using test::TemporaryFolder;

const Shape kWeight{12, 10};

void save(const fs::path& root, int64_t step) {
  const std::vector<std::string> errors = test::on_ranks(2, [&](Communicator& comm) {
    Boxes boxes;
    boxes.add_filled("param/w", DType::F32, kWeight, even_part(kWeight, 0, comm.rank(), 2));
    boxes.add_filled("param/d", DType::F64, kWeight, even_part(kWeight, 1, comm.rank(), 2));
    boxes.add_filled("count", DType::I64, {3}, Rect::whole({3}), {Axis::Tp});
    save_checkpoint(root, test::meta_of(step), boxes.all(), comm, {{Axis::Tp, comm.rank()}});
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
}

Boxes everything() {
  Boxes boxes;
  boxes.add("param/w", DType::F32, kWeight, Rect::whole(kWeight));
  boxes.add("param/d", DType::F64, kWeight, Rect::whole(kWeight));
  boxes.add("count", DType::I64, {3}, Rect::whole({3}));
  return boxes;
}

std::string load_error(const fs::path& path) {
  return bad_input_of([&] {
    Boxes boxes = everything();
    CheckpointReader(path).load(boxes.all());
  });
}

void change_byte(const fs::path& path, int64_t at, int bits) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ bits));
}

// Random boxes of random tensors, many at a time, against what was stored.
TEST(CheckpointReader, LoadsAnyBoxes) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  CheckpointReader reader(folder.path());
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int repeat = 0; repeat < 50; ++repeat) {
    Boxes boxes;
    for (const auto& [name, dtype] : {std::pair("param/w", DType::F32), std::pair("param/d", DType::F64)})
      for (int box = 0; box < 3; ++box) {
        Rect rect{{below(12), below(10)}, {0, 0}};
        rect.extent = {1 + below(12 - rect.offset[0]), 1 + below(10 - rect.offset[1])};
        boxes.add(name, dtype, kWeight, rect);
      }
    reader.load(boxes.all());
    EXPECT_EQ(boxes.wrong(), 0);
  }
}

TEST(CheckpointReader, FillsFlatSlices) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  Boxes boxes;
  for (const Rect& rect : rects_of_range(Rect::whole(kWeight), 7, 88))
    boxes.add("param/w", DType::F32, kWeight, rect);
  boxes.add("param/w", DType::F32, kWeight, {{3, 3}, {0, 4}});  // a rank may hold nothing
  CheckpointReader(folder.path()).load(boxes.all());
  EXPECT_EQ(boxes.wrong(), 0);
}

TEST(CheckpointReader, ConvertsOnlyWhenAsked) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  CheckpointReader reader(folder.path());
  Boxes boxes;
  boxes.add("param/w", DType::F64, kWeight, {{5, 2}, {4, 7}});
  boxes.add("param/d", DType::F32, kWeight, {{0, 0}, {12, 9}});
  const std::string error = bad_input_of([&] { reader.load(boxes.all()); });
  EXPECT_TRUE(has(error, "tensor param/w: checkpoint f32, requested f64"));
  EXPECT_TRUE(has(error, "tensor param/d: checkpoint f64, requested f32"));
  reader.load(boxes.all(), FloatConversion::Allow);
  EXPECT_EQ(boxes.wrong(), 0);
  Boxes integers;
  integers.add("param/w", DType::I64, kWeight, Rect::whole(kWeight));
  EXPECT_TRUE(
      has(bad_input_of([&] { reader.load(integers.all(), FloatConversion::Allow); }), "requested i64"));
}

TEST(CheckpointReader, ListsEverythingThatDoesNotFitAtOnce) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  Boxes boxes = everything();
  boxes.add("param/gone", DType::F32, {3}, Rect::whole({3}));
  boxes.add("count", DType::I64, {4}, Rect::whole({4}));
  boxes.add("adam_m/w", DType::F32, kWeight, Rect::whole(kWeight));
  const std::string error = bad_input_of([&] { CheckpointReader(folder.path()).load(boxes.all()); });
  EXPECT_TRUE(has(error, "tensor param/gone is missing"));
  EXPECT_TRUE(has(error, "tensor count: checkpoint [3], requested [4]"));
  EXPECT_TRUE(has(error, "tensor adam_m/w is missing"));
}

TEST(CheckpointReader, TellsAnEarlierVersionFromAnotherModel) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  Boxes boxes;
  const Shape grouped{2, 6, 10};
  const Shape other{10, 12};
  boxes.add("param/w", DType::F32, grouped, Rect::whole(grouped));
  boxes.add("param/d", DType::F64, other, Rect::whole(other));
  const std::string error = bad_input_of([&] { CheckpointReader(folder.path()).load(boxes.all()); });
  EXPECT_TRUE(
      has(error, "tensor param/w: written by an earlier version as [12, 10], now [2, 6, 10]: with the"));
  EXPECT_TRUE(has(error, "tensor param/d: checkpoint [12, 10], requested [10, 12]"));
}

TEST(CheckpointReader, SaysWhyThereIsNoCheckpoint) {
  const TemporaryFolder folder;
  EXPECT_TRUE(has(load_error(folder.path() / "nowhere"), "does not exist"));
  EXPECT_TRUE(has(load_error(folder.path()), "holds no checkpoint"));
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_TRUE(has(load_error(folder.path() / "file"), "is not the directory of a checkpoint"));
  fs::create_directory(folder.path() / "step_0000000003");
  EXPECT_TRUE(has(load_error(folder.path()), "step_0000000003"));
  EXPECT_TRUE(has(load_error(folder.path()), "holds no complete checkpoint before it"));
  EXPECT_TRUE(has(bad_input_of([&] { CheckpointReader reader(folder.path(), Newest::Usable); }),
                  "holds no valid checkpoint"));
}

TEST(CheckpointReader, TakesTheNewestStep) {
  const TemporaryFolder folder;
  for (int64_t step : {5, 100, 20}) save(folder.path(), step);
  fs::create_directory(folder.path() / "step_0000000200.tmp-0123456789abcdef");
  fs::create_directory(folder.path() / "step_x");
  EXPECT_EQ(CheckpointReader(folder.path()).meta().step, 100);
  // LATEST may lag behind or be missing, and any other text in it has no meaning.
  for (const char* text : {"step_0000000005\n", "", "step_00000\xff\n"}) {
    std::ofstream(folder.path() / "LATEST", std::ios::trunc) << text;
    EXPECT_EQ(CheckpointReader(folder.path()).meta().step, 100);
  }
  fs::remove(folder.path() / "LATEST");
  EXPECT_EQ(CheckpointReader(folder.path()).meta().step, 100);
}

// The newest checkpoint is refused, and `older` named and taken by callers that accept it.
void expect_refused(const fs::path& root, const std::string& why, int64_t older) {
  const std::string error = bad_input_of([&] { CheckpointReader reader(root); });
  EXPECT_TRUE(has(error, why)) << error;
  const std::string before = fmt::format(
      "; the newest complete checkpoint before it is {}/step_{:010}: name that one", root.string(), older);
  EXPECT_TRUE(has(error, before)) << error;
  EXPECT_EQ(CheckpointReader(root, Newest::Usable).meta().step, older);
}

TEST(CheckpointReader, RefusesADamagedNewest) {
  const TemporaryFolder folder;
  for (int64_t step : {5, 20, 100}) save(folder.path(), step);
  const fs::path newest = folder.path() / "step_0000000100";
  const fs::path manifest = newest / "manifest.json";
  const std::string text = read_input_file(manifest.string(), 1 << 20);
  change_byte(manifest, 60, 1);
  expect_refused(folder.path(), "step_0000000100/manifest.json cannot be used: it was changed", 20);
  EXPECT_TRUE(has(load_error(newest), "it was changed after it was written"));
  for (const size_t bytes : {size_t{0}, text.size() / 2, text.size() - 1}) {
    std::ofstream(manifest, std::ios::trunc) << text.substr(0, bytes);
    expect_refused(folder.path(), "step_0000000100/manifest.json cannot be used: its end is missing", 20);
  }
  fs::remove(manifest);
  expect_refused(folder.path(), "step_0000000100/manifest.json", 20);
  fs::copy_file(folder.path() / "step_0000000020" / "manifest.json", manifest);
  expect_refused(folder.path(), "step_0000000100 holds step 20, which contradicts its name", 20);
  EXPECT_TRUE(has(load_error(newest / ""), "holds step 20, which contradicts its name"));
  // The newest is gone, as LATEST tells.
  fs::remove_all(newest);
  expect_refused(folder.path(), "step_0000000100, the newest checkpoint according to", 20);
  // The one before it is damaged too.
  change_byte(folder.path() / "step_0000000020" / "manifest.json", 60, 1);
  expect_refused(folder.path(), "step_0000000100, the newest checkpoint according to", 5);
  fs::remove(folder.path() / "LATEST");
  expect_refused(folder.path(), "step_0000000020/manifest.json cannot be used", 5);
}

TEST(CheckpointReader, NamesTheWayOnFromADamagedShard) {
  const TemporaryFolder folder;
  for (int64_t step : {10, 20}) save(folder.path(), step);
  const fs::path newest = folder.path() / "step_0000000020";
  fs::resize_file(newest / "shard_00001.h5", 99);
  for (const fs::path& named : {folder.path(), newest, newest / ""})
    EXPECT_TRUE(has(load_error(named), folder.path().string() + "/step_0000000010: name that one to use it"));
  fs::remove(folder.path() / "step_0000000010" / "shard_00000.h5");
  EXPECT_TRUE(has(load_error(folder.path()), "holds no complete checkpoint before it"));
}

TEST(CheckpointReader, CanBeMoved) {
  const TemporaryFolder folder;
  save(folder.path() / "a", 10);
  fs::rename(folder.path() / "a", folder.path() / "b");
  fs::rename(folder.path() / "b" / "step_0000000010", folder.path() / "best");
  Boxes boxes = everything();
  CheckpointReader(folder.path() / "best").load(boxes.all());
  EXPECT_EQ(boxes.wrong(), 0);
}

TEST(CheckpointReader, DetectsTruncatedFiles) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  const fs::path shard = folder.path() / "step_0000000010" / "shard_00001.h5";
  const auto size = fs::file_size(shard);
  for (uintmax_t bytes : {uintmax_t{0}, uintmax_t{1}, size / 2, size - 1}) {
    fs::resize_file(shard, bytes);
    EXPECT_TRUE(has(load_error(folder.path()),
                    fmt::format("shard_00001.h5 has {} bytes instead of {}", bytes, size)));
  }
  fs::remove(shard);
  EXPECT_TRUE(has(load_error(folder.path()), "shard_00001.h5 cannot be opened: No such file"));
  EXPECT_FALSE(CheckpointReader(folder.path()).verify().ok());
}

TEST(CheckpointReader, NamesTheDamagedBox) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  const fs::path step = folder.path() / "step_0000000010";
  const TensorInfo tensor = *CheckpointReader(step).find("param/d");
  const PieceInfo& piece = tensor.pieces[1];
  change_byte(step / CheckpointReader(step).manifest().files[static_cast<size_t>(piece.file)].name,
              piece.byte_offset + 9, 16);
  EXPECT_TRUE(has(load_error(step), "tensor param/d, box [0:12, 5:10] is damaged"));
  // Tensors in undamaged files can still be read.
  Boxes boxes;
  boxes.add("param/w", DType::F32, kWeight, even_part(kWeight, 0, 0, 2));
  EXPECT_NO_THROW(CheckpointReader(step).load(boxes.all()));
  EXPECT_EQ(boxes.wrong(), 0);
}

TEST(CheckpointReader, DetectsSwappedFiles) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  save(folder.path(), 20);
  fs::copy_file(folder.path() / "step_0000000010" / "shard_00000.h5",
                folder.path() / "step_0000000020" / "shard_00000.h5", fs::copy_options::overwrite_existing);
  EXPECT_TRUE(has(load_error(folder.path()), "shard_00000.h5 has changed bytes between the elements"));
}

// One bit anywhere: found, or in a file that loading does not use. Never wrong data.
TEST(CheckpointReader, RandomBitFlipsNeverGiveWrongData) {
  const TemporaryFolder folder;
  save(folder.path(), 10);
  std::vector<fs::path> files{folder.path() / "LATEST"};
  for (const auto& entry : fs::directory_iterator(folder.path() / "step_0000000010"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::mt19937 random(2);
  int found = 0;
  for (int flip = 0; flip < 1000; ++flip) {
    const fs::path& file = files[static_cast<size_t>(flip) % files.size()];
    const auto at = static_cast<int64_t>(random() % fs::file_size(file));
    const int bit = 1 << random() % 8;
    change_byte(file, at, bit);
    const bool is_latest = file.filename() == "LATEST";  // matters only if it names a newer step
    const bool used_by_load = is_latest ? latest_step(folder.path()) > 10 : file.filename() != "view.h5";
    Boxes boxes = everything();
    bool thrown = false;
    try {
      CheckpointReader(folder.path()).load(boxes.all());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
      EXPECT_TRUE(has(error.what(), file.filename().string()));
      if (file.filename() != "manifest.json" && !is_latest) {
        EXPECT_TRUE(has(error.what(), "tensor "));
      }
      thrown = true;
    }
    EXPECT_EQ(thrown, used_by_load) << file << " byte " << at << " bit " << bit;
    if (!thrown) {
      EXPECT_EQ(boxes.wrong(), 0);
    }
    if (file.filename() == "view.h5") {
      EXPECT_FALSE(CheckpointReader(folder.path()).verify().ok());  // verify looks at it, loading does not
    }
    found += thrown;
    change_byte(file, at, bit);
  }
  EXPECT_GT(found, 500);
  EXPECT_TRUE(CheckpointReader(folder.path()).verify().ok());
}

// 5 MiB of numbers in boxes of several blocks: parts of them are right, and only the blocks they need are
// read.
TEST(CheckpointReader, ReadsOnlyTheBlocksItNeeds) {
  const TemporaryFolder folder;
  const Shape shape{640, 1024};
  for (const std::string& error : test::on_ranks(2, [&](Communicator& comm) {
         Boxes boxes;
         boxes.add_filled("param/w", DType::F64, shape, even_part(shape, 1, comm.rank(), 2));
         save_checkpoint(folder.path(), test::meta_of(3), boxes.all(), comm, {{Axis::Tp, comm.rank()}});
       }))
    ASSERT_EQ(error, "");
  const fs::path step = folder.path() / "step_0000000003";
  const PieceInfo piece = CheckpointReader(step).find("param/w")->pieces[0];  // [0:640, 0:512], 2.5 MiB
  ASSERT_EQ(piece.blocks.size(), 3U);
  const auto wrong_in = [&](const Rect& rect) {
    Boxes boxes;
    boxes.add("param/w", DType::F64, shape, rect);
    CheckpointReader(step).load(boxes.all());
    return boxes.wrong();
  };
  for (const Rect& rect : {Rect::whole(shape), Rect{{0, 0}, {1, 1}}, Rect{{639, 1023}, {1, 1}},
                           Rect{{255, 500}, {2, 40}}, Rect{{100, 3}, {500, 5}}, Rect{{300, 510}, {20, 4}}})
    EXPECT_EQ(wrong_in(rect), 0) << to_string(rect);
  // A block has 256 of the box's rows; the last one is damaged.
  change_byte(step / "shard_00000.h5", piece.byte_offset + 2 * kCrcBlock + 77, 1);
  EXPECT_EQ(wrong_in({{0, 0}, {512, 1024}}), 0);
  EXPECT_TRUE(has(bad_input_of([&] {
                    wrong_in({{0, 0}, {513, 1024}});
                  }),
                  "shard_00000.h5: tensor param/w, box [0:640, 0:512] is damaged: block 2"));
  EXPECT_FALSE(CheckpointReader(step).verify().ok());
}

TEST(CheckpointReader, ConvertsSixteenBits) {
  const TemporaryFolder folder;
  for (const std::string& error : test::on_ranks(1, [&](Communicator& comm) {
         Boxes boxes;
         NamedTensor& tensor = boxes.add("param/w", DType::BF16, {3}, Rect::whole({3}));
         for (int64_t i = 0; i < 3; ++i)
           tensor.data.as<Bfloat16>()[i] = Bfloat16(1.5 * static_cast<double>(i));
         save_checkpoint(folder.path(), test::meta_of(1), boxes.all(), comm, {});
       }))
    ASSERT_EQ(error, "");
  Boxes boxes;
  const Tensor data = boxes.add("param/w", DType::F32, {3}, Rect::whole({3})).data;
  CheckpointReader(folder.path()).load(boxes.all(), FloatConversion::Allow);
  EXPECT_EQ(data.as<float>()[1], 1.5F);
  EXPECT_EQ(data.as<float>()[2], 3.0F);
}

// The view shows whole tensors through HDF5 alone, from any folder, and NaN where a shard is missing.
TEST(CheckpointReader, TheViewShowsWholeTensors) {
  const TemporaryFolder folder;
  save(folder.path() / "a", 10);
  fs::rename(folder.path() / "a", folder.path() / "moved");
  const fs::path step = folder.path() / "moved" / "step_0000000010";
  const auto view = [&] {
    Boxes boxes = everything();
    const Hdf5File file = Hdf5File::open_read(step / "view.h5");
    for (const NamedTensor& box : boxes.all())
      file.read("/" + box.spec.name, box.spec.local, box.spec.local, box.data, box.spec.local);
    return boxes;
  };
  EXPECT_EQ(view().wrong(), 0);
  fs::remove(step / "shard_00001.h5");
  const Boxes torn = view();
  EXPECT_EQ(torn.wrong(), kWeight.elements());  // half of two tensors
  EXPECT_TRUE(std::isnan(torn.all()[0].data.as<float>()[kWeight.elements() - 1]));
  EXPECT_TRUE(std::isnan(torn.all()[1].data.as<double>()[9]));
}

TEST(CompareModels, ListsFieldByField) {
  const nlohmann::json stored{
      {"hidden_size", 128}, {"num_layers", 4}, {"tied", true}, {"rope", {{"theta", 1.5}}}};
  EXPECT_NO_THROW(compare_models(stored, stored));
  const nlohmann::json wanted{
      {"hidden_size", 256}, {"num_layers", 4}, {"rope", {{"theta", 2.5}}}, {"bias", false}};
  const std::string error = bad_input_of([&] { compare_models(stored, wanted); });
  EXPECT_TRUE(has(error, "hidden_size: checkpoint 128, requested 256"));
  EXPECT_TRUE(has(error, "rope.theta: checkpoint 1.5, requested 2.5"));
  EXPECT_TRUE(has(error, "tied: checkpoint true, requested nothing"));
  EXPECT_TRUE(has(error, "bias: checkpoint nothing, requested false"));
  EXPECT_FALSE(has(error, "num_layers"));
}

}  // namespace
}  // namespace trifold
