// Opening folders written by preprocess: agreement with options, damage, and other click files.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "clicks/click_files.h"
#include "unit/preprocess_testing.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::options_for;
using test::run;
using test::TempDir;

TEST(ClickFolder, DamagedManifests) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "label,C1\n1,a\n0,b\n");
  run(options_for(dir, "in.csv", "out"));
  const std::string path = dir.file("out/clicks.json");
  const std::string good = test::read_file(path);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    test::write_file(path, text);
    return error_of([&] { open_clicks(dir.file("out"), {}); });
  };
  expect_has(with("{", "("), "not JSON");
  expect_has(with("trifold clicks", "other"), "was not written by `trifold preprocess`");
  expect_has(with("\"version\": 1", "\"version\": 9"), "has version 9 of the format");
  expect_has(with("\"rows\": 4", "\"rows\": 0"), "\"rows\" is 0, not a whole number from 1");
  expect_has(with("\"rows\": 4", "\"rows\": 1e99"), "\"rows\" is 1e+99");
  expect_has(with("\"id_bytes\"", "\"other\""), "the key \"id_bytes\" is missing");
  expect_has(with("\"samples\": 2", "\"samples\": 3"), "has 2 samples");
  expect_has(with("\"C1\"", "\"../C1\""), "is not a valid name for a table");
  const std::string two =
      R"({"name": "C1", "id_bytes": 4, "dictionary": false, "keys": true},
         {"name": "C2", "id_bytes": 4, "dictionary": false, "keys": true, "shares": "C1"})";
  const size_t begin = good.find('[', good.find("\"tables\"")), end = good.find(']', begin);
  test::write_file(path, good.substr(0, begin + 1) + two + good.substr(end));
  expect_has(
      error_of([&] { open_clicks(dir.file("out"), {}); }),
      "table C2 \"shares\" C1, which must be a table with rows of its own, as many as this one, and without keys");
  test::write_file(path, good);
  test::write_file(dir.file("out/C1.ids"), "\2");
  expect_has(error_of([&] { open_clicks(dir.file("out"), {}); }), "has 1 bytes; 2 samples of 1 bytes need 2");
}

TEST(ClickFolder, DamagedBags) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "y,c\n1,a b\n0,\n1,b\n");
  PreprocessOptions options = options_for(dir, "in.csv", "out");
  options.columns = NamedColumns{{LabelRule::parse("y")}, {}, {}, {{"c", ' '}}, {}, ',', {}, 0, true, {}};
  options.format = "auto";
  run(options);
  const auto source = open_clicks(dir.file("out"), {}).source;
  EXPECT_EQ(source->schema().table(0).max_ids, 2);
  ClickBatchBuffer buffer(source->schema(), 3);
  source->read(0, 3, buffer);
  const auto* ids = buffer.batch().ids[0].as<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 3), (std::vector<int32_t>{2, 3, 3}));

  const std::string good = test::read_file(dir.file("out/c.ends"));
  ASSERT_EQ(good, std::string("\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 24));
  const auto with = [&](size_t byte, char value) {
    std::string text = good;
    text[byte] = value;
    test::write_file(dir.file("out/c.ends"), text);
    return error_of([&] { open_clicks(dir.file("out"), {}).source->read(0, 3, buffer); });
  };
  expect_has(with(0, 3), "c.ends: sample 0 has the ids from 0 to 3 of 3, and at most 2");
  expect_has(with(8, 1), "c.ends: sample 1 has the ids from 2 to 1 of 3");
  expect_has(with(16, 4), "c.ids has 3 bytes; the last bag in " + dir.file("out/c.ends") + " ends at id 4");
  expect_has(with(16, 2), "c.ends ends at id 2, and an id has 1 byte: one of the files is truncated");
  expect_has(with(23, '\x80'), "c.ends ends at id 9223372036854775811");
  test::write_file(dir.file("out/c.ends"), good.substr(8));
  expect_has(error_of([&] { open_clicks(dir.file("out"), {}); }),
             "has 16 bytes; 3 samples of 8 bytes need 24");
}

TEST(ClickFolder, SeveralLabels) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "click,stars,u\n1,4,a\n0,,b\n,5,a\n,,a\nNA,1,b\n");
  PreprocessOptions options = options_for(dir, "in.csv", "out");
  options.columns =
      NamedColumns{LabelRules::parse("click,stars>=4").rules, {}, {"u"}, {}, {}, ',', {"NA"}, 0, true, {}};
  options.format = "auto";
  options.max_malformed = 0.5;
  const PreprocessResult result = run(options);
  EXPECT_EQ(result.report.shown, std::vector{dir.file("in.csv") + ":5: it has none of its labels"});
  EXPECT_EQ(result.folder.clicks, 2);
  const ClickFolder folder = read_click_folder(dir.file("out"));
  ASSERT_EQ(folder.labels.size(), 2U);
  EXPECT_EQ(folder.labels[1].name, "stars");
  EXPECT_EQ(folder.labels[0].clicks, 1);
  EXPECT_EQ(folder.labels[0].missing, 2);
  EXPECT_EQ(folder.labels[1].clicks, 2);
  EXPECT_EQ(folder.labels[1].missing, 1);
  EXPECT_EQ(test::read_file(dir.file("out/labels.bin")), std::string("\1\1\0\xff\xff\1\xff\0", 8));

  const auto source = open_clicks(dir.file("out"), {}).source;
  EXPECT_EQ(source->schema().labels, (std::vector<std::string>{"click", "stars"}));
  ClickSchema schema = source->schema();
  schema.label_weights = {1, 0.5F};
  ClickBatchBuffer buffer(schema, 5);
  source->read(0, 4, buffer, 5);
  const auto* labels = buffer.batch().labels.as<float>();
  const auto* weights = buffer.batch().weights.as<float>();
  EXPECT_EQ(buffer.batch().labels.shape, (Shape{5, 2}));
  EXPECT_EQ(std::vector<float>(labels, labels + 10), (std::vector<float>{1, 1, 0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(std::vector<float>(weights, weights + 10),
            (std::vector<float>{1, 0.5F, 1, 0, 0, 0.5F, 0, 0.5F, 0, 0}));

  const std::string manifest = dir.file("out/clicks.json");
  const std::string good = test::read_file(manifest);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    test::write_file(manifest, text);
    return error_of([&] { open_clicks(dir.file("out"), {}); });
  };
  expect_has(with("\"stars\"", "\"click\""), "two labels are called click");
  expect_has(with("\"stars\"", "\"../stars\""), "is not a valid name for a label");
  expect_has(with("\"missing\": 2", "\"missing\": 9"), "\"missing\" is 9, not a whole number from 0 to 4");
  test::write_file(manifest, good);
  test::write_file(dir.file("out/labels.bin"), std::string("\1\1\0", 3));
  expect_has(error_of([&] { open_clicks(dir.file("out"), {}); }),
             "3 bytes are not a whole number of samples of 2 labels");
  test::write_file(dir.file("out/labels.bin"), std::string("\1\1\0\2\xff\1\xff\0", 8));
  expect_has(error_of([&] { open_clicks(dir.file("out"), {}).source->read(0, 4, buffer); }),
             "the label of sample 1 is 2, not 0 or 1");
}

TEST(ClickFolder, LabelsThatWouldHaveOneName) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "a/b,a:b,u\n1,0,x\n");
  PreprocessOptions options = options_for(dir, "in.csv", "out");
  options.columns = NamedColumns{LabelRules::parse("a/b,a:b").rules, {}, {"u"}, {}, {}, ',', {}, 0, true, {}};
  options.format = "auto";
  expect_has(error_of([&] { run(options); }), "two labels would be called a_b");
}

