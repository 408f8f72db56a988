#include "files/zip_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/files.h"
#include "unit/zip_testing.h"

namespace trifold {
namespace {

using test::error_of;
using test::zip_of;

class Zip : public ::testing::Test {
 protected:
  std::string write(std::string_view text) {
    const std::string path = folder_.file("a.zip");
    test::write_file(path, text);
    return path;
  }
  std::string refusal(std::string_view text) {
    return error_of([&] { ZipFile file(write(text)); });
  }

 private:
  test::TempDir folder_;
};

TEST_F(Zip, ReadsMembersWholeAndInParts) {
  const ZipFile file(write(zip_of({{"m/b", "hello"}, {"m/a", std::string("\0\1\2\3", 4)}})));
  ASSERT_EQ(file.members().size(), 2u);
  EXPECT_EQ(file.members()[0].name, "m/a");
  EXPECT_EQ(file.read(file.at("m/b"), 100), "hello");
  std::vector<std::byte> part(2);
  file.read_stored(file.at("m/a"), 1, part);
  EXPECT_EQ(part, (std::vector<std::byte>{std::byte{1}, std::byte{2}}));
  file.verify(file.at("m/b"));
  EXPECT_EQ(file.find("m/c"), nullptr);
  EXPECT_NE(error_of([&] { file.at("m/c"); }).find("no member 'm/c'"), std::string::npos);
  EXPECT_NE(error_of([&] { file.read(file.at("m/b"), 4); }).find("has 5 bytes; at most 4"),
            std::string::npos);
}

TEST_F(Zip, FindsAWrongChecksum) {
  std::string text = zip_of({{"a", "hello"}});
  text[text.find("hello")] = 'j';
  const ZipFile file(write(text));
  EXPECT_NE(error_of([&] { file.read(file.at("a"), 100); }).find("checksum"), std::string::npos);
  EXPECT_NE(error_of([&] { file.verify(file.at("a")); }).find("checksum"), std::string::npos);
}

TEST_F(Zip, RejectsNamesThatLeaveAFolderAndNamesThatOccurTwice) {
  for (const char* name : {"../a", "a/../../b", "/etc/passwd", "a\\b", "a/.."})
    EXPECT_NE(refusal(zip_of({{name, "x"}})).find("is not a name"), std::string::npos) << name;
  EXPECT_NE(refusal(zip_of({{"a", "x"}, {"a", "y"}})).find("two members 'a'"), std::string::npos);
}

TEST_F(Zip, RejectsOverlaps) {
  std::string text = zip_of({{"a", "xxxx"}, {"b", "yyyy"}});
  // The second entry of the directory gets the offset and the name of the first member.
  const size_t second = text.rfind("PK\1\2");
  text.replace(second + 42, 4, std::string(4, '\0'));
  EXPECT_NE(refusal(text).find("overlap"), std::string::npos);
}

TEST_F(Zip, NothingButBadInputForAnyTruncationAndAnyChangedByte) {
  const std::string whole = zip_of({{"a", "hello"}, {"b/c", "there"}});
  EXPECT_NE(refusal("").find("not a zip archive"), std::string::npos);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_NE(refusal(whole.substr(0, bytes)), "") << bytes;
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int change : {1, 128, 255}) {
      std::string text = whole;
      text[at] = static_cast<char>(text[at] ^ change);
      try {
        const ZipFile file(write(text));
        for (const ZipMember& member : file.members()) file.read(member, 1000);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
      }
    }
}

}  // namespace
}  // namespace trifold
