#include "checkpoint/safetensors.h"

#include <fstream>

#include "checkpoint_bench.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using test::bad_input_of;
using test::has;
using test::TemporaryFolder;

std::string header_problem(const std::string& json, int64_t data_bytes = 24) {
  return bad_input_of([&] { parse_safetensors_header(json, data_bytes, "m.safetensors"); });
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}";
}

TEST(Safetensors, ReadsAHeader) {
  const std::string json = R"({"b": )" + entry("F32", "[2, 2]", "[8, 24]") +
                           R"(, "__metadata__": {"format": "pt"}, "a": )" + entry("BF16", "[4]", "[0, 8]") +
                           R"(, "none": )" + entry("F32", "[0, 3]", "[24, 24]") + "}  ";
  const std::vector<SafeTensor> tensors = parse_safetensors_header(json, 24, "m");
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{4}));
  EXPECT_EQ(dtype_of_safetensors(tensors[0].dtype), DType::BF16);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].begin, 8);
  EXPECT_EQ(tensors[1].bytes(), 16);
  EXPECT_EQ(tensors[2].bytes(), 0);
}

TEST(Safetensors, RejectsInvalidFilesWithTheReason) {
  const std::string good = R"({"a": )" + entry("F32", "[6]", "[0, 24]");
  for (const auto& [json, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "not JSON"},
           {"[1]", "it is not a JSON object"},
           {"{\"a\": 1}", "tensor 'a': a is 1; an object is needed"},
           {good + R"(, "a": )" + entry("F32", "[6]", "[0, 24]") + "}", "an object has the key \"a\" twice"},
           {good + R"(, "b": )" + entry("F32", "[1]", "[20, 24]") + "}",
            "tensor 'b' should begin at byte 24"},
           {R"({"a": )" + entry("F32", "[5]", "[0, 20]") + "}", "4 bytes follow the last tensor"},
           {R"({"a": )" + entry("F32", "[5]", "[4, 24]") + "}", "tensor 'a' should begin at byte 0"},
           {R"({"a": )" + entry("F32", "[5]", "[0, 24]") + "}", "takes 20 bytes as F32, but it is given 24"},
           {R"({"a": )" + entry("F32", "[7]", "[0, 28]") + "}", "are outside the 24 after the header"},
           {R"({"a": )" + entry("F31", "[6]", "[0, 24]") + "}", "the type 'F31' is not known"},
           {R"({"a": )" + entry("F32", "[-6]", "[0, 24]") + "}", "a.shape[0] is -6; a whole number"},
           {R"({"a": )" + entry("F32", "[6.0]", "[0, 24]") + "}", "a.shape[0] is 6.0; a whole number"},
           {R"({"a": )" + entry("F32", "[4294967296, 4294967296, 16]", "[0, 24]") + "}", "too many elements"},
           {R"({"a": )" + entry("F32", "[6]", "[24, 0]") + "}", "are outside"},
           {R"({"a": )" + entry("F32", "[6]", "[0]") + "}", "1 entries instead of 2"}}) {
    const std::string text = header_problem(json);
    EXPECT_TRUE(has(text, what)) << json;
    EXPECT_TRUE(text.starts_with("m.safetensors")) << text;
  }
}

// In time that grows with the number of tensors, not with its square.
TEST(Safetensors, ManyTensorsAreReadQuickly) {
  constexpr int kTensors = 100000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i)
    header += fmt::format(R"({}"t{}": {{"dtype": "U8", "shape": [1], "data_offsets": [{}, {}]}})",
                          i == 0 ? "" : ",", i, i, i + 1);
  EXPECT_EQ(parse_safetensors_header(header + "}", kTensors, "m.safetensors").size(), size_t{kTensors});
}

TEST(Safetensors, DeepHeadersAreRefused) {
  std::string deep(40000, '[');
  EXPECT_TRUE(has(header_problem(R"({"a": )" + deep), "nested more than"));
}

std::vector<SafeTensor> two_tensors() { return {{"x/é", "F32", {2, 3}}, {"y", "I64", {}}}; }

