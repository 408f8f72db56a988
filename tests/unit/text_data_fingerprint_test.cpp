// The fingerprint of a run's data: what changes it, what does not, and how much is read.
#include "text/data_fingerprint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "support/files.h"

namespace trifold {
namespace {

namespace fs = std::filesystem;

class DataFingerprintTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  // A file of `bytes` bytes of which most take no room on the disk.
  std::string write_sparse(const std::string& name, int64_t bytes) {
    const std::string path = write(name, "begin");
    fs::resize_file(path, static_cast<uintmax_t>(bytes));
    return path;
  }
  static void poke(const std::string& path, int64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << "x";
  }
  static DataFingerprint of(const std::string& path) { return fingerprint_of_paths(std::span(&path, 1)); }

  test::TempDir temporary_;
  fs::path folder_ = temporary_.file("data");
};

TEST_F(DataFingerprintTest, SizeAndContentCount) {
  const std::string path = write("a.txt", std::string(50'000, 'a'));
  const DataFingerprint before = of(path);
  EXPECT_EQ(difference(before, of(path)), "");
  poke(path, 25'000);
  EXPECT_NE(difference(before, of(path)).find("the content of " + path + " has changed"), std::string::npos)
      << difference(before, of(path));
  fs::resize_file(path, 25'000);
  EXPECT_EQ(difference(before, of(path)), path + " had 50000 bytes and now has 25000");
}

TEST_F(DataFingerprintTest, DataMayBeMoved) {
  write("one/a.txt", "first");
  write("one/b/c.txt", "second");
  const DataFingerprint before = of((folder_ / "one").string());
  fs::rename(folder_ / "one", folder_ / "two");
  fs::last_write_time(folder_ / "two/a.txt", fs::file_time_type::clock::now() - std::chrono::hours(1));
  write("two/.hidden", "is no data");
  write("two/empty.txt", "");
  EXPECT_EQ(difference(before, of((folder_ / "two").string())), "");
  write("two/d.txt", "more");
  EXPECT_EQ(difference(before, of((folder_ / "two").string())),
            "2 files, the first " + (folder_ / "one/a.txt").string() + " then; 3 files, the first " +
                (folder_ / "two/a.txt").string() + " now");
}

TEST_F(DataFingerprintTest, TheOrderOfPathsCounts) {
  const std::vector<std::string> paths = {write("a.txt", "aaaa"), write("b.txt", "bbbb")};
  const std::vector<std::string> other = {paths[1], paths[0]};
  EXPECT_NE(difference(fingerprint_of_paths(paths), fingerprint_of_paths(other)), "");
}

// Two blocks hold first and last byte of a file however large it is.
TEST_F(DataFingerprintTest, ReadsLittleOfALargeFile) {
  constexpr int64_t kSize = int64_t{1} << 40;
  const std::string path = write_sparse("large.txt", kSize);
  const DataFingerprint before = of(path);
  ASSERT_EQ(before.parts.size(), 1U);
  EXPECT_EQ(before.parts[0].bytes, kSize);
  for (const int64_t at : {int64_t{0}, kSize - 1}) {
    poke(path, at);
    const DataFingerprint now = of(path);
    EXPECT_NE(difference(before, now), "") << at;
  }
}

TEST_F(DataFingerprintTest, ManyFilesAreTakenTogether) {
  std::vector<std::string> paths;
  for (int i = 0; i < 1500; ++i) paths.push_back(write(fmt::format("{:04}.txt", i), "some text"));
  const DataFingerprint before = fingerprint_of_paths(paths);
  EXPECT_LE(std::ssize(before.parts), DataFingerprint::kMostParts);
  write("0750.txt", "some test");  // one that is sampled
  EXPECT_NE(difference(before, fingerprint_of_paths(paths)).find("the 3 files from " + paths[750] + " on"),
            std::string::npos)
      << difference(before, fingerprint_of_paths(paths));
  write("0750.txt", "some text");
  EXPECT_EQ(difference(before, fingerprint_of_paths(paths)), "");
  write("0751.txt", "a text");  // and one that is not, of another size
  EXPECT_NE(difference(before, fingerprint_of_paths(paths)), "");
}

TEST_F(DataFingerprintTest, ATokenizerOfTextIsPartOfTheData) {
  DataConfig config;
  config.data_path = {write("a.txt", "text")};
  config.tokenizer_type = TokenizerType::HuggingFace;
  config.tokenizer_model = write("tokenizer.json", "{}");
  const DataFingerprint before = fingerprint_of(config);
  write("tokenizer.json", "[]");
  EXPECT_NE(difference(before, fingerprint_of(config)).find("tokenizer.json"), std::string::npos);
}

TEST_F(DataFingerprintTest, SyntheticClicksAreTheirOptions) {
  ClickDataConfig config;
  const DataFingerprint before = fingerprint_of(config, 1);
  EXPECT_EQ(difference(before, fingerprint_of(config, 1)), "");
  EXPECT_NE(difference(before, fingerprint_of(config, 2)), "");
  config.synthetic_zipf = 1.2;
  EXPECT_NE(difference(before, fingerprint_of(config, 1)).find("exponent 1.2"), std::string::npos);
}

TEST_F(DataFingerprintTest, JsonKeepsAll) {
  const DataFingerprint data = of(write("a.txt", "some text"));
  EXPECT_EQ(difference(data, fingerprint_from_json(to_json(data))), "");
  EXPECT_EQ(to_json(fingerprint_from_json(to_json(data))), to_json(data));
  for (const char* text : {"1", "{}", "[1]", R"([{"name":"a"}])",
                           R"([{"name":"a","files":1,"bytes":"many","crc32":"00000000"}])",
                           R"([{"name":"a","files":1,"bytes":1,"crc32":"0x000000"}])"})
    EXPECT_THROW(fingerprint_from_json(nlohmann::json::parse(text)), Error) << text;
}

}  // namespace
}  // namespace trifold
