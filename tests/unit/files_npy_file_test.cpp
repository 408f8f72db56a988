#include "files/npy_file.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "support/files.h"

namespace trifold {
namespace {

// A file of NumPy's format, whose numbers are `body`.
std::string npy(int version, std::string_view type, std::string_view shape, std::string_view body) {
  std::string header = "{'descr': '" + std::string(type) +
                       "', 'fortran_order': False, 'shape': " + std::string(shape) + ", }\n";
  std::string text = "\x93NUMPY";
  text += static_cast<char>(version);
  text += '\0';
  for (size_t byte = 0; byte < (version == 1 ? 2U : 4U); ++byte)
    text += static_cast<char>(header.size() >> (8 * byte) & 255);
  return text + header + std::string(body);
}

class Npy : public ::testing::Test {
 protected:
  std::string write(std::string_view text) {
    const std::string path = folder_.file("a.npy");
    test::write_file(path, text);
    return path;
  }
  std::string refusal(std::string_view text) {
    return test::error_of([&] { NpyFile file(write(text)); });
  }

 private:
  test::TempDir folder_;
};

constexpr std::string_view kNumbers("\x01\x00\x00\x00\xff\xff\xff\xff", 8);  // i4: 1 and -1

TEST_F(Npy, ReadsEveryVersionAndType) {
  for (const int version : {1, 2, 3}) {
    const NpyFile file(write(npy(version, "<i4", "(2, 1)", kNumbers)));
    EXPECT_EQ(file.shape(), (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(file.shape_text(), "2 x 1");
    EXPECT_EQ(file.number(0), 1);
    EXPECT_EQ(file.number(1), -1);
    EXPECT_EQ(file.whole(1), 0xffffffffU);
  }
  const NpyFile bytes(write(npy(1, "|u1", "(8,)", kNumbers)));
  EXPECT_EQ(bytes.shape(), (std::vector<int64_t>{8}));
  EXPECT_EQ(bytes.whole(4), 255U);
  EXPECT_EQ(NpyFile(write(npy(1, "<i2", "(4,)", kNumbers))).whole(2), 0xffffU);
  EXPECT_EQ(NpyFile(write(npy(1, "<i8", "(1,)", kNumbers))).whole(0), 0xffffffff00000001U);
  EXPECT_EQ(NpyFile(write(npy(1, "<u8", "(1,)", kNumbers))).whole(0), 0xffffffff00000001U);
  const NpyFile reals(write(npy(1, "<f4", "(2,)", std::string_view("\x00\x00\x20\x41\x00\x00\x20\xc1", 8))));
  EXPECT_EQ(reals.number(1), -10);
  EXPECT_EQ(reals.whole(0), 10U);
  EXPECT_EQ(reals.whole(1), std::nullopt);
  EXPECT_EQ(NpyFile(write(npy(1, "<f8", "(1,)", std::string_view("\0\0\0\0\0\0\xe0\x3f", 8)))).whole(0),
            std::nullopt);  // 0.5
  EXPECT_EQ(NpyFile(write(npy(1, "<i4", "(0, 3)", ""))).shape_text(), "0 x 3");
}

TEST_F(Npy, SaysWhatIsWrong) {
  const auto expect = [&](std::string_view text, std::string_view part) {
    const std::string told = refusal(text);
    EXPECT_NE(told.find(part), std::string::npos) << told;
  };
  expect(npy(4, "<i4", "(2,)", kNumbers), "has version 4 of the format .npy; versions 1 to 3 are read");
  expect(npy(1, ">i4", "(2,)", kNumbers), "its numbers are '>i4', not integers");
  expect(npy(1, "<c8", "(1,)", kNumbers), "its numbers are '<c8'");
  expect(npy(1, "<i4", "(3,)", kNumbers), "has room for 2 numbers, its shape is 3: it is damaged");
  expect(npy(1, "<i4", "(1,)", kNumbers), "has 8 bytes of numbers, its shape 1 needs 4");
  expect(npy(1, "<i4", "(4611686018427387904, 4611686018427387904)", kNumbers), "it is damaged");
  expect(npy(1, "<i4", "(2; 1)", kNumbers), "its header has no shape");
  expect("day,label\n", "is no array of NumPy's format .npy");
}

TEST_F(Npy, DamageIsNeverMoreThanAnError) {
  const std::string whole = npy(2, "<i4", "(2, 1)", kNumbers);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      const NpyFile file(write(damaged));
      if (file.shape() == std::vector<int64_t>{2, 1}) file.whole(1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    }
  }
}

}  // namespace
}  // namespace trifold
