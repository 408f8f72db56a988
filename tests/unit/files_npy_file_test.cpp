#include "files/npy_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "files/crc32.h"
#include "files/npz_file.h"
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

double number_at(const NpyHeader& header, const std::byte* at) {
  return header.visit(at, []<class T>(T value) { return static_cast<double>(value); });
}

// Number `place` of a file.
double number(NpyFile file, int64_t place) {
  const auto numbers = file.next(file.header().rows());
  return number_at(file.header(), numbers.data() + place * file.header().number_bytes());
}
// The bits of an integer as an int64_t.
uint64_t bits(NpyFile file, int64_t place) {
  const auto numbers = file.next(file.header().rows());
  return file.header().visit(numbers.data() + place * file.header().number_bytes(), []<class T>(T value) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<uint64_t>(static_cast<int64_t>(value));
    else
      return uint64_t{0};
  });
}

TEST_F(Npy, IsReadAsItWasWritten) {
  for (const size_t count : {0U, 1U, 7U, 100'000U}) {
    std::vector<double> numbers(count);
    for (size_t i = 0; i < count; ++i) numbers[i] = 1.0 / static_cast<double>(i + 3);
    NpyFile file(write(npy_content(numbers)));
    EXPECT_EQ(file.header().first() % 64, 0);
    EXPECT_EQ(file.shape(), std::vector<int64_t>{static_cast<int64_t>(count)});
    if (count == 0) continue;
    const auto* read = reinterpret_cast<const double*>(file.next(static_cast<int64_t>(count)).data());
    EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), read));
  }
}

TEST_F(Npy, ReadsEveryVersionAndType) {
  for (const int version : {1, 2, 3}) {
    const std::string path = write(npy(version, "<i4", "(2, 1)", kNumbers));
    const NpyFile file(path);
    EXPECT_EQ(file.shape(), (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(file.shape_text(), "2 x 1");
    EXPECT_EQ(number(NpyFile(path), 0), 1);
    EXPECT_EQ(number(NpyFile(path), 1), -1);
    EXPECT_EQ(bits(NpyFile(path), 1), ~uint64_t{0});
  }
  EXPECT_EQ(NpyFile(write(npy(1, "|u1", "(8,)", kNumbers))).shape(), (std::vector<int64_t>{8}));
  EXPECT_EQ(bits(NpyFile(write(npy(1, "|u1", "(8,)", kNumbers))), 4), 255U);
  EXPECT_EQ(bits(NpyFile(write(npy(1, "<i2", "(4,)", kNumbers))), 2), ~uint64_t{0});
  EXPECT_EQ(bits(NpyFile(write(npy(1, "<i8", "(1,)", kNumbers))), 0), 0xffffffff00000001U);
  EXPECT_EQ(bits(NpyFile(write(npy(1, "<u8", "(1,)", kNumbers))), 0), 0xffffffff00000001U);
  const std::string reals =
      write(npy(1, "<f4", "(2,)", std::string_view("\x00\x00\x20\x41\x00\x00\x20\xc1", 8)));
  EXPECT_EQ(number(NpyFile(reals), 1), -10);
  EXPECT_EQ(number(NpyFile(write(npy(1, "<f2", "(2,)", std::string_view("\x00\x3e\x00\xc0", 4)))), 0), 1.5);
  EXPECT_EQ(number(NpyFile(write(npy(1, "<f8", "(1,)", std::string_view("\0\0\0\0\0\0\xe0\x3f", 8)))), 0),
            0.5);
}

TEST_F(Npy, ArraysWithoutNumbersAreWhole) {
  for (const char* shape : {"(0, 3)", "(3, 0)", "(0,)", "(0, 4611686018427387904, 4611686018427387904)"}) {
    const NpyFile file(write(npy(1, "<i4", shape, "")));
    EXPECT_EQ(file.header().row_bytes() * file.header().rows(), 0) << shape;
  }
  EXPECT_NE(
      refusal(npy(1, "<i4", "(3, 0)", kNumbers)).find("has 8 bytes of elements, but its shape 3 x 0 needs 0"),
      std::string::npos);
  EXPECT_EQ(NpyFile(write(npy(1, "<i8", "()", kNumbers))).shape_text(), "() (one number)");
}

TEST_F(Npy, RowsComeInOrder) {
  NpyFile file(write(npy(1, "<i2", "(4, 1)", kNumbers)));
  EXPECT_EQ(number_at(file.header(), file.next(1).data()), 1);
  const auto rest = file.next(3);
  EXPECT_EQ(rest.size(), 6U);
  EXPECT_EQ(number_at(file.header(), rest.data()), 0);
  EXPECT_EQ(number_at(file.header(), rest.data() + 2), -1);
}

TEST_F(Npy, ReportsProblems) {
  const auto expect = [&](std::string_view text, std::string_view part) {
    const std::string message = refusal(text);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(npy(4, "<i4", "(2,)", kNumbers), "has version 4 of the format .npy; versions 1 to 3 are read");
  expect(npy(1, ">i4", "(2,)", kNumbers), "its elements are '>i4', not little-endian integers");
  expect(npy(1, "<c8", "(1,)", kNumbers), "its elements are '<c8'");
  expect(npy(1, "<i4", "(3,)", kNumbers), "has room for 2 elements, but its shape is 3: it is damaged");
  expect(npy(1, "<i4", "(1,)", kNumbers), "has 8 bytes of elements, but its shape 1 needs 4");
  expect(npy(1, "<i4", "(4611686018427387904, 4611686018427387904)", kNumbers), "it is damaged");
  expect(npy(1, "<i4", "(2; 1)", kNumbers), "its header has no shape");
  std::string nameless = npy(1, "<i4", "(2,)", kNumbers);
  nameless[nameless.find("descr")] = 'D';
  expect(nameless, "is damaged: its header has no type of elements (descr)");
  expect("day,label\n", "is not an array of NumPy's format .npy");
}

TEST_F(Npy, DamageIsNeverMoreThanAnError) {
  const std::string whole = npy(2, "<i4", "(2, 1)", kNumbers);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      NpyFile file(write(damaged));
      file.next(std::min<int64_t>(file.header().rows(), 1));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    }
  }
}

// A zip archive of one stored member; its checksum is `crc`.
std::string npz(std::string_view name, std::string_view data, uint32_t crc) {
  std::string text;
  const auto add = [&](uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i) & 255);
  };
  const auto add_sizes = [&](std::initializer_list<std::pair<uint64_t, int>> fields) {
    for (const auto& [number, bytes] : fields) add(number, bytes);
  };
  add_sizes({{0x04034b50, 4},
             {20, 2},
             {0, 2},
             {0, 2},
             {0, 4},
             {crc, 4},
             {data.size(), 4},
             {data.size(), 4},
             {name.size(), 2},
             {0, 2}});
  text.append(name).append(data);
  const size_t directory = text.size();
  add_sizes({{0x02014b50, 4},
             {20, 2},
             {20, 2},
             {0, 2},
             {0, 2},
             {0, 4},
             {crc, 4},
             {data.size(), 4},
             {data.size(), 4},
             {name.size(), 2},
             {0, 2},
             {0, 2},
             {0, 2},
             {0, 2},
             {0, 4},
             {0, 4}});
  text.append(name);
  const size_t size = text.size() - directory;
  add_sizes({{0x06054b50, 4}, {0, 4}, {1, 2}, {1, 2}, {size, 4}, {directory, 4}, {0, 2}});
  return text;
}

