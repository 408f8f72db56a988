#include "core/read_json.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/error.h"
#include "core/input_file.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    return error.what();
  }
  return {};
}

std::string parse_refusal(std::string_view text, const JsonLimits& limits = {}) {
  return refusal([&] { parse_json(text, "d/x.json", limits); });
}

TEST(JsonRecord, ReadsWhatPythonWrites) {
  const auto read = [](std::string_view line) { return parse_json_record(line, "x.jsonl:1"); };
  EXPECT_EQ(read(R"({"a": NaN, "b": [Infinity, -Infinity], "c": 1e400, "d": -1.5E+999, "text": "x"})"),
            json::parse(R"({"a": null, "b": [null, null], "c": null, "d": null, "text": "x"})"));
  EXPECT_EQ(read(R"({"text": "NaN, \"Infinity\" 1e400 \\", "n":NaN})"),
            json::parse(R"({"text": "NaN, \"Infinity\" 1e400 \\", "n": null})"));
  EXPECT_EQ(read(R"({"a": 1e300, "b": 1e-400})"), json::parse(R"({"a": 1e300, "b": 1e-400})"));
  for (const char* wrong :
       {R"({"a": NaNs})", R"({"a": nan})", R"({NaN: 1})", R"({"a": --Infinity})", R"({"a": 1e400)"})
    EXPECT_NE(refusal([&] { read(wrong); }).find("x.jsonl:1: not JSON"), std::string::npos) << wrong;
}

