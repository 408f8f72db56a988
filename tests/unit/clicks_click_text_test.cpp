// Clicks as lines of text.
#include "clicks/click_text.h"

#include <cmath>
#include <vector>

#include "clicks/click_layout.h"
#include "clicks/click_text_source.h"
#include "support/files.h"

namespace trifold {
namespace {

using test::error_of;
using test::expect_has;
using test::TempDir;

struct Parsed {
  bool good = false;
  int label = -1;
  std::vector<float> dense;
  std::vector<uint64_t> ids;
};

Parsed parse(const TextLayout& layout, const std::string& line) {
  Parsed parsed;
  parsed.dense.resize(static_cast<size_t>(layout.dense));
  // A copy of exactly that size, so that AddressSanitizer detects reads beyond it.
  const std::vector<char> exact(line.begin(), line.end());
  ClickRow row(layout);
  row.begin(parsed.dense.data());
  parsed.good = parse_line(layout, {exact.data(), exact.size()}, row);
  parsed.ids = row.ids;
  parsed.label = row.labels[0] == kNoLabel || layout.labels == 0 ? -1 : row.labels[0];
  return parsed;
}

std::string criteo_line(const std::string& label = "1", const std::string& dense_3 = "12",
                        const std::string& id_2 = "68fd1e64") {
  std::string line = label;
  for (int d = 0; d < 13; ++d) line += "\t" + (d == 3 ? dense_3 : std::to_string(d * 7 - 1));
  for (int t = 0; t < 26; ++t)
    line += "\t" + (t == 2 ? id_2 : fmt::format("{:08x}", 0x80000000U + 1000U * static_cast<uint32_t>(t)));
  return line;
}

TEST(ClickText, ReadsACriteoLine) {
  const Parsed line = parse(criteo_layout(true), criteo_line());
  ASSERT_TRUE(line.good);
  EXPECT_EQ(line.label, 1);
  EXPECT_EQ(line.dense[0], -1);
  EXPECT_EQ(line.dense[3], 12);
  EXPECT_EQ(line.dense[12], 83);
  EXPECT_EQ(line.ids[0], 0x80000000U);  // unsigned
  EXPECT_EQ(line.ids[2], 0x68fd1e64U);
  EXPECT_EQ(line.ids[25], 0x80000000U + 25000U);
}

TEST(ClickText, HexadecimalDigits) {
  const auto id = [](const std::string& text) {
    const Parsed line = parse(criteo_layout(true), criteo_line("0", "1", text));
    return line.good ? fmt::format("{:x}", line.ids[2]) : "bad";
  };
  EXPECT_EQ(id("0123abcd"), "123abcd");
  EXPECT_EQ(id("ABCDEF09"), "abcdef09");
  EXPECT_EQ(id("ffffffff"), "ffffffff");
  EXPECT_EQ(id(""), "0");  // missing
  EXPECT_EQ(id("1f"), "1f");
  for (int c = 1; c < 256; ++c) {  // in every place, every other byte is refused
    if (c == '\t' || std::isxdigit(c) != 0) continue;
    for (size_t place = 0; place < 8; ++place) {
      std::string text = "0a1b2c3d";
      text[place] = static_cast<char>(c);
      if (c == ' ' && place % 7 == 0) continue;  // blanks around a field do not count
      EXPECT_EQ(id(text), "bad") << c << " in place " << place;
    }
  }
  for (const char* text : {"123456789", "-1", "+1", "0x12", "1 2"}) EXPECT_EQ(id(text), "bad") << text;
  EXPECT_EQ(id(" 1 "), "1");
}

TEST(ClickText, Numbers) {
  const auto number = [](const std::string& text) {
    const Parsed line = parse(criteo_layout(true), criteo_line("0", text));
    return line.good ? fmt::format("{}", line.dense[3]) : "bad";
  };
  EXPECT_EQ(number("0"), "0");
  EXPECT_EQ(number("-2"), "-2");
  EXPECT_EQ(number("260.0"), "260");
  EXPECT_EQ(number(""), "nan");
  EXPECT_EQ(number("65535999"), "65536000");  // rounded to f32
  EXPECT_EQ(number("123456789012"), "123456790000");
  for (const char* text : {"-", "1x", "--1", "none", "inf", "1e999", "+-5", "5 5"})
    EXPECT_EQ(number(text), "bad") << text;
  for (const char* text : {"+5", " 5", "5 ", "5e0"}) EXPECT_EQ(number(text), "5") << text;
  EXPECT_EQ(number("nan"), "nan");
}

// Missing fields at the end may be left out, even all hashes, but no number and no label.
TEST(ClickText, ShortLines) {
  std::string line = criteo_line();
  for (int t = 25; t >= 0; --t) {
    line.resize(line.rfind('\t'));
    const Parsed parsed = parse(criteo_layout(true), line);
    ASSERT_TRUE(parsed.good);
    EXPECT_EQ(parsed.ids[static_cast<size_t>(t)], 0U);
    EXPECT_EQ(parsed.dense[12], 83);
  }
  line.resize(line.rfind('\t'));
  EXPECT_FALSE(parse(criteo_layout(true), line).good);
  expect_has(explain_line(criteo_layout(true), line).text,
             "column I13: missing; the line has 13 of 40 fields");
}

TEST(ClickText, ReportsProblems) {
  const TextLayout layout = criteo_layout(true);
  const auto explain = [&](const std::string& line) {
    EXPECT_FALSE(parse(layout, line).good) << line;
    return explain_line(layout, line).text;
  };
  EXPECT_EQ(explain(criteo_line("2")), "column label: '2' is not a label: 0 or 1");
  EXPECT_EQ(explain(criteo_line("")), "column label: '' is not a label: 0 or 1");
  EXPECT_EQ(explain(criteo_line("1", "a")), "column I4: 'a' is not a number");
  EXPECT_EQ(explain(criteo_line("1", "2", "xyz")),
            "column C3: 'xyz' is not a hash: up to 8 hexadecimal digits");
  EXPECT_EQ(explain(criteo_line() + "\t"), "column 41: the line has 41 fields, not 40");
  // A line without its label: 39 fields.
  const std::string bare = criteo_line().substr(2);
  expect_has(explain(bare), "column label: '-1' is not a label");
}

TEST(ClickText, FindsTheLayout) {
  const TempDir dir;
  const auto layout_of = [&](const std::string& text) {
    test::write_file(dir.file("t"), text);
    return find_layout(MappedFile(dir.file("t")));
  };
  EXPECT_TRUE(layout_of(criteo_line() + "\n" + criteo_line("0") + "\n").labels);
  const TextLayout bare = layout_of(criteo_line().substr(2) + "\n" + criteo_line("0").substr(2));
  EXPECT_FALSE(bare.labels);
  EXPECT_EQ(bare.columns.size(), 39U);
  const TextLayout csv = layout_of("Id,C2,Label,I2,I1,C1,note\r\n");
  EXPECT_EQ(csv.separator, ',');
  EXPECT_EQ(csv.dense, 2);
  EXPECT_EQ(csv.tables, 2);
  EXPECT_EQ(csv.least_fields, 5U);
  const Parsed line = parse(csv, "77,171,1,2.5,,00000010,\"x, \"\"y\"\"\"");
  ASSERT_TRUE(line.good);
  EXPECT_EQ(line.label, 1);
  EXPECT_TRUE(std::isnan(line.dense[0]));
  EXPECT_EQ(line.dense[1], 2.5F);
  EXPECT_EQ(line.ids, (std::vector<uint64_t>{10, 171}));
  EXPECT_FALSE(layout_of("I1,C1\n").labels);
  expect_has(error_of([&] { layout_of(""); }), "is empty");
  expect_has(
      error_of([&] { layout_of("label,I1\n"); }),
      "names no column of ids (C1, C2 ... or cat_0, cat_1 ...); a table with other names becomes clicks");
  expect_has(error_of([&] { layout_of("label,C1,C3\n"); }), "lacks a column before C3");
  expect_has(error_of([&] { layout_of("label,C1,c1\n"); }), "column c1 twice");
  expect_has(error_of([&] { layout_of("label,click,C1\n"); }), "2 columns of labels");
}

TEST(ClickText, IdsOfCsvAreDecimal) {
  const TempDir dir;
  test::write_file(dir.file("t"), "label,C1\n1,10\n0,11\n");
  const MappedFile file(dir.file("t"));
  const TextLayout decimal = find_layout(file);
  EXPECT_EQ(decimal.base, IdBase::Decimal);
  EXPECT_EQ(parse(decimal, "1,10").ids[0], 10U);
  EXPECT_EQ(parse(decimal, "1,123456789").ids[0], 123456789U);
  EXPECT_EQ(parse(decimal, "1,18446744073709551615").ids[0], 18446744073709551615U);
  EXPECT_EQ(parse(decimal, "1,").ids[0], 0U);
  for (const char* text : {" 1", "1 ", "+1", "1.0", "1e0"})
    EXPECT_EQ(parse(decimal, fmt::format("1,{}", text)).ids[0], 1U);
  EXPECT_EQ(parse(decimal, "1,-1").ids[0], 0xffffffffU);
  for (const char* text : {"18446744073709551616", "1.5", "0x1", "ab", "1 2"})
    EXPECT_FALSE(parse(decimal, fmt::format("1,{}", text)).good) << text;
  expect_has(explain_line(decimal, "1,ab").text,
             "column C1: 'ab' is not an id: a decimal number from 0 to 1844");
  const TextLayout hexadecimal = find_layout(file, "csv-hex");
  EXPECT_EQ(parse(hexadecimal, "1,10").ids[0], 16U);
  EXPECT_EQ(parse(hexadecimal, "1,68fd1e64").ids[0], 0x68fd1e64U);
  EXPECT_EQ(find_layout(file, "tsv").columns.size(), 40U);
  test::write_file(dir.file("h"), "label,C1\n1,80e26c9b\n0,11\n");
  expect_has(error_of([&] { find_layout(MappedFile(dir.file("h"))); }), "give --data-format csv-hex");
}

TEST(ClickText, QuotedFields) {
  const TempDir dir;
  test::write_file(dir.file("t"), "\"label\",\"I1\",\"C1\",\"cat_3\",\"C\"\"\"\r\n");
  expect_has(error_of([&] { find_layout(MappedFile(dir.file("t"))); }), "lacks a column before cat_3");
  test::write_file(dir.file("t"), "\"label\",\"I1\",\"C1\",\"note\"\r\n");
  const TextLayout layout = find_layout(MappedFile(dir.file("t")));
  EXPECT_EQ(layout.columns[2].name, "C1");
  const Parsed line = parse(layout, "\"1\",\"2.5\",\"77\",\"a, b\"");
  ASSERT_TRUE(line.good);
  EXPECT_EQ(line.label, 1);
  EXPECT_EQ(line.dense[0], 2.5F);
  EXPECT_EQ(line.ids[0], 77U);
  EXPECT_FALSE(parse(layout, "\"1\",\"2.5\",\"77").good);  // a quote that is not closed
  EXPECT_FALSE(parse(layout, "\"1\"1,2,3").good);
  EXPECT_TRUE(parse(layout, "1,2,3,\"").good);
}

TEST(ClickText, AByteOrderMarkIsSkipped) {
  const TempDir dir;
  test::write_file(dir.file("t"), "\xef\xbb\xbflabel,C1\n1,5\n0,9\n");
  const TextClicks clicks(dir.file("t"), {10}, {});
  EXPECT_EQ(clicks.samples(), 2);
  ClickBatchBuffer buffer(clicks.schema(), 2);
  clicks.read(0, 2, buffer);
  EXPECT_EQ(buffer.batch().ids[0].as<int32_t>()[1], 9);
}

TEST(ClickText, RejectsBinaryFiles) {
  const TempDir dir;
  const auto refused = [&](std::string_view content) {
    test::write_file(dir.file("t"), content);
    const std::string error = error_of([&] { find_layout(MappedFile(dir.file("t"))); });
    for (const char c : error) EXPECT_TRUE(c >= ' ' && c <= '~') << error;
    return error;
  };
  expect_has(refused("\x1f\x8b\x08 rest"), "holds gzip data, not text: decompress it first");
  expect_has(refused("\x28\xb5\x2f\xfd rest"), "holds zstd data");
  expect_has(refused(std::string_view("\xff\xfel\0a\0", 6)), "iconv -f UTF-16 -t UTF-8");
  expect_has(refused(std::string_view("l\0a\0b\0,\0\n\0", 10)), "has NUL bytes");
  expect_has(refused("\xef\xbb\xbf"), "is empty but for a byte order mark");
  expect_has(refused("a\x1b[2Jb,\x1b]0;x\x07\n"), "names no column of ids");
  // Text quoted in messages is escaped.
  expect_has(explain_line(criteo_layout(true), "\x1b[2J\xff").text, "'\\x1b[2J\\xff' is not a label");
}

TEST(TextClicks, SkipsMalformedLinesAndReportsTheFirstTen) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 600; ++i) {
    if (i % 50 == 7) text += i % 100 == 7 ? "broken\r\n" : criteo_line("1", "x") + "\n";
    text += criteo_line(i % 3 == 0 ? "1" : "0", std::to_string(i)) + (i % 2 == 0 ? "\r\n" : "\n");
  }
  text.resize(text.find_last_not_of("\r\n") + 1);  // no line end at the end
  test::write_file(dir.file("t"), text);
  const ClickRules rules{DenseTransform::Log1p, IdPolicy::Modulo};
  expect_has(error_of([&] { TextClicks(dir.file("t"), {1000}, rules); }),
             "more than 1 % of the lines are malformed");
  const TextClicks clicks(dir.file("t"), {1000}, rules, TextOptions{.max_malformed = 0.02});
  EXPECT_EQ(clicks.samples(), 600);
  EXPECT_EQ(clicks.report().lines, 612);
  EXPECT_EQ(clicks.report().malformed, 12);
  ASSERT_EQ(clicks.report().shown.size(), 10U);
  EXPECT_EQ(clicks.report().shown[0], dir.file("t") + ":8: column label: 'broken' is not a label: 0 or 1");
  EXPECT_EQ(clicks.report().shown[1], dir.file("t") + ":59: column I4: 'x' is not a number");
  expect_has(
      clicks.report().text(),
      "12 of 612 lines are malformed and left out (column I4 is not a number: 6, column label is not a label: 6):\n  ");
  expect_has(clicks.report().text(), "and 2 more");
  ClickBatchBuffer buffer(clicks.schema(), 600);
  clicks.read(0, 600, buffer);
  for (int64_t i = 0; i < 600; ++i) {
    EXPECT_EQ(buffer.batch().labels.as<float>()[i], i % 3 == 0 ? 1.0F : 0.0F);
    EXPECT_FLOAT_EQ(buffer.batch().dense.as<float>()[i * 13 + 3], std::log1p(static_cast<float>(i)));
    EXPECT_EQ(buffer.batch().dense.as<float>()[i * 13], 0);  // -1
    EXPECT_EQ(buffer.batch().ids[0].as<int32_t>()[i], 0x80000000U % 1000);
  }
}

