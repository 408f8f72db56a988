#include "preprocess/preprocess.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "clicks/click_files.h"
#include "clicks/click_layout.h"
#include "preprocess/ids/number_ids.h"
#include "support/files.h"
#include "unit/preprocess_testing.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::options_for;
using test::run;
using test::TempDir;

// A CSV of `count` samples with 2 numbers and 2 hashes, a line in ten malformed; hashes repeat often in C1.
std::string make_text(int count, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::string text = "label,I1,I2,C1,C2\n";
  for (int i = 0; i < count; ++i) {
    if (i % 10 == 5) text += "1,2,bad line\n";
    text += fmt::format("{},{},", random() % 4 == 0 ? 1 : 0, static_cast<int>(random() % 50) - 3);
    if (random() % 5 != 0) text += fmt::format("{}", random() % 100000);
    text += ",";
    if (random() % 7 != 0) text += fmt::format("{:08x}", 1 + (random() % 40) * (random() % 40));
    text += fmt::format(",{:08x}\n", static_cast<uint32_t>(random() % 3000 * 1000003U));
  }
  return text;
}

struct Columns {
  std::vector<float> labels, dense;
  std::vector<std::vector<int32_t>> ids;
};

Columns read_columns(const std::string& path) {
  const OpenClicks open = open_clicks(path, {});
  ClickBatchBuffer buffer(open.source->schema(), open.source->samples());
  open.source->read(0, open.source->samples(), buffer);
  const auto copy = [](const Tensor& t, auto type) {
    using T = decltype(type);
    return std::vector<T>(t.as<T>(), t.as<T>() + t.elements());
  };
  Columns columns{copy(buffer.batch().labels, 0.0F), copy(buffer.batch().dense, 0.0F), {}};
  for (const Tensor& ids : buffer.batch().ids) columns.ids.push_back(copy(ids, int32_t{}));
  return columns;
}

// The same, slowly: first-seen order from 2, rare values 1, missing ones 0.
std::vector<int32_t> number_slowly(const std::vector<uint32_t>& keys, int64_t threshold, int64_t& rows) {
  std::map<uint32_t, int64_t> counts;
  for (const uint32_t key : keys) ++counts[key];
  std::map<uint32_t, int32_t> id_of{{0, 0}};
  int32_t next = 2;
  std::vector<int32_t> ids;
  for (const uint32_t key : keys) {
    if (!id_of.contains(key)) id_of[key] = counts[key] >= threshold ? next++ : 1;
    ids.push_back(id_of[key]);
  }
  rows = next;
  return ids;
}

TEST(Preprocess, AgreesWithASlowWayOfDoingIt) {
  const TempDir dir;
  const std::string text = make_text(4000);
  test::write_file(dir.file("in.csv"), text);
  const MappedFile file(dir.file("in.csv"));
  const TextLayout layout = find_layout(file, "csv-hex");
  std::vector<float> labels, dense;
  std::vector<std::vector<uint32_t>> keys(2);
  std::string_view rest = text;
  take_line(rest);
  while (!rest.empty()) {
    float numbers[2];
    ClickRow row(layout);
    row.begin(numbers);
    if (!parse_line(layout, *take_line(rest), row)) continue;
    labels.push_back(static_cast<float>(row.labels[0]));
    for (const float x : numbers) dense.push_back(std::isnan(x) || x < 0 ? 0 : std::log1p(x));
    for (size_t t = 0; t < 2; ++t) keys[t].push_back(static_cast<uint32_t>(row.ids[t]));
  }
  for (const int64_t threshold : {1, 3}) {
    PreprocessOptions options = options_for(dir, "in.csv", fmt::format("out{}", threshold));
    options.frequency_threshold = threshold;
    const PreprocessResult result = run(options);
    EXPECT_EQ(result.folder.samples, 4000);
    EXPECT_EQ(result.report.malformed, 400);
    EXPECT_EQ(result.report.shown[0], dir.file("in.csv") + ":7: column I2: 'bad line' is not a number");
    EXPECT_EQ(result.folder.clicks, std::count(labels.begin(), labels.end(), 1.0F));
    const Columns columns = read_columns(options.output);
    EXPECT_EQ(columns.labels, labels);
    ASSERT_EQ(columns.dense.size(), dense.size());
    for (size_t i = 0; i < dense.size(); ++i) EXPECT_FLOAT_EQ(columns.dense[i], dense[i]);
    for (size_t t = 0; t < 2; ++t) {
      int64_t rows = 0;
      EXPECT_EQ(columns.ids[t], number_slowly(keys[t], threshold, rows));
      EXPECT_EQ(result.folder.tables[t].rows, rows);
    }
    EXPECT_EQ(result.folder.tables[1].id_bytes, threshold == 1 ? 2 : result.folder.tables[1].id_bytes);
  }
}

