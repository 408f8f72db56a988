// The readers of binary clicks.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "clicks/click_columns.h"
#include "core/float16.h"
#include "files/yaml.h"
#include "support/files.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::TempDir;

template <class... T>
std::string bytes_of(T... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  return bytes;
}

ClickSchema small_schema() { return {2, {{"a", 10, 1}, {"b", 5, 2}}, "none", false}; }

struct Sample {
  float label;
  std::vector<float> dense;
  std::vector<std::vector<int32_t>> ids;
};

std::vector<Sample> read_all(const ClickSource& source) {
  ClickBatchBuffer buffer(source.schema(), source.samples());
  source.read(0, source.samples(), buffer);
  const ClickBatch& batch = buffer.batch();
  std::vector<Sample> samples;
  std::vector<int64_t> at(batch.ids.size());
  for (int64_t i = 0; i < batch.samples; ++i) {
    Sample sample;
    sample.label = batch.labels.as<float>()[i];
    const int64_t dense = source.schema().dense;
    for (int64_t d = 0; d < dense; ++d) sample.dense.push_back(batch.dense.as<float>()[i * dense + d]);
    for (size_t t = 0; t < batch.ids.size(); ++t) {
      sample.ids.emplace_back();
      for (int32_t k = 0; k < batch.lengths[t].as<int32_t>()[i]; ++k)
        sample.ids.back().push_back(batch.ids[t].as<int32_t>()[at[t]++]);
    }
    samples.push_back(sample);
  }
  return samples;
}

TEST(RecordClicks, ReadsMlperfRecords) {
  const TempDir dir;
  test::write_file(dir.file("t.bin"), bytes_of(1, 7, -3, 9, 4, 0) + bytes_of(0, 0, 100, 0, 2, 3));
  const RecordClicks clicks(dir.file("t.bin"), small_schema(), kMlperfBin,
                            {DenseTransform::Log1p, IdPolicy::Error});
  EXPECT_EQ(clicks.schema().dense_transform, "log1p");
  const std::vector<Sample> samples = read_all(clicks);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].label, 1);
  EXPECT_FLOAT_EQ(samples[0].dense[0], std::log(8.0F));
  EXPECT_EQ(samples[0].dense[1], 0);  // negative numbers are clamped
  EXPECT_EQ(samples[0].ids, (std::vector<std::vector<int32_t>>{{9}, {4, 0}}));
  EXPECT_EQ(samples[1].label, 0);
  EXPECT_FLOAT_EQ(samples[1].dense[1], std::log(101.0F));
  EXPECT_EQ(samples[1].ids, (std::vector<std::vector<int32_t>>{{0}, {2, 3}}));
}

// The logarithms of small numbers are kept; counts may be larger than an i32.
TEST(RecordClicks, TransformsSmallAndLargeNumbersAlike) {
  const TempDir dir;
  for (const RecordLayout& layout : {kMlperfBin, kHugeCtrRawCounts}) {
    for (const int32_t x : {0, 1, 1022, 1023, 1024, 1025, 2147483647, -2147483647, -1}) {
      const bool counts = layout.float_label;
      test::write_file(dir.file("t.bin"), (counts ? bytes_of(1.0F) : bytes_of(1)) + bytes_of(x, 0, 9, 4, 0));
      const RecordClicks clicks(dir.file("t.bin"), small_schema(), layout,
                                {DenseTransform::Log1p, IdPolicy::Error});
      const float number = counts ? static_cast<float>(static_cast<uint32_t>(x)) : static_cast<float>(x);
      EXPECT_EQ(read_all(clicks)[0].dense[0], transform_dense(DenseTransform::Log1p, number)) << x;
    }
  }
}

TEST(RecordClicks, ACriteoRecordHas160Bytes) {
  const TempDir dir;
  ClickSchema schema;
  for (int t = 0; t < 26; ++t) schema.tables.push_back({fmt::format("C{}", t + 1), 100, 1});
  test::write_file(dir.file("t.bin"), std::string(480, '\0'));
  EXPECT_EQ(RecordClicks(dir.file("t.bin"), schema, kMlperfBin, {}).samples(), 3);
  test::write_file(dir.file("t.bin"), std::string(470, '\0'));
  expect_has(error_of([&] { RecordClicks(dir.file("t.bin"), schema, kMlperfBin, {}); }),
             "470 bytes are not a whole number of samples of 160 bytes");
}