TEST(TextClicks, SkipsBlankLines) {
  const TempDir dir;
  test::write_file(dir.file("t"), "\n \r\nlabel,C1\n\n1,5\n  \n0,9\r\n\r\n");
  const TextClicks clicks(dir.file("t"), {10}, {});
  EXPECT_EQ(clicks.samples(), 2);
  EXPECT_EQ(clicks.report().lines, 2);
  EXPECT_FALSE(is_blank_line("\t", '\t'));
  EXPECT_TRUE(is_blank_line(" \t", ','));
}

// A file without line ends must not be read into memory to find that out.
TEST(TextClicks, LinesThatAreTooLong) {
  const std::string longest(kLongestClickLine, 'x');
  std::string_view text = longest;
  EXPECT_EQ(take_line(text)->size(), kLongestClickLine);
  EXPECT_TRUE(text.empty());
  const std::string longer = longest + "x\n";
  text = longer;
  EXPECT_FALSE(take_line(text));
  EXPECT_EQ(text.size(), longer.size());

  const TempDir dir;
  test::write_file(dir.file("t"), criteo_line() + "\n" + longest + "\n" + criteo_line() + "\n" + longer);
  const std::string message = error_of([&] {
    TextClicks(dir.file("t"), {1000}, {DenseTransform::None, IdPolicy::Modulo});
  });
  expect_has(message, dir.file("t") + ":4: the line has more than 1048576 bytes");
  test::write_file(dir.file("h"), "label," + longer);
  const MappedFile header(dir.file("h"));
  expect_has(error_of([&] { find_layout(header); }), dir.file("h") + ":1: the line has more than");
}