std::string repeated(std::string_view part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

// A folder that is gone with the test.
class Scratch {
 public:
  Scratch() {
    std::string path = (fs::temp_directory_path() / "trifold_json_XXXXXX").string();
    path_ = ::mkdtemp(path.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

TEST(ReadJson, DepthIsLimitedBeforeParsing) {
  EXPECT_EQ(parse_refusal(repeated("[", 64) + repeated("]", 64)), "");
  EXPECT_EQ(parse_refusal(repeated("[", 65) + repeated("]", 65)),
            "d/x.json: the JSON is nested more than 64 levels deep at byte 64");
  EXPECT_EQ(parse_refusal(repeated("{\"a\":", 65) + "0"),
            "d/x.json: the JSON is nested more than 64 levels deep at byte 320");
  EXPECT_NE(parse_refusal(repeated("[", size_t{16} << 20)), "");
  // Brackets in strings are text; a quote after a backslash does not end a string.
  EXPECT_EQ(parse_refusal("\"" + repeated("[", 100) + "\""), "");
  EXPECT_EQ(parse_refusal("\"\\\"" + repeated("[", 100) + "\""), "");
  EXPECT_EQ(parse_refusal("[" + repeated("[],", 1000) + "[]]"), "");  // many, not deep
}

TEST(ReadJson, ValuesAndBytesAreLimitedBeforeParsing) {
  EXPECT_EQ(parse_refusal("[1,2,3]", {100, 8, 4}), "");
  EXPECT_EQ(parse_refusal("[1,2,3,4]", {100, 8, 4}), "d/x.json: the JSON has more than 4 values");
  EXPECT_EQ(parse_refusal("{\"a\":1,\"b\":2}", {100, 8, 4}), "d/x.json: the JSON has more than 4 values");
  EXPECT_EQ(parse_refusal("\",,,,,,,,\"", {100, 8, 4}), "");
  EXPECT_EQ(parse_refusal("[1,2,3]", {6, 8, 4}),
            "d/x.json: the JSON text has 7 bytes; at most 6 are allowed");
}

TEST(ReadJson, ReportsInvalidJsonWithItsPlaceEscaped) {
  const std::string text = parse_refusal("{\"a\":\n \x1b[2J}");
  EXPECT_TRUE(text.starts_with("d/x.json: not JSON: parse error at line 2, column 2")) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(parse_refusal("\"" + repeated("x", 1 << 20)).size(), 400U);
  EXPECT_TRUE(parse_refusal("1e999").starts_with("d/x.json: not JSON")) << parse_refusal("1e999");
  EXPECT_NE(parse_refusal(""), "");
}

TEST(ReadJson, ValuesAreTakenWithChecksThatNameThePlace) {
  const json whole =
      json::parse(R"({"files": [{"bytes": 7}, {"bytes": null, "name": 3, "big": 72057594037927936,
      "huge": 18446744073709551615, "real": 1.5, "flag": 1, "list": {}, "\u001b": {"x": []}}], "n": -3})");
  const JsonView view(whole, "m.json");
  EXPECT_EQ(view.at("files").item(0).at("bytes").integer(0, 10), 7);
  EXPECT_EQ(view.at("n").integer(), -3);
  EXPECT_EQ(view.at("files").item(1).at("huge").whole_number(), UINT64_MAX);
  const JsonView file = view.at("files").item(1);
  EXPECT_FALSE(file.has("bytes"));
  EXPECT_FALSE(file.has("nothing"));
  EXPECT_TRUE(file.has("name"));
  EXPECT_EQ(file.text("nothing", "x"), "x");
  EXPECT_TRUE(file.flag("bytes", true));
  for (const auto& [body, message] : std::vector<std::pair<std::function<void()>, std::string>>{
           {[&] { file.at("bytes").integer(0); },
            "m.json: files[1].bytes is null; a whole number of at least 0 is needed"},
           {[&] { file.at("name").text(); }, "m.json: files[1].name is 3; a string is needed"},
           {[&] { file.at("big").integer(0, 2147483647); },
            "m.json: files[1].big is 72057594037927936; a whole number from 0 to 2147483647 is needed"},
           {[&] { file.at("huge").integer(); },
            "m.json: files[1].huge is 18446744073709551615; a whole number of 64 bits is needed"},
           {[&] { file.at("real").integer(0, 2); },
            "m.json: files[1].real is 1.5; a whole number from 0 to 2 is needed"},
           {[&] { file.at("flag").flag(); }, "m.json: files[1].flag is 1; true or false is needed"},
           {[&] { file.at("list").list(); }, "m.json: files[1].list is an empty object; a list is needed"},
           {[&] { file.at("nothing").text(); }, "m.json: files[1].nothing is missing"},
           {[&] { view.at("nothing"); }, "m.json: nothing is missing"},
           {[&] { view.at("n").at("x"); }, "m.json: n is -3; an object is needed"},
           {[&] { file.at("\x1b").at("x").text(); },
            "m.json: files[1].\\x1b.x is an empty list; a string is needed"},
           {[&] { view.at("files").item(2); },
            "m.json: files is a list; a list of at least 3 values is needed"},
           {[&] { view.list(); }, "m.json: the document is an object; a list is needed"}})
    EXPECT_EQ(refusal(body), message);
}

TEST(InputFile, OnlyRegularFilesOfTextAreRead) {
  const Scratch scratch;
  std::ofstream(scratch.file("good")) << "text";
  EXPECT_EQ(read_input_file(scratch.file("good"), 4), "text");
  const auto read = [&](const std::string& path) { return refusal([&] { read_input_file(path, 4); }); };
  std::ofstream(scratch.file("long")) << "longer";
  EXPECT_EQ(read(scratch.file("long")),
            scratch.file("long") + " has 6 bytes, more than the 4 that such a file may have");
  ASSERT_EQ(::mkfifo(scratch.file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read(scratch.file("pipe")), scratch.file("pipe") + " is a pipe, not a regular file");
  EXPECT_EQ(read(scratch.file(".")), scratch.file(".") + " is a directory, not a regular file");
  EXPECT_EQ(read("/dev/zero"), "/dev/zero is a device, not a regular file");
  EXPECT_EQ(read(scratch.file("none")),
            scratch.file("none") + " cannot be opened: No such file or directory");
  std::ofstream(scratch.file("packed")) << "\x1f\x8b";
  EXPECT_NE(read(scratch.file("packed")).find("gzip -d"), std::string::npos);
  // A file without blocks of its own is refused by its size, not read.
  std::ofstream(scratch.file("sparse")).flush();
  fs::resize_file(scratch.file("sparse"), uintmax_t{1} << 40);
  EXPECT_NE(read(scratch.file("sparse")).find("1099511627776 bytes"), std::string::npos);
}

}  // namespace
}  // namespace trifold