TEST(RecordClicks, ReadsHugeCtrRaw) {
  const TempDir dir;
  test::write_file(dir.file("t"), bytes_of(1.0F, 0.5F, -2.0F, 1U, 2U, 3U));
  EXPECT_EQ(read_all(RecordClicks(dir.file("t"), small_schema(), kHugeCtrRaw, {}))[0].dense,
            (std::vector<float>{0.5F, -2}));
  test::write_file(dir.file("t"), bytes_of(1.0F, 4'000'000'000U, 0U, 1U, 2U, 3U));
  const RecordClicks counts(dir.file("t"), small_schema(), kHugeCtrRawCounts,
                            {DenseTransform::Log1p, IdPolicy::Error});
  EXPECT_FLOAT_EQ(read_all(counts)[0].dense[0], std::log(4e9F));
}

TEST(RecordClicks, IdsOutsideTheirTable) {
  const TempDir dir;
  const std::string path = dir.file("t.bin");
  // 3'000'000'003 is a negative i32: ids are unsigned. 3'000'000'003 mod 10 = 3.
  test::write_file(path, bytes_of(1, 7, 3, 9, 4, 0) + bytes_of(0, 0, 1, 3'000'000'003U, 2, 7));
  const auto with = [&](IdPolicy policy) {
    return RecordClicks(path, small_schema(), kMlperfBin, {DenseTransform::None, policy});
  };
  const std::string error = error_of([&] { read_all(with(IdPolicy::Error)); });
  expect_has(error, path + ": sample 1, column a: id 3000000003 is outside the table, which has 10 rows");
  EXPECT_EQ(read_all(with(IdPolicy::Modulo))[1].ids, (std::vector<std::vector<int32_t>>{{3}, {2, 2}}));
  EXPECT_EQ(read_all(with(IdPolicy::Clip))[1].ids, (std::vector<std::vector<int32_t>>{{9}, {2, 4}}));
}

TEST(RecordClicks, BadContents) {
  const TempDir dir;
  const std::string path = dir.file("t");
  const auto read = [&](const RecordLayout& layout) {
    return error_of([&] { read_all(RecordClicks(path, small_schema(), layout, {})); });
  };
  test::write_file(path, bytes_of(2, 7, 3, 9, 4, 0));
  expect_has(read(kMlperfBin), "the label of sample 0 is 2, not 0 or 1");
  test::write_file(path, bytes_of(std::nanf(""), 7, 3, 9, 4, 0));
  expect_has(read(kHugeCtrRaw), "the label of sample 0 is nan");
  test::write_file(path, bytes_of(1.0F, 7.0F, std::numeric_limits<float>::infinity(), 9, 4, 0));
  expect_has(read(kHugeCtrRaw), "sample 0, dense feature 1 is inf");
  test::write_file(path, "");
  expect_has(read(kMlperfBin), "is empty");
}

// Two samples of two dense numbers and two tables.
void write_split_binary(const TempDir& dir) {
  std::filesystem::create_directories(dir.file("train"));
  test::write_file(dir.file("train/label.bin"), bytes_of('\1', '\0'));
  std::string dense;
  for (const float x : {0.5F, -1.25F, 3.0F, 0.0F}) dense += bytes_of(Float16(x));
  test::write_file(dir.file("train/numerical.bin"), dense);
  test::write_file(dir.file("train/cat_0.bin"), bytes_of('\5', '\7'));
  test::write_file(dir.file("train/cat_1.bin"), bytes_of(int16_t{300}, int16_t{2}));
  test::write_file(dir.file("feature_spec.yaml"), R"(channel_spec:
  categorical:
  - cat_0.bin
  - cat_1.bin
  label:
  - label   # the only one
  numerical: &id001
  - num_0
  - "num_1"
feature_spec:
  cat_0.bin: {cardinality: 8, dtype: int8}
  cat_1.bin:
    cardinality: 301
    dtype: int16
  label:
    dtype: bool
  num_0:
    dtype: float16
  num_1:
    dtype: float16
metadata: {}
source_spec:
  train:
  - features: *id001
    files:
    - train/numerical.bin
    type: split_binary
  - type: split_binary
    features: [label]
    files: ['train/label.bin']
  - features:
    - cat_0.bin
    files:
    - train/cat_0.bin
    type: split_binary
  - features:
    - cat_1.bin
    files:
    - train/cat_1.bin
    type: split_binary
)");
}

std::vector<Sample> read_part(const TempDir& dir) {
  const SplitBinary split = read_feature_spec(dir.file(""), "train");
  return read_all(ColumnClicks(split.files, split.schema, {}));
}

TEST(SplitBinary, ReadsColumns) {
  const TempDir dir;
  write_split_binary(dir);
  const SplitBinary split = read_feature_spec(dir.file(""), "train");
  EXPECT_EQ(split.schema.tables, (std::vector<ClickTable>{{"cat_0.bin", 8, 1}, {"cat_1.bin", 301, 1}}));
  EXPECT_EQ(split.schema.dense_transform, "log3");
  const std::vector<Sample> samples = read_part(dir);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].label, 1);
  EXPECT_EQ(samples[0].dense, (std::vector<float>{0.5F, -1.25F}));
  EXPECT_EQ(samples[0].ids, (std::vector<std::vector<int32_t>>{{5}, {300}}));
  EXPECT_EQ(samples[1].dense, (std::vector<float>{3, 0}));
  EXPECT_EQ(samples[1].ids, (std::vector<std::vector<int32_t>>{{7}, {2}}));
}

TEST(SplitBinary, RejectsFilesThatDoNotFitTogether) {
  const TempDir dir;
  write_split_binary(dir);
  expect_has(error_of([&] { read_feature_spec(dir.file(""), "valid"); }), "source_spec has no part 'valid'");
  test::write_file(dir.file("train/cat_1.bin"), bytes_of(int16_t{3}, '\1'));
  expect_has(error_of([&] { read_part(dir); }), "has 3 bytes; 2 samples of 2 bytes need 4");
  test::write_file(dir.file("train/cat_1.bin"), bytes_of(int16_t{301}, int16_t{2}));
  expect_has(error_of([&] { read_part(dir); }),
             "sample 0, column cat_1.bin: id 301 is outside the table, which has 301 rows");
}

TEST(Yaml, ReadsTheFilesOfTools) {
  const auto parse = [](const char* text) { return parse_yaml(text, "f").dump(); };
  EXPECT_EQ(parse(""), "{}");
  EXPECT_EQ(parse("---\na: 1\n# c\nb:\n  c: x y\n  d: 'q # r'\n"),
            R"({"a":"1","b":{"c":"x y","d":"q # r"}})");
  EXPECT_EQ(parse("- a\n- b: 1\n  c: 2\n-\n  - d\n- - e\n  - f\n"),
            R"(["a",{"b":"1","c":"2"},["d"],["e","f"]])");
  EXPECT_EQ(parse("a: &x\n- 1\nb: *x\nc: [p, \"q\"]\nd: {}\ne:\n"),
            R"({"a":["1"],"b":["1"],"c":["p","q"],"d":{},"e":""})");
}

TEST(Yaml, NamesTheLine) {
  const auto error = [](const char* text) { return error_of([&] { parse_yaml(text, "f.yaml"); }); };
  expect_has(error("a: 1\nb\n"), "f.yaml:3: could not find expected ':'");
  expect_has(error("a: 1\n  b: 2\n"), "f.yaml:2: mapping values are not allowed");
  expect_has(error("  a: 1\nb: 2\n"), "f.yaml:2: ");
  expect_has(error("a: 1\na: 2\n"), "f.yaml:2: the key 'a' appears twice");
  expect_has(error("a: *b\n"), "f.yaml:1: the alias *b has no anchor before it");
  expect_has(error("a:\n\tb: 1\n"), "f.yaml:2: found character that cannot start any token");
  expect_has(error("a: \"x\n"), "f.yaml:2: found unexpected end of stream");
  expect_has(error("a: 1\n---\nb: 2\n"), "f.yaml:2: it has a second document");
  expect_has(error("a: !x 1\n"), "f.yaml:1: the tag !x: tags are not supported");
  expect_has(error("a: &x {b: 1}\nc:\n  <<: *x\n"), "f.yaml:3: merge keys (<<) are not supported");
  expect_has(error("? [a]\n: b\n"), "f.yaml:1: a list or a map as a key is not supported");
}

// A few lines of aliases of aliases would fill any memory, and a few of brackets any stack.
TEST(Yaml, HasLimits) {
  const auto error = [](const std::string& text) { return error_of([&] { parse_yaml(text, "f.yaml"); }); };
  std::string lines = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
  for (char name = 'b'; name < 'k'; ++name) {
    lines += fmt::format("{0}: &{0} [*{1}", name, static_cast<char>(name - 1));
    for (int i = 1; i < 10; ++i) lines += fmt::format(", *{}", static_cast<char>(name - 1));
    lines += "]\n";
  }
  expect_has(error(lines), "f.yaml:6: more than 1000000 values");
  expect_has(error(std::string(100000, '[')), "f.yaml:1: nested more than 100 levels deep");
  const std::string open(60, '['), close(60, ']');
  expect_has(error(fmt::format("a: &a {0}x{1}\nb: {0}*a{1}\n", open, close)),
             "f.yaml:2: nested more than 100 levels deep");
}

}  // namespace
}  // namespace trifold