TEST(TextClicks, RejectsUnusableData) {
  const TempDir dir;
  const auto open = [&](const std::string& text, std::vector<int64_t> rows,
                        IdPolicy policy = IdPolicy::Modulo) {
    test::write_file(dir.file("t"), text);
    const TextClicks clicks(dir.file("t"), std::move(rows), {DenseTransform::None, policy},
                            TextOptions{.max_malformed = 0.5});
    ClickBatchBuffer buffer(clicks.schema(), clicks.samples());
    clicks.read(0, clicks.samples(), buffer);
  };
  const std::string good = criteo_line() + "\n";
  expect_has(error_of([&] { open(good, {1, 2}); }), "has 26 columns of ids, but there are 2 tables");
  expect_has(error_of([&] { open("label,C1\nx\n\n", {5}); }), "has no valid line");
  expect_has(error_of([&] { open(criteo_line().substr(2) + "\n", {5}); }), "has no labels");
  expect_has(error_of([&] { open("bad\n" + good, {1000}, IdPolicy::Error); }),
             ": line 2, column C1: id '80000000' (hexadecimal, 2147483648 in decimal) is outside the table, "
             "which has 1000 rows");
  expect_has(error_of([&] { open("label,C1\n1,5\n0,12345678901\n", {1000}, IdPolicy::Error); }),
             ": line 3, column C1: id 12345678901 is outside the table, which has 1000 rows");
}

}  // namespace
}  // namespace trifold
