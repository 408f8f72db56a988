// Damaged files of every format of clicks: each is read to its end or rejected with an Error(BadInput), and everything
// read obeys the schema. AddressSanitizer detects reads outside a file.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "clicks/click_files.h"
#include "files/yaml.h"
#include "preprocess/preprocess.h"
#include "support/files.h"

namespace trifold {
namespace {

using test::TempDir;
using Random = std::mt19937;

size_t below(Random& random, size_t n) { return random() % std::max<size_t>(n, 1); }

// A few changes of bytes, lengths and pieces.
std::string damaged(Random& random, std::string text) {
  static constexpr char kBytes[] = "\t\n\r,-.0129afAZg: #&*[]{}'\"\\\xff\x80\x7f";  // its final NUL too
  for (size_t changes = 1 + below(random, 4) * below(random, 2); changes > 0; --changes) {
    const size_t at = below(random, text.size());
    const size_t size = 1 + below(random, std::min<size_t>(text.size() - at, 40));
    switch (below(random, 6)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        text.insert(at, text.substr(below(random, text.size()), size));
        break;
      case 3:
        text.insert(at, 1, kBytes[below(random, sizeof kBytes)]);
        break;
      case 4:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      default:
        if (!text.empty()) text[at] = kBytes[below(random, sizeof kBytes)];
        break;
    }
  }
  return text;
}

// Reads every sample, in order and from the back.
void read_through(const ClickSource& source) {
  ASSERT_GE(source.samples(), 0);
  ClickBatchBuffer buffer(source.schema(), 64);
  for (const bool shuffle : {false, true}) {
    const ClickFeed feed(source, shuffle ? std::optional<uint64_t>(3) : std::nullopt, 64);
    for (int64_t step = 0; step < feed.batches_per_epoch(); ++step) {
      feed.read(step, 0, 64, buffer);
      const ClickBatch& batch = buffer.batch();
      for (int64_t i = 0; i < batch.samples; ++i) {
        ASSERT_TRUE(batch.labels.as<float>()[i] == 0 || batch.labels.as<float>()[i] == 1);
        for (int d = 0; d < source.schema().dense; ++d)
          ASSERT_TRUE(std::isfinite(batch.dense.as<float>()[i * source.schema().dense + d]));
      }
      for (size_t t = 0; t < batch.ids.size(); ++t)
        for (int64_t k = 0; k < batch.ids[t].elements(); ++k) {
          ASSERT_GE(batch.ids[t].as<int32_t>()[k], 0);
          ASSERT_LT(batch.ids[t].as<int32_t>()[k], source.schema().tables[t].rows);
        }
    }
  }
}

// Returns 1 when the body ended well.
template <class Body>
int survives(Body&& body, const std::string& content) {
  try {
    body();
    return 1;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not an Error: " << other.what() << " for " << testing::PrintToString(content);
  }
  return 0;
}

std::string criteo_text(int lines) {
  Random random(4);
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += random() % 3 == 0 ? "1" : "0";
    for (int d = 0; d < 13; ++d) text += random() % 4 == 0 ? "\t" : fmt::format("\t{}", random() % 300);
    for (int t = 0; t < 26; ++t) text += random() % 5 == 0 ? "\t" : fmt::format("\t{:08x}", random());
    text += "\n";
  }
  return text;
}

TEST(ClickFuzz, Text) {
  const TempDir dir;
  Random random(1);
  const std::string tsv = criteo_text(8);
  const std::string csv = "Id,label,I1,I2,C1,C2\r\n1,0,5,,68fd1e64,80e26c9b\r\n2,1,-1,2.0,,0a\r\n3,0,,,,\r\n";
  const std::string decimal =
      "\xef\xbb\xbf\"Id\",label,\"I1\",I2,C1,C2\n1,0,5,,12345678901,\"7\"\n\"a,b\",1,-1,2.0,,0\n";
  ClickFileOptions options;
  options.table_rows = {1000};
  int good = 0;
  for (int run = 0; run < 400; ++run) {
    const std::string text = damaged(random, run % 2 == 0 ? tsv : run % 4 == 1 ? decimal : csv);
    test::write_file(dir.file("t.txt"), text);
    options.id_policy = run % 3 == 0 ? IdPolicy::Clip : IdPolicy::Modulo;
    options.format = run % 2 == 0 ? "auto" : run % 4 == 1 ? "csv" : "csv-hex";
    options.dense_transform = run % 5 == 0 ? DenseTransform::Log3 : DenseTransform::Log1p;
    good += survives([&] { read_through(*open_clicks(dir.file("t.txt"), options).source); }, text);
  }
  EXPECT_GT(good, 60);
  EXPECT_LT(good, 400);
}

TEST(ClickFuzz, Preprocessing) {
  const TempDir dir;
  Random random(2);
  ThreadPool pool(2);
  const std::string csv = "label,I1,C1,C2\n0,5,68fd1e64,80e26c9b\n1,-1,,0a\n0,,68fd1e64,\n";
  int good = 0;
  for (int run = 0; run < 60; ++run) {
    const std::string text = damaged(random, csv);
    test::write_file(dir.file("t.csv"), text);
    PreprocessOptions options;
    options.inputs = {dir.file("t.csv")};
    options.output = dir.file("out");
    options.format = "csv-hex";
    options.transform = run % 2 == 0 ? DenseTransform::LogMin : DenseTransform::Log3;
    options.frequency_threshold = run % 3;
    options.max_malformed = 1;
    good += survives(
        [&] {
          preprocess(options, pool, [](const PreprocessProgress&) {});
          read_through(*open_clicks(dir.file("out"), {}).source);
        },
        text);
    std::filesystem::remove_all(dir.file("out"));
  }
  EXPECT_GT(good, 10);
  EXPECT_LT(good, 60);
}

TEST(ClickFuzz, Records) {
  const TempDir dir;
  Random random(3);
  std::string file;
  for (int i = 0; i < 12; ++i) {
    const int32_t record[] = {static_cast<int32_t>(random() % 2), static_cast<int32_t>(random() % 100), 7, 3,
                              4};
    file.append(reinterpret_cast<const char*>(record), sizeof record);
  }
  ClickFileOptions options;
  options.dense = 1;
  options.table_rows = {10, 20, 30};
  const IdPolicy policies[] = {IdPolicy::Error, IdPolicy::Modulo, IdPolicy::Clip};
  const char* const formats[] = {"mlperf-bin", "hugectr-raw", "hugectr-raw-counts"};
  int good = 0;
  for (int run = 0; run < 400; ++run) {
    const std::string content = damaged(random, file);
    test::write_file(dir.file("t"), content);
    options.format = formats[run % 3];
    options.id_policy = policies[run / 3 % 3];
    options.dense_transform = run % 2 == 0 ? DenseTransform::Log1p : DenseTransform::None;
    good += survives([&] { read_through(*open_clicks(dir.file("t"), options).source); }, content);
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 400);
}

TEST(ClickFuzz, Manifest) {
  const TempDir dir;
  Random random(5);
  test::write_file(dir.file("t.csv"), "label,I1,C1,C2\n0,5,68fd1e64,80e26c9b\n1,-1,,0a\n0,,68fd1e64,\n");
  PreprocessOptions options;
  options.inputs = {dir.file("t.csv")};
  options.output = dir.file("out");
  options.format = "csv-hex";
  ThreadPool pool(1);
  preprocess(options, pool, [](const PreprocessProgress&) {});
  const std::string manifest = test::read_file(dir.file("out/clicks.json"));
  int good = 0;
  for (int run = 0; run < 400; ++run) {
    const std::string content = damaged(random, manifest);
    test::write_file(dir.file("out/clicks.json"), content);
    good += survives([&] { read_through(*open_clicks(dir.file("out"), {}).source); }, content);
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 400);
}

TEST(ClickFuzz, Bags) {
  const TempDir dir;
  Random random(7);
  test::write_file(dir.file("t.csv"), "y,u,w\n0,a,x:1|z:0.5\n1,b,\n0,a,x:3\n1,c,z:-2|x:1|z:1e-3\n");
  PreprocessOptions options;
  options.inputs = {dir.file("t.csv")};
  options.output = dir.file("out");
  options.columns =
      NamedColumns{{LabelRule::parse("y")}, {}, {"u"}, {{"w", '|'}}, {"w"}, ',', {}, 0, true, {}};
  ThreadPool pool(1);
  preprocess(options, pool, [](const PreprocessProgress&) {});
  int good = 0;
  for (const char* name : {"out/clicks.json", "out/w.ends", "out/w.ids", "out/w.weights"}) {
    const std::string whole = test::read_file(dir.file(name));
    for (int run = 0; run < 200; ++run) {
      const std::string content = damaged(random, whole);
      test::write_file(dir.file(name), content);
      good += survives([&] { read_through(*open_clicks(dir.file("out"), {}).source); }, content);
    }
    test::write_file(dir.file(name), whole);
    EXPECT_EQ(survives([&] { read_through(*open_clicks(dir.file("out"), {}).source); }, "the whole"), 1);
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 800);
}

TEST(ClickFuzz, FeatureSpec) {
  const TempDir dir;
  Random random(6);
  const std::string spec = R"(channel_spec:
  categorical: [c]
  label:
  - label
  numerical: &a
  - n
feature_spec:
  c: {cardinality: 8, dtype: int8}
  label:
    dtype: bool
  n:
    dtype: float32
source_spec:
  train:
  - features: *a
    files:
    - n.bin
    type: split_binary
  - type: split_binary
    features: [label]
    files: ['l.bin']
  - features: [c]
    files: [c.bin]
    type: split_binary
)";
  test::write_file(dir.file("n.bin"), std::string(16, '\0'));
  test::write_file(dir.file("l.bin"), std::string("\0\1\0\1", 4));
  test::write_file(dir.file("c.bin"), std::string("\0\1\2\7", 4));
  int good = 0;
  for (int run = 0; run < 400; ++run) {
    const std::string content = damaged(random, spec);
    test::write_file(dir.file("feature_spec.yaml"), content);
    good += survives([&] { read_through(*open_clicks(dir.file(""), {}).source); }, content);
    const std::string again = damaged(random, content);
    survives([&] { parse_yaml(again, "f"); }, again);
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 400);
}

}  // namespace
}  // namespace trifold