TEST(OpenClicks, FindsTheFormat) {
  const TempDir dir;
  const auto error = [&](const std::string& path, const ClickFileOptions& options) {
    return error_of([&] { open_clicks(path, options); });
  };
  std::filesystem::create_directory(dir.file("empty"));
  test::write_file(dir.file("t.bin"), std::string(4 * 4, '\0'));
  test::write_file(dir.file("t.csv"), "label,C1\n1,3\n");
  test::write_file(dir.file("day_0"), "1" + std::string(39, '\t') + "\n");
  test::write_file(dir.file("t.x"), "x");
  expect_has(error(dir.file("empty"), {}), "without clicks.json");
  expect_has(error(dir.file("none"), {}), "there is no such file or folder");
  expect_has(error(dir.file("none.csv/x"), {}), "there is no such file or folder");
  test::write_file(dir.file("text.data"), "label,C1\n1,3\n");
  test::write_file(dir.file("t.data"), std::string(64, '\0'));
  expect_has(error(dir.file("text.data"), {}), "the format cannot be inferred from its name");
  expect_has(error(dir.file("t.data"), {}), "HugeCTR's Norm files must be preprocessed");
  expect_has(error(dir.file("t.x"), {}), "the format cannot be inferred from its name: give --data-format");
  expect_has(error(dir.file("t.bin"), {}), "give --table-rows");
  expect_has(error(dir.file("t.csv"), {}), "give --table-rows");
  ClickFileOptions options;
  options.table_rows = {5};
  EXPECT_EQ(open_clicks(dir.file("day_0"), options).source->schema().table_count(), 26);
  options.dense = 4;
  expect_has(error(dir.file("day_0"), options), "it has 13 dense features, but --dense-features is 4");
  options.table_rows = {5, 6};
  options.dense = 1;
  EXPECT_EQ(open_clicks(dir.file("t.bin"), options).source->samples(), 1);
  options.format = "hugectr-raw";
  options.table_rows = {5};
  options.table_ids = {2};
  EXPECT_EQ(open_clicks(dir.file("t.bin"), options).source->schema().table(0).max_ids, 2);
  options.format = "other";
  expect_has(error(dir.file("t.bin"), options), "there is no click format 'other'");
}

TEST(OpenClicks, GivenOptionsMustAgreeWithTheFolder) {
  const TempDir dir;
  test::write_file(dir.file("in.csv"), "label,I1,C1,C2\n1,2,a,b\n0,3,b,b\n");
  run(options_for(dir, "in.csv", "out"));
  const auto with = [&](auto change) {
    ClickFileOptions options;
    change(options);
    return error_of([&] { open_clicks(dir.file("out"), options); });
  };
  ClickFileOptions same;
  same.table_rows = {4, 3};
  same.dense = 1;
  same.dense_transform = DenseTransform::Log1p;
  same.id_policy = IdPolicy::Error;
  same.table_ids = {1};
  EXPECT_EQ(open_clicks(dir.file("out"), same).source->samples(), 2);
  expect_has(with([](auto& o) { o.table_rows = {4, 5}; }), "table C2 has 3 rows, but --table-rows is 5");
  expect_has(with([](auto& o) { o.table_rows = {4, 5, 6}; }), "has 2 tables, but --table-rows has 3 values");
  expect_has(with([](auto& o) { o.dense = 2; }), "it has 1 dense feature, but --dense-features is 2");
  expect_has(with([](auto& o) { o.dense_transform = DenseTransform::Log3; }), "its dense transform is log1p");
  expect_has(with([](auto& o) { o.id_policy = IdPolicy::Modulo; }), "--id-policy modulo has no effect");
  expect_has(with([](auto& o) { o.table_ids = {2}; }), "leave out --table-max-ids");
}

}  // namespace
}  // namespace trifold