// TorchRec's documented example: with a threshold of 2, {abc, iop | iop, lkj} becomes {1, 2 | 2, 1}.
TEST(Preprocess, FrequencyThreshold) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "label,C1,C2\n0,abc,aa\n1,10b,aa\n0,10b,bb\n0,fed,aa\n0,,aa\n");
  PreprocessOptions options = options_for(dir, "in.csv", "out");
  options.frequency_threshold = 2;
  run(options);
  const Columns columns = read_columns(options.output);
  EXPECT_EQ(columns.ids[0], (std::vector<int32_t>{1, 2, 2, 1, 0}));
  EXPECT_EQ(columns.ids[1], (std::vector<int32_t>{2, 2, 1, 2, 2}));
}

// Neither the threads nor the memory changes a byte.
TEST(Preprocess, ThreadsAndMemoryDoNotMatter) {
  const TempDir dir;
  std::string text = make_text(150'000, 2);  // several pieces of 4 MB
  test::write_file(dir.file("in.csv"), text);
  PreprocessOptions options = options_for(dir, "in.csv", "one");
  options.frequency_threshold = 40;
  EXPECT_EQ(run(options).partitioned_tables, 0);
  options.output = dir.file("three");
  const PreprocessResult three = run(options, 3);
  EXPECT_EQ(three.report.shown[9], dir.file("in.csv") + ":106: column I2: 'bad line' is not a number");
  options.output = dir.file("small");
  options.memory = 30'000;  // less than the 3000 values of C2 need
  EXPECT_GT(run(options).partitioned_tables, 0);
  for (const char* name :
       {"labels.bin", "dense.bin", "C1.ids", "C2.ids", "C1.dict", "C2.dict", "clicks.json"}) {
    const std::string one = test::read_file(dir.file("one") + "/" + name);
    EXPECT_FALSE(one.empty());
    EXPECT_EQ(one, test::read_file(dir.file("three") + "/" + name)) << name;
    EXPECT_EQ(one, test::read_file(dir.file("small") + "/" + name)) << name;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.file("small")), {}), 7);  // nothing else
}

TEST(Preprocess, DictionariesOfAnotherSet) {
  const TempDir dir;
  test::write_file(dir.file("train.csv"), "label,I1,C1\n0,-5,a\n1,2,b\n");
  test::write_file(dir.file("test.csv"), "label,I1,C1\n0,3,b\n1,-9,c\n1,,\n1,4,a\n");
  PreprocessOptions options = options_for(dir, "train.csv", "train");
  options.transform = DenseTransform::LogMin;
  run(options);
  options = options_for(dir, "test.csv", "test");
  options.transform = DenseTransform::LogMin;
  options.dictionaries_of = dir.file("train");
  const PreprocessResult result = run(options);
  EXPECT_EQ(result.folder.tables[0].rows, 4);
  EXPECT_EQ(result.folder.least, -5);
  const Columns columns = read_columns(options.output);
  EXPECT_EQ(columns.ids[0], (std::vector<int32_t>{3, 1, 0, 2}));
  const std::vector<float> dense{std::log(10.0F), std::log(2.0F), std::log(7.0F), std::log(11.0F)};
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(columns.dense[i], dense[i]);
  options.output = dir.file("other");
  options.transform = DenseTransform::Log1p;
  expect_has(error_of([&] { run(options); }),
             "was made with --dense-transform logmin and --max-ind-range 0, and this is log1p and 0");
}

TEST(Preprocess, HashesModuloARange) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "label,C1\n0,ffffffff\n1,0000000c\n1,\n");
  PreprocessOptions options = options_for(dir, "in.csv", "hashed");
  options.hash_ids = true;
  options.max_ind_range = 10;
  EXPECT_EQ(run(options).folder.tables[0].rows, 10);
  EXPECT_EQ(read_columns(options.output).ids[0], (std::vector<int32_t>{5, 2, 0}));  // 4294967295 mod 10
  options.output = dir.file("both");  // a range before the dictionary
  options.hash_ids = false;
  options.max_ind_range = 7;
  EXPECT_EQ(read_columns((run(options), options.output)).ids[0], (std::vector<int32_t>{2, 3, 0}));  // 3 and 5
}

