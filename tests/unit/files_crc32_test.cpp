#include "files/crc32.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <vector>

#include "core/random.h"

namespace trifold {
namespace {

std::vector<unsigned char> random_bytes(size_t count) {
  std::vector<unsigned char> bytes(count);
  const PhiloxKey key = philox_key(3, "crc");
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(philox_word(key, i));
  return bytes;
}

// Every length around the strides of the fast form, at every alignment, from nothing and from something.
TEST(Crc32, IsThatOfZlib) {
  const std::vector<unsigned char> bytes = random_bytes(1100);
  for (size_t length = 0; length < 1000; ++length)
    for (const uint32_t before : {0U, 1U, 0xdeadbeefU, 0xffffffffU}) {
      const size_t shift = length % 67;
      ASSERT_EQ(crc32_of(before, bytes.data() + shift, length), crc32_z(before, bytes.data() + shift, length))
          << length << " " << before;
    }
  const std::vector<unsigned char> many = random_bytes(100'003);
  EXPECT_EQ(crc32_of(0, many.data(), many.size()), crc32_z(0, many.data(), many.size()));
  EXPECT_EQ(crc32_of(0, "123456789", 9), 0xcbf43926U);  // the check value of this checksum
}

TEST(Crc32, GoesOnWhereItStopped) {
  const std::vector<unsigned char> bytes = random_bytes(5000);
  for (const size_t cut : {0UL, 1UL, 63UL, 64UL, 2500UL, 4999UL})
    EXPECT_EQ(crc32_of(crc32_of(0, bytes.data(), cut), bytes.data() + cut, bytes.size() - cut),
              crc32_of(0, bytes.data(), bytes.size()));
}

// The check value that RFC 3720 and catalogues of checksums give, and a definition bit by bit.
TEST(Crc32, OfCastagnoli) {
  EXPECT_EQ(crc32c_of("123456789", 9), 0xe3069283U);
  EXPECT_EQ(crc32c_of(nullptr, 0), 0U);
  const std::vector<unsigned char> bytes = random_bytes(300);
  uint32_t crc = 0xffffffff;
  for (const unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  EXPECT_EQ(crc32c_of(bytes.data(), bytes.size()), crc ^ 0xffffffff);
}

}  // namespace
}  // namespace trifold
