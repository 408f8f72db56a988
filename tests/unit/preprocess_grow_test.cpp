// Dictionaries that grow with the data of another day.
#include <random>
#include <vector>

#include "clicks/click_files.h"
#include "clicks/compare_clicks.h"
#include "support/files.h"
#include "unit/preprocess_testing.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::options_for;
using test::TempDir;

// Ids of one table of a folder, one per sample.
std::vector<int32_t> ids_in(const std::string& folder, size_t table = 0) {
  const OpenClicks open = open_clicks(folder, {});
  ClickBatchBuffer buffer(open.source->schema(), open.source->samples());
  open.source->read(0, open.source->samples(), buffer);
  const Tensor& ids = buffer.batch().ids[table];
  return {ids.as<int32_t>(), ids.as<int32_t>() + ids.elements()};
}

PreprocessOptions growing(const TempDir& dir, const std::string& input, const std::string& older,
                          const std::string& output) {
  PreprocessOptions options = options_for(dir, input, output);
  options.dictionaries_of = dir.file(older);
  options.grow_dictionaries = true;
  return options;
}

TEST(GrowDictionaries, KnownIdsStayAndNewOnesFollow) {
  const TempDir dir;
  test::write_file(dir.file("one.csv"), "label,C1,C2\n0,a,1\n1,b,1\n0,a,1\n");
  test::write_file(dir.file("two.csv"), "label,C1,C2\n0,c,1\n1,d,1\n0,,1\n1,d,1\n1,b,1\n");
  test::run(options_for(dir, "one.csv", "one"));
  PreprocessOptions options = growing(dir, "two.csv", "one", "two");
  options.frequency_threshold = 2;
  const PreprocessResult result = test::run(options);
  EXPECT_EQ(ids_in(dir.file("two")), (std::vector<int32_t>{1, 4, 0, 4, 3}));  // c is rare
  EXPECT_EQ(result.known_rows, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(result.folder.tables[0].rows, 5);
  EXPECT_EQ(result.folder.tables[1].rows, 3);
  const ClickFolder one = read_click_folder(dir.file("one")), two = read_click_folder(dir.file("two"));
  EXPECT_EQ(two.tables[0].grown_from, (std::vector<ClickTable::Older>{{4, one.mapping(dir.file("one"), 0)}}));
  EXPECT_TRUE(two.tables[1].grown_from.empty());  // it has not changed

  test::write_file(dir.file("three.csv"), "label,C1,C2\n0,e,7\n1,b,1\n");
  test::run(growing(dir, "three.csv", "two", "three"));
  EXPECT_EQ(ids_in(dir.file("three")), (std::vector<int32_t>{5, 3}));
  EXPECT_EQ(ids_in(dir.file("three"), 1), (std::vector<int32_t>{3, 2}));
  const ClickFolder three = read_click_folder(dir.file("three"));
  EXPECT_EQ(three.tables[0].grown_from.size(), 2U);
  EXPECT_EQ(three.tables[0].grown_from[0], two.tables[0].grown_from[0]);
  const ClickSchema first = open_click_folder(dir.file("one"))->schema();
  const ClickSchema last = open_click_folder(dir.file("three"))->schema();
  EXPECT_TRUE(click_differences({"model", last}, {"data", first}).empty());
  EXPECT_EQ(click_differences({"model", first}, {"data", last}).size(), 4U);  // rows and ids of both tables
}

// The dictionary of both days at once, whatever the memory.
TEST(GrowDictionaries, AsOneDictionaryOfBothDays) {
  const TempDir dir;
  std::mt19937 random(5);
  std::string days[2];
  for (std::string& day : days)
    for (int i = 0; i < 20'000; ++i)
      day += fmt::format("{},{:08x}\n", random() % 2, static_cast<uint32_t>(random() % 6000 * 1000003U));
  const std::string header = "label,C1\n";
  test::write_file(dir.file("one.csv"), header + days[0]);
  test::write_file(dir.file("two.csv"), header + days[1]);
  test::write_file(dir.file("both.csv"), header + days[0] + days[1]);
  test::run(options_for(dir, "both.csv", "both"));
  test::run(options_for(dir, "one.csv", "one"));
  const std::vector<int32_t> both = ids_in(dir.file("both"));
  for (const size_t memory : {size_t{1} << 30, size_t{60'000}}) {
    PreprocessOptions options = growing(dir, "two.csv", "one", fmt::format("two{}", memory));
    options.memory = memory;
    EXPECT_EQ(test::run(options).partitioned_tables > 0, memory < 100'000);
    EXPECT_EQ(test::read_file(options.output + "/C1.dict"), test::read_file(dir.file("both/C1.dict")));
    EXPECT_EQ(ids_in(options.output), std::vector<int32_t>(both.begin() + 20'000, both.end()));
  }
  // A threshold applies to what is new.
  PreprocessOptions options = growing(dir, "two.csv", "one", "often");
  options.frequency_threshold = 4;
  const PreprocessResult often = test::run(options);
  options.output = dir.file("slowly");
  options.memory = 60'000;
  test::run(options);
  EXPECT_EQ(test::read_file(dir.file("often/C1.dict")), test::read_file(dir.file("slowly/C1.dict")));
  EXPECT_GT(often.folder.tables[0].rows, often.known_rows[0]);
  EXPECT_LT(often.folder.tables[0].rows, read_click_folder(dir.file("both")).tables[0].rows);
}

// A first hash of more than 32 bits widens the dictionary; ids stay.
TEST(GrowDictionaries, NarrowDictionariesWiden) {
  const TempDir dir;
  test::write_file(dir.file("one.csv"), "label,C1\n0,9\n1,4000000000\n");
  test::write_file(dir.file("two.csv"), "label,C1\n0,4294967305\n1,4000000000\n1,9\n");
  PreprocessOptions options = options_for(dir, "one.csv", "one");
  options.format = "csv";
  test::run(options);
  options = growing(dir, "two.csv", "one", "two");
  options.format = "csv";
  EXPECT_EQ(test::run(options).folder.tables[0].dictionary_bytes, 8);
  EXPECT_EQ(ids_in(dir.file("two")), (std::vector<int32_t>{4, 3, 2}));
}

TEST(GrowDictionaries, RefusesOtherColumns) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "y,age,hours,job\n1,3,4,a\n0,5,6,b\n");
  PreprocessOptions options = options_for(dir, "in.csv", "one");
  options.format = "auto";
  NamedColumns columns;
  columns.labels = {LabelRule::parse("y")};
  columns.dense = {"age", "hours"};
  columns.sparse = {"job"};
  options.columns = columns;
  test::run(options);
  options = growing(dir, "in.csv", "one", "two");
  options.format = "auto";
  const auto refusal = [&](auto change) {
    NamedColumns other = columns;
    change(other);
    options.columns = other;
    return error_of([&] { test::run(options); });
  };
  expect_has(refusal([](auto& c) { std::swap(c.dense[0], c.dense[1]); }),
             "--dense: column 1 is hours in these options, age in " + dir.file("one"));
  expect_has(refusal([](auto& c) { c.dense.pop_back(); }), "has 1 dense columns");
  expect_has(refusal([](auto& c) { c.missing = {"?"}; }), "--missing-values are ? in these options, none in");
  expect_has(refusal([](auto& c) { c.labels = {LabelRule::parse("y==0")}; }),
             "--label is y==0 in these options");
  options.columns.reset();  // those of the folder
  EXPECT_EQ(test::run(options).folder.dense, 2);
  EXPECT_EQ(ids_in(dir.file("two")), (std::vector<int32_t>{2, 3}));
}

}  // namespace
}  // namespace trifold
