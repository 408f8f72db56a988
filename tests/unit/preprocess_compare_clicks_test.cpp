// When two sources of clicks are compatible.
#include "clicks/compare_clicks.h"

#include "clicks/click_files.h"
#include "preprocess/preprocess.h"
#include "support/files.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::TempDir;

ClickSchema schema() { return {2, {{"a", 10, 1, "dictionary 1"}, {"b", 5, 2}}, "log1p", false}; }

std::string differences(const ClickSchema& first, const ClickSchema& other) {
  return fmt::format("{}", fmt::join(click_differences({"A", first}, {"B", other}), "; "));
}

TEST(CompareClicks, NamesEachDifference) {
  EXPECT_EQ(differences(schema(), schema()), "");
  const auto with = [](auto change) {
    ClickSchema other = schema();
    change(other);
    return differences(schema(), other);
  };
  EXPECT_EQ(with([](auto& s) { s.dense = 3; }), "dense features: 3 in B, 2 in A");
  EXPECT_EQ(with([](auto& s) { s.dense_transform = "log3"; }), "dense transform: log3 in B, log1p in A");
  EXPECT_EQ(with([](auto& s) { s.tables.pop_back(); }), "tables: 1 in B, 2 in A");
  EXPECT_EQ(with([](auto& s) { s.tables[0].rows = 11, s.tables[1].rows = 4; }),
            "table a: rows: 11 in B, 10 in A; table b: rows: 4 in B, 5 in A");
  EXPECT_EQ(with([](auto& s) { s.tables[0].mapping = "dictionary 2"; }),
            "table a: ids: dictionary 2 in B, dictionary 1 in A");
  EXPECT_EQ(with([](auto& s) { s.tables[0].mapping = ""; }),
            "table a: ids: the numbers of the file in B, dictionary 1 in A");
  EXPECT_EQ(with([](auto& s) { s.tables[1].shares = "a"; }), "table b: rows are those of: a in B, b in A");
  EXPECT_EQ(with([](auto& s) { s.tables[0].name = "b", s.tables[1].name = "a"; }),
            "table a: table in its place: b in B, a in A; table b: table in its place: a in B, b in A");
}

TEST(CompareClicks, EquivalentFoldersAreEqual) {
  ClickSchema other = schema();
  other.tables[0].mapping = kUnknownMapping;
  other.tables[1].mapping = "modulo";  // of ids that are inside their table
  other.tables[1].max_ids = 3;
  other.tables[1].name = "c";  // another header, the same place
  other.tables[1].max_ids = 1;
  EXPECT_EQ(differences(schema(), other), "");
  ClickSchema clipped = other;
  clipped.tables[1].mapping = "clip";
  EXPECT_NE(differences(clipped, other), "");
}

TEST(CompareClicks, DictionariesThatWereGrown) {
  const ClickTable day1{"a", 10, 1, "dictionary 1"};
  const ClickTable day2{"a", 14, 1, "dictionary 2", {{10, "dictionary 1"}}};
  const ClickTable other{"a", 14, 1, "dictionary 3", {{10, "dictionary 9"}}};
  const ClickTable few{"a", 10, 1, ""}, more{"a", 14, 1, ""};
  ClickTable folded = more;
  folded.mapping = "modulo";
  EXPECT_TRUE(can_read(day2, day1));  // a model of the later day has the rows of the earlier one
  EXPECT_FALSE(can_read(day1, day2));
  EXPECT_FALSE(can_read(other, day1));
  EXPECT_TRUE(can_grow(day1, day2));
  EXPECT_FALSE(can_grow(day2, day1));
  EXPECT_FALSE(can_grow(day1, other));
  EXPECT_FALSE(can_grow(day1, more));
  EXPECT_TRUE(can_grow(few, more));  // numbers of the file
  EXPECT_TRUE(can_grow(few, folded));
  folded.rows = 9;
  EXPECT_FALSE(can_grow(folded, more));  // 13 was row 4
  EXPECT_FALSE(can_grow(more, few));
}

// The content of dictionaries counts, not their folder; an older folder, which does not say the checksum, is
// asked for it.
TEST(CompareClicks, DictionariesOfFolders) {
  const TempDir dir;
  test::write_file(dir.file("one.csv"), "label,C1\n1,7\n0,9\n");
  test::write_file(dir.file("two.csv"), "label,C1\n1,7\n0,8\n");
  const auto make = [&](const std::string& input, const std::string& output, bool after_one) {
    PreprocessOptions options;
    options.inputs = {dir.file(input)};
    options.output = dir.file(output);
    if (after_one) options.dictionaries_of = dir.file("one");
    ThreadPool pool(1);
    preprocess(options, pool, [](const PreprocessProgress&) {});
    return open_clicks(dir.file(output), {}).source->schema();
  };
  const ClickSchema one = make("one.csv", "one", false);
  const ClickSchema two = make("two.csv", "two", false);
  EXPECT_EQ(differences(one, make("two.csv", "after", true)), "");
  EXPECT_EQ(differences(one, make("one.csv", "again", false)), "");
  expect_has(differences(one, two), "table C1: ids: dictionary ");
  std::string manifest = test::read_file(dir.file("two/clicks.json"));
  const size_t key = manifest.find("\"dictionary_crc32\"");
  manifest.erase(key, manifest.find('\n', key) + 1 - key);
  test::write_file(dir.file("two/clicks.json"), manifest);
  EXPECT_EQ(open_clicks(dir.file("two"), {}).source->schema(), two);
  std::filesystem::remove(dir.file("two/C1.dict"));
  EXPECT_EQ(open_clicks(dir.file("two"), {}).source->schema().table(0).mapping, kUnknownMapping);
}

TEST(CompareClicks, NamesThatCannotBeStoredAreRefused) {
  for (const char* name : {"\"C1\"", "C 1", "", "a/b", "..", "na\xc3\xafve", "a\nb"}) {
    const ClickSchema bad{0, {{name, 3, 1}}, "none", false};
    expect_has(error_of([&] { check_schema(bad); }), "is not a valid name for a table: names in checkpoints");
  }
  check_schema({0, {{"cat_0.bin", 3, 1}, {"C-1", 3, 1}}, "none", false});
}

}  // namespace
}  // namespace trifold