TEST(Preprocess, LeavesNegativesOutByTheSeed) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), make_text(8000));
  PreprocessOptions options = options_for(dir, "in.csv", "all");
  const ClickFolder all = run(options).folder;
  options.output = dir.file("some");
  options.drop_negatives = 0.75;
  const ClickFolder some = run(options).folder;
  EXPECT_EQ(some.clicks, all.clicks);
  const auto negatives = static_cast<double>(all.samples - all.clicks);
  EXPECT_NEAR(static_cast<double>(some.samples - some.clicks), negatives / 4,
              5 * std::sqrt(negatives * 3 / 16));
}

TEST(Preprocess, SeveralFilesAndLineNumbers) {
  const TempDir dir;
  test::write_file(dir.file("a.csv"), "label,C1\n1,a\n");
  test::write_file(dir.file("b.csv"), "C1,label\n\nb,0\na,x\n");
  PreprocessOptions options = options_for(dir, "a.csv", "out");
  options.inputs.push_back(dir.file("b.csv"));
  const PreprocessResult result = run(options);
  EXPECT_EQ(result.report.shown,
            (std::vector<std::string>{dir.file("b.csv") + ":4: column label: 'x' is not a label: 0 or 1"}));
  EXPECT_EQ(read_columns(options.output).ids[0], (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(result.folder.sources[1].samples, 1);
}

// Wherever the pieces of 4 MB that threads take are cut.
TEST(Preprocess, LinesThatAreTooLongAreNamed) {
  const TempDir dir;
  const std::string lines = make_text(150'000);
  const std::string longer(kLongestClickLine + 1, '7');
  for (const bool ends : {true, false}) {
    test::write_file(dir.file("in.csv"), lines + longer + (ends ? "\n" + lines : ""));
    PreprocessOptions options = options_for(dir, "in.csv", "out");
    const auto number = 1 + std::count(lines.begin(), lines.end(), '\n');
    for (const int threads : {1, 3})
      expect_has(error_of([&] { run(options, threads); }),
                 fmt::format("{}:{}: the line has more than 1048576 bytes", dir.file("in.csv"), number));
  }
  EXPECT_EQ(dir.entries(), 1U);
}

TEST(Preprocess, RefusesAndLeavesNothingBehind) {
  const TempDir dir;
  const auto refused = [&](const std::string& text, auto change) {
    test::write_file(dir.file("in.csv"), text);
    PreprocessOptions options = options_for(dir, "in.csv", "out");
    change(options);
    const std::string error = error_of([&] { run(options); });
    EXPECT_EQ(dir.entries(), 1U) << "something was left behind";
    return error;
  };
  const auto nothing = [](PreprocessOptions&) {};
  const std::string good = "label,C1\n1,a\n0,b\n";
  expect_has(refused("", nothing), "is empty");
  expect_has(refused("C1,I1\na,1\n", nothing), "has no column of labels");
  expect_has(refused("label,C1\n", nothing), "contains no samples");
  expect_has(refused("label,C1\n3,a\n", nothing), "has no valid line\n1 of 1 lines is malformed");
  expect_has(refused(good + "x\nx\nx\n", nothing),
             "more than 50 % of the lines are malformed (--max-malformed 0.5); 3 of 5");
  expect_has(refused(good, [](auto& o) { o.hash_ids = true; }), "need a range");
  expect_has(refused(good, [](auto& o) { o.drop_negatives = 1; }), "must be at least 0 and less than 1");
  expect_has(refused(good, [](auto& o) { o.inputs.push_back("/nowhere"); }), "/nowhere cannot be opened");
  expect_has(refused(good, [](auto& o) { o.output = o.inputs[0]; }), "already exists");
  expect_has(refused(good, [](auto& o) { o.output = "/nowhere/out"; }), "cannot be created");
}

// Ids beyond 32 bits need a range, which is taken of the whole number.
// Whatever the memory: a dictionary that does not fit is made in partitions.
TEST(Preprocess, DecimalIdsOfMoreThan32Bits) {
  const TempDir dir;
  std::mt19937_64 random(3);
  std::vector<uint64_t> ids{4294967295, 4294967296, 0, 18446744073709551615U, 4294967296, 1};
  for (int i = 0; i < 3000; ++i) ids.push_back(random() >> (i % 40));
  std::string text = "label,C1,C2\n";
  for (const uint64_t id : ids) text += fmt::format("1,{},{}\n", id, id % 1000);
  test::write_file(dir.file("in.csv"), text);
  std::map<uint64_t, int32_t> id_of{{0, 0}};
  std::vector<int32_t> expected;
  for (const uint64_t id : ids)
    expected.push_back(id_of.try_emplace(id, static_cast<int32_t>(id_of.size() + 1)).first->second);

  PreprocessOptions options = options_for(dir, "in.csv", "out");
  options.format = "auto";
  PreprocessResult result = run(options);
  EXPECT_EQ(read_columns(options.output).ids[0], expected);
  EXPECT_EQ(result.folder.tables[0].rows, std::ssize(id_of) + 1);
  EXPECT_EQ(result.folder.tables[0].dictionary_bytes, 8);
  EXPECT_EQ(result.folder.tables[1].dictionary_bytes, 4);  // as before, and as older programs read them
  const std::string dictionary = test::read_file(dir.file("out/C1.dict"));
  EXPECT_EQ(dictionary.size(), (id_of.size() - 1) * 8);
  expect_has(test::read_file(dir.file("out/clicks.json")), "\"version\": 2");
  options.output = dir.file("small");
  options.memory = 30'000;
  EXPECT_GT(run(options).partitioned_tables, 0);
  for (const char* name : {"C1.ids", "C2.ids", "C1.dict", "C2.dict", "clicks.json"})
    EXPECT_EQ(test::read_file(dir.file("small") + "/" + name), test::read_file(dir.file("out") + "/" + name));

  test::write_file(dir.file("test.csv"), "label,C1,C2\n0,7777777777777,1\n1,18446744073709551615,0\n");
  options = options_for(dir, "test.csv", "test");
  options.format = "csv";
  options.dictionaries_of = dir.file("out");
  run(options);
  EXPECT_EQ(read_columns(options.output).ids[0], (std::vector<int32_t>{1, 4}));
}

TEST(Preprocess, DecimalIdsModuloARange) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "label,C1\n0,4294967295\n1,4294967296\n1,12345678901234567890\n");
  PreprocessOptions options = options_for(dir, "in.csv", "out");
  options.format = "auto";
  options.hash_ids = true;
  options.max_ind_range = 1000;
  run(options);
  EXPECT_EQ(read_columns(options.output).ids[0], (std::vector<int32_t>{295, 296, 890}));
}

// Ids are decimal, and their dictionary has 4 bytes: so were folders before dictionaries could have 8.
TEST(Preprocess, NarrowDictionariesTakeWideIds) {
  const TempDir dir;
  test::write_file(dir.file("train.csv"), "label,C1\n0,9\n1,4000000000\n");
  test::write_file(dir.file("test.csv"), "label,C1\n0,4294967305\n1,4000000000\n1,9\n");
  PreprocessOptions options = options_for(dir, "train.csv", "train");
  options.format = "csv";
  EXPECT_EQ(run(options).folder.tables[0].dictionary_bytes, 4);
  expect_has(test::read_file(dir.file("train/clicks.json")), "\"version\": 1");
  options = options_for(dir, "test.csv", "test");
  options.format = "csv";
  options.dictionaries_of = dir.file("train");
  run(options);
  EXPECT_EQ(read_columns(options.output).ids[0], (std::vector<int32_t>{1, 3, 2}));  // 2^32 + 9 is not 9
}

TEST(Preprocess, DamagedDictionariesAreNotTakenOver) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "label,C1\n0,a\n1,b\n");
  run(options_for(dir, "in.csv", "train"));
  PreprocessOptions options = options_for(dir, "in.csv", "out");
  options.dictionaries_of = dir.file("train");
  const std::string path = dir.file("train/C1.dict");
  test::write_file(path, "12345678");
  expect_has(error_of([&] { run(options); }), "C1.dict is not the dictionary that clicks.json describes");
  test::write_file(path, "1234");
  expect_has(error_of([&] { run(options); }), "C1.dict has 4 bytes; the 4 rows of table C1 need 8");
  std::filesystem::remove(path);
  expect_has(error_of([&] { run(options); }), "C1.dict cannot be opened");
  EXPECT_EQ(dir.entries(), 2U);
}

}  // namespace
}  // namespace trifold
