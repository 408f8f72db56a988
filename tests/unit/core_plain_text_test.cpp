#include "core/plain_text.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace trifold {
namespace {

std::string refusal(std::string_view start) {
  try {
    expect_plain_text(start, "d/text");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return {};
}

TEST(PlainText, TextIsTaken) {
  for (const char* text : {"", "a", "BZ", "PK", "\xEF\xBB\xBFtext", "{\"a\": 1}", "\xff", "\x1f"})
    EXPECT_EQ(refusal(text), "") << text;
}

TEST(PlainText, CompressedFilesAreNamedWithTheirProgram) {
  EXPECT_EQ(refusal("\x1f\x8b\x08"),
            "d/text holds gzip data, not text: decompress it first, for example with gzip -d");
  EXPECT_NE(refusal("\x28\xb5\x2f\xfd").find("zstd -d"), std::string::npos);
  EXPECT_NE(refusal("PK\x03\x04").find("unzip"), std::string::npos);
  EXPECT_NE(refusal("BZh9").find("bzip2"), std::string::npos);
}

TEST(PlainText, OtherEncodingsAreNamedWithTheirConversion) {
  EXPECT_NE(
      refusal(std::string_view("\xff\xfe"
                               "a\0",
                               4))
          .find(
              "UTF-16 text according to its byte-order mark; convert it to UTF-8: iconv -f UTF-16 -t UTF-8"),
      std::string::npos);
  EXPECT_NE(refusal("\xfe\xff").find("UTF-16"), std::string::npos);
  EXPECT_NE(refusal(std::string_view("\xff\xfe\0\0", 4)).find("UTF-32"), std::string::npos);
}

}  // namespace
}  // namespace trifold
