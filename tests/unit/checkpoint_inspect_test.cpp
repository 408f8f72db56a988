#include "checkpoint/inspect.h"

#include "checkpoint_bench.h"

namespace trifold::inspect_test {
namespace {

namespace fs = std::filesystem;
using test::Boxes;
using test::has;
using test::TemporaryFolder;

// Saves on `ranks` ranks that cut the rows; `edit` changes what a rank holds.
void save(const fs::path& root, const CheckpointMeta& meta, int ranks,
          const std::function<void(Boxes&, int)>& edit = {}) {
  const std::vector<std::string> errors = test::on_ranks(ranks, [&](Communicator& comm) {
    Boxes boxes;
    boxes.add_filled("param/w", DType::F32, {8, 6}, even_part({8, 6}, 0, comm.rank(), ranks));
    boxes.add_filled("adam_m/w", DType::F32, {8, 6}, even_part({8, 6}, 0, comm.rank(), ranks));
    if (edit) edit(boxes, comm.rank());
    save_checkpoint(root, meta, boxes.all(), comm, {{Axis::Tp, comm.rank()}});
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
}

CheckpointDifference diff(const fs::path& a, const fs::path& b) {
  CheckpointReader left(a);
  CheckpointReader right(b);
  return difference(left, right);
}

TEST(Inspect, Describes) {
  const TemporaryFolder folder;
  save(folder.path(), test::meta_of(10), 2);
  const std::string text = describe(CheckpointReader(folder.path()));
  EXPECT_TRUE(has(text, "step 10, 320 samples consumed"));
  EXPECT_TRUE(has(text, "hidden_size 12, num_layers 2"));
  EXPECT_TRUE(has(text, "dp 2, pp 1, tp 2"));
  EXPECT_TRUE(has(text, "param/w   f32    [8, 6]                    192 B       2\n"));
  EXPECT_TRUE(has(text, "param: 1 tensors, 48 elements, 192 B\n"));
  EXPECT_TRUE(has(text, "total: 2 tensors, 96 elements, 384 B\n"));
}

TEST(Inspect, ShowsWhatAModelDiffersIn) {
  const TemporaryFolder folder;
  CheckpointMeta meta = test::meta_of(10);
  meta.model = {{"hidden_size", 12},
                {"kv_channels", nullptr},
                {"num_layers", 2},
                {"swiglu", true},
                {"tables", {{{"name", "C1"}, {"rows", 5}}}},
                {"top_mlp", {64, 1}}};
  save(folder.path(), meta, 2);
  const std::string text = describe(CheckpointReader(folder.path()), {{"num_layers", 2}, {"swiglu", false}});
  EXPECT_TRUE(has(
      text, "\nmodel: hidden_size 12, swiglu true, tables.0.name \"C1\", tables.0.rows 5, top_mlp [64,1]\n"))
      << text;
  meta.model = nlohmann::json::object();
  for (int field = 0; field < 30; ++field) meta.model["a_rather_long_name_" + std::to_string(field)] = field;
  save(folder.path() / "long", meta, 2);
  EXPECT_TRUE(has(describe(CheckpointReader(folder.path() / "long")), ",\n  a_rather_long_name_"));
}

TEST(Inspect, ReportsTheVerdict) {
  const TemporaryFolder folder;
  save(folder.path(), test::meta_of(10), 2);
  const CheckpointReader reader(folder.path());
  EXPECT_TRUE(has(to_text(reader.verify()), "every byte is as it was written (3 files, 2 tensors, "));
  fs::remove(reader.directory() / "shard_00000.h5");
  EXPECT_TRUE(has(to_text(reader.verify()), "shard_00000.h5: No such file"));
  EXPECT_TRUE(has(to_text(reader.verify()), "DAMAGED: 1 problem ("));
}

TEST(Inspect, EqualOnAnotherMesh) {
  const TemporaryFolder folder;
  save(folder.path() / "a", test::meta_of(10), 2);
  save(folder.path() / "b", test::meta_of(10), 4);
  const CheckpointDifference found = diff(folder.path() / "a", folder.path() / "b");
  EXPECT_TRUE(found.bitwise_equal());
  EXPECT_TRUE(found.fields.empty());
  EXPECT_EQ(found.tensors_equal, 2);
  EXPECT_TRUE(has(to_text(found), "all 2 tensors are bitwise equal"));
}

TEST(Inspect, MeasuresDifferences) {
  const TemporaryFolder folder;
  CheckpointMeta other = test::meta_of(12);
  other.config["lr"] = 0.2;
  save(folder.path() / "a", test::meta_of(10), 1, [](Boxes& boxes, int) {
    boxes.add("a_only", DType::F32, {2}, Rect::whole({2}));
    boxes.all()[0].data.as<float>()[5] = 4.0F;
    boxes.all()[1].data.as<float>()[7] = 3e38F;
    boxes.add("shape", DType::F32, {2}, Rect::whole({2}));
    boxes.add("zero", DType::F32, {1}, Rect::whole({1})).data.as<float>()[0] = 0.0F;
    boxes.add_filled("type", DType::F32, {3}, Rect::whole({3}));
    boxes.add("counts", DType::I64, {3}, Rect::whole({3}));
  });
  save(folder.path() / "b", other, 2, [](Boxes& boxes, int rank) {
    if (rank == 0) boxes.all()[0].data.as<float>()[5] = 5.0F;
    if (rank != 0) return;
    boxes.add("b_only", DType::F32, {2}, Rect::whole({2}));
    boxes.add("shape", DType::F32, {3}, Rect::whole({3}));
    boxes.add("zero", DType::F32, {1}, Rect::whole({1})).data.as<float>()[0] = -0.0F;
    boxes.add_filled("type", DType::F64, {3}, Rect::whole({3}));
    boxes.add("counts", DType::I64, {3}, Rect::whole({3})).data.as<int64_t>()[1] = -3;
  });
  const CheckpointDifference found = diff(folder.path() / "a", folder.path() / "b");
  EXPECT_FALSE(found.bitwise_equal());
  EXPECT_EQ(found.only_left, std::vector<std::string>{"a_only"});
  EXPECT_EQ(found.only_right, std::vector<std::string>{"b_only"});
  const auto tensor = [&](const std::string& name) {
    for (const TensorDifference& t : found.tensors)
      if (t.name == name) return t;
    ADD_FAILURE() << name;
    return TensorDifference{};
  };
  EXPECT_EQ(tensor("param/w").elements_differing, 1);
  EXPECT_EQ(tensor("param/w").max_abs, 1.0);
  EXPECT_EQ(tensor("param/w").max_rel, 0.2);
  EXPECT_GT(tensor("adam_m/w").max_abs, 2.9e38);
  EXPECT_EQ(tensor("zero").elements_differing, 1);  // other bits, same value
  EXPECT_EQ(tensor("zero").max_abs, 0.0);
  EXPECT_EQ(tensor("counts").max_abs, 3.0);
  EXPECT_EQ(tensor("type").elements_differing, 0);
  const std::string text = to_text(found);
  EXPECT_TRUE(has(text, "config.lr: left 0.1, right 0.2"));
  EXPECT_TRUE(has(text, "step: left 10, right 12"));
  EXPECT_TRUE(has(text, "shape: f32 [2] and f32 [3]"));
  EXPECT_TRUE(has(text, "type: f32 [3] and f64 [3]"));
  EXPECT_TRUE(has(text, "param/w: 1 elements differ, by at most 1 (relative 0.2)"));
}

}  // namespace
}  // namespace trifold::inspect_test