TEST(Safetensors, ReadsBackItsOwnFiles) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / kSafetensorsName;
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  const int64_t y = -7;
  SafetensorsWriter writer(path, two_tensors());
  writer.write(1, 0, &y, sizeof(y));
  writer.write(0, 12, x.data() + 3, 12);  // in any order
  writer.write(0, 0, x.data(), 12);
  EXPECT_THROW(writer.write(0, 20, x.data(), 8), Error);
  writer.finish();
  const SafetensorsModel model(folder.path());
  ASSERT_EQ(model.tensors().size(), 2U);
  const SafetensorsModel::Entry& entry = model.tensors().at("x/é");
  std::vector<float> back(6);
  entry.file->read(*entry.tensor, 0, back.data(), 24);
  EXPECT_EQ(back, x);
  EXPECT_THROW(entry.file->read(*entry.tensor, 4, back.data(), 24), Error);
  EXPECT_TRUE(model.tensors().at("y").tensor->shape.empty());
  // The elements start where a program can map them.
  EXPECT_EQ((fs::file_size(path) - 32) % 8, 0U);
}

// In time that grows with the number of tensors, not with its square.
TEST(Safetensors, ManyTensorsAreWrittenQuickly) {
  constexpr int kTensors = 50000;
  const TemporaryFolder folder;
  std::vector<SafeTensor> tensors;
  for (int i = 0; i < kTensors; ++i) tensors.push_back({fmt::format("layer \"{}\"", i), "U8", {1}});
  SafetensorsWriter(folder.path() / kSafetensorsName, tensors).finish();
  const SafetensorsModel model(folder.path());
  ASSERT_EQ(model.tensors().size(), size_t{kTensors});
  EXPECT_EQ(model.tensors().at("layer \"777\"").tensor->begin, 777);
  EXPECT_THROW(SafetensorsWriter(folder.path() / "twice", {{"a", "U8", {1}}, {"a", "U8", {1}}}), Error);
}

TEST(Safetensors, RefusesFilesThatAreCutShort) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.safetensors";
  SafetensorsWriter(path, two_tensors()).finish();
  const auto size = fs::file_size(path);
  for (const uintmax_t bytes : {uintmax_t{0}, uintmax_t{7}, uintmax_t{8}, size / 2, size - 1}) {
    fs::resize_file(path, bytes);
    EXPECT_TRUE(has(bad_input_of([&] { SafetensorsFile file(path); }), "a.safetensors cannot be used"))
        << bytes;
    fs::remove(path);
    SafetensorsWriter(path, two_tensors()).finish();
  }
  std::ofstream(path, std::ios::app) << "x";
  EXPECT_TRUE(has(bad_input_of([&] { SafetensorsFile file(path); }), "1 bytes follow the last tensor"));
  EXPECT_TRUE(has(bad_input_of([&] { SafetensorsFile file(folder.path() / "b"); }), "No such file"));
}

TEST(Safetensors, IndexAndFilesMustAgree) {
  const TemporaryFolder folder;
  SafetensorsWriter(folder.path() / "1.safetensors", {{"a", "F32", {1}}}).finish();
  SafetensorsWriter(folder.path() / "2.safetensors", {{"b", "F32", {1}}}).finish();
  const auto with_index = [&](const std::string& json) {
    std::ofstream(folder.path() / kSafetensorsIndexName) << json;
    return SafetensorsModel(folder.path()).tensors().size();
  };
  EXPECT_EQ(with_index(R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})"), 2U);
  for (const auto& [json, what] : std::vector<std::pair<std::string, std::string>>{
           {R"({"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}})",
            "tensor 'b' is not in 1.safetensors"},
           {R"({"weight_map": {"a": "1.safetensors", "c": "2.safetensors"}})",
            "tensor 'c' is not in 2.safetensors"},
           {R"({"weight_map": {"a": "../1.safetensors"}})", "not the plain name"},
           {R"({"weight_map": {"a": "3.safetensors"}})", "3.safetensors"},
           {R"({"weight_map": {}})", "lists no tensor"},
           {R"({"weights": {}})", "weight_map is missing"},
           {R"({"weight_map": {"a": 1}})", "weight_map.a is 1; a string is needed"}})
    EXPECT_TRUE(has(bad_input_of([&, text = json] { with_index(text); }), what)) << json;
  SafetensorsWriter(folder.path() / "3.safetensors", {{"a", "F32", {1}}, {"d", "F32", {1}}}).finish();
  EXPECT_TRUE(has(
      bad_input_of([&] { with_index(R"({"weight_map": {"a": "1.safetensors", "d": "3.safetensors"}})"); }),
      "tensor 'a' is in"));
  EXPECT_TRUE(has(bad_input_of([&] { with_index(R"({"weight_map": {"d": "3.safetensors"}})"); }),
                  "does not list tensor 'a'"));
}

}  // namespace
}  // namespace trifold
