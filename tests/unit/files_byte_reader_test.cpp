#include "files/byte_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <string_view>

#include "core/error.h"
#include "support/files.h"
#include "support/packed.h"

namespace trifold {
namespace {

struct PackedKind {
  Packing packing;
  const char* name;
  const char* ending;
};

constexpr std::array<PackedKind, 4> kKinds{{{Packing::Gzip, "gzip", ".gz"},
                                            {Packing::Zstd, "zstd", ".zst"},
                                            {Packing::Xz, "xz", ".xz"},
                                            {Packing::Bzip2, "bzip2", ".bz2"}}};

class PackedFile : public ::testing::TestWithParam<PackedKind> {
 protected:
  static std::string packed(std::string_view text) { return test::compressed(text, GetParam().packing); }

  std::string path() const { return folder_.file(std::string("t.txt") + GetParam().ending); }

  // What the file holds when it consists of these bytes, read in pieces of `piece` bytes.
  std::string unpacked(std::string_view bytes, size_t piece = 1000) {
    test::write_file(path(), bytes);
    const auto reader = open_bytes(path(), packing_of(path()));
    std::string all;
    std::string part(piece, '\0');
    while (const size_t count = reader->read(part)) all.append(part, 0, count);
    std::array<char, 4> more{};
    EXPECT_EQ(reader->read(more), 0U);
    return all;
  }

  std::string refusal(std::string_view bytes) {
    return test::error_of([&] { unpacked(bytes); });
  }

  test::TempDir folder_;
};

// Digits that do not compress to nothing, more of them than a reader takes at once.
std::string long_text() {
  std::mt19937_64 random(7);
  std::string text;
  while (text.size() < 650000) text += std::to_string(random()) + "\n";
  return text;
}

TEST_P(PackedFile, GivesTheTextOfAllItsStreams) {
  const std::string text = long_text();
  const std::string bytes = packed(text);
  for (const size_t piece : {size_t{1} << 10, size_t{123457}, size_t{1} << 21}) {
    EXPECT_TRUE(unpacked(bytes, piece) == text) << piece;
    EXPECT_TRUE(unpacked(bytes + bytes + packed("") + packed("end"), piece) == text + text + "end") << piece;
  }
  EXPECT_EQ(unpacked(packed("")), "");
  EXPECT_EQ(unpacked(packed("a")), "a");
}

TEST_P(PackedFile, TruncatedAnywhereIsRefusedWithItsSize) {
  const std::string bytes = packed("one line\nanother line\n");
  const std::string whole = std::string(GetParam().name) + " file";
  for (size_t size = 0; size < bytes.size(); ++size) {
    SCOPED_TRACE(size);
    for (const std::string& before : {std::string(), bytes}) {
      if (!before.empty() && size == 0) continue;  // the end of a stream is the end of the file
      const std::string message = refusal(before + bytes.substr(0, size));
      test::expect_has(message, path());
      test::expect_has(message, whole);
      // libarchive knows bzip2 streams by their first 14 bytes.
      if (GetParam().packing != Packing::Bzip2 || size >= 14)
        test::expect_has(message, fmt::format("the {} file is truncated: it ends at byte {}, in the middle",
                                              GetParam().name, before.size() + size));
    }
  }
  const std::string large = packed(long_text());
  test::expect_has(refusal(std::string_view(large).substr(0, large.size() / 2)),
                   fmt::format("is truncated: it ends at byte {}", large.size() / 2));
}

TEST_P(PackedFile, OfAnotherKindIsRefused) {
  const std::string message = refusal("this is plain text, and no more than that");
  test::expect_has(message, fmt::format("is a damaged {} file (", GetParam().name));
  test::expect_has(message, GetParam().packing == Packing::Gzip ? "at byte 2)" : "byte 0");
  for (const PackedKind& other : kKinds)
    if (other.packing != GetParam().packing)
      test::expect_has(refusal(test::compressed("one line\n", other.packing)), "is a damaged");
}

TEST_P(PackedFile, WithOtherBytesBehindItsDataIsRefused) {
  const std::string bytes = packed(long_text());
  test::expect_has(refusal(bytes + std::string(50, 'x')),
                   fmt::format("is a damaged {} file (", GetParam().name));
  // Fewer than a stream's header has.
  for (size_t count = 1; count <= 12 && GetParam().packing == Packing::Xz; ++count)
    test::expect_has(refusal(bytes + std::string(count, 'x')),
                     fmt::format("is a damaged xz file (from byte {} on it is not xz data): create it again",
                                 bytes.size()));
}

// As many as no tape has: a file with a hole, small by itself, would be read for seconds in every pass.
TEST_P(PackedFile, WithAMillionZerosBehindItsDataIsRefused) {
  const std::string bytes = packed("one line\n");
  const bool padded = GetParam().packing == Packing::Gzip || GetParam().packing == Packing::Xz;
  if (padded) {
    EXPECT_EQ(unpacked(bytes + std::string(600000, '\0')), "one line\n");
  }
  test::expect_has(refusal(bytes + std::string(2000000, '\0')),
                   fmt::format("more than 1048576 zero bytes follow its {} data", GetParam().name));
}

TEST_P(PackedFile, DamagedInTheMiddleIsRefused) {
  std::string bytes = packed(long_text());
  for (size_t i = 0; i < 50; ++i) bytes[bytes.size() / 2 + i] = 'x';
  test::expect_has(refusal(bytes), fmt::format("is a damaged {} file (", GetParam().name));
  test::expect_has(refusal(bytes), ", at byte ");
}

// Every kind has checksums. What nothing depends on (the time in the head of a gzip file) may change.
TEST_P(PackedFile, NoChangedByteAltersTheText) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += fmt::format("{} squared is {}\n", i, i * i);
  const std::string bytes = packed(text);
  ASSERT_EQ(unpacked(bytes), text);
  int refused = 0;
  for (size_t byte = 0; byte < bytes.size(); ++byte) {
    std::string changed = bytes;
    changed[byte] = static_cast<char>(changed[byte] ^ (1 << byte % 8));
    try {
      EXPECT_EQ(unpacked(changed), text) << byte;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, std::ssize(bytes) - 12);
}

INSTANTIATE_TEST_SUITE_P(Files, PackedFile, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(ByteReader, KnowsCompressedFilesByTheirNames) {
  for (const PackedKind& kind : kKinds) {
    EXPECT_EQ(packing_of(std::string("a.txt") + kind.ending), kind.packing);
    EXPECT_EQ(without_packing(std::string("d/a.txt") + kind.ending), "d/a.txt");
    test::expect_has(kPackedEndings, kind.ending);
  }
  EXPECT_EQ(packing_of("a.txt"), Packing::None);
  EXPECT_EQ(without_packing("a.gz.txt"), "a.gz.txt");
}

TEST(ByteReader, APlainFileIsGivenAsItIs) {
  const test::TempDir folder;
  test::write_file(folder.file("a.txt"), "plain");
  const auto reader = open_bytes(folder.file("a.txt"), Packing::None);
  std::string text(10, '\0');
  text.resize(reader->read(text));
  EXPECT_EQ(text, "plain");
  test::expect_has(test::error_of([&] { open_bytes(folder.file("none.xz"), Packing::Xz); }),
                   "none.xz cannot be opened");
}

}  // namespace
}  // namespace trifold