TEST_F(Npy, ArchivesHoldArrays) {
  const std::string array = npy(1, "<i4", "(2, 1)", kNumbers);
  const uint32_t crc = crc32_of(0, array.data(), array.size());
  const NpzFile file(write(npz("X_int.npy", array, crc)));
  EXPECT_EQ(file.names(), (std::vector<std::string>{"X_int"}));
  const auto rows = file.open("X_int");
  EXPECT_EQ(number_at(rows->header(), rows->next(1).data()), 1);
  EXPECT_EQ(number_at(rows->header(), rows->next(1).data()), -1);
  EXPECT_NE(test::error_of([&] { file.open("y"); }).find("has no array y; there are X_int"),
            std::string::npos);

  const NpzFile damaged(write(npz("X_int.npy", array, crc + 1)));
  const auto wrong = damaged.open("X_int");
  wrong->next(1);
  EXPECT_NE(test::error_of([&] { wrong->next(1); }).find("X_int is damaged: ZIP bad CRC"), std::string::npos);
}

TEST_F(Npy, DamagedArchivesAreNeverMoreThanAnError) {
  const std::string array = npy(1, "<i4", "(2, 1)", kNumbers);
  const std::string whole = npz("y.npy", array, crc32_of(0, array.data(), array.size()));
  const auto read = [&](const std::string& text) {
    const NpzFile file(write(text));
    for (const std::string& name : file.names()) {
      const auto rows = file.open(name);
      rows->next(rows->header().rows());
    }
  };
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(test::error_of([&] { read(whole.substr(0, size)); }), "") << size;
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      read(damaged);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    }
  }
}

}  // namespace
}  // namespace trifold
